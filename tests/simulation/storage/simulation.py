"""Random lives of a log on a disk that fails, from one seed, compared with the obvious model.

Everything a leader or a follower does to a log, with clean stops, kills and power losses between
and within the calls. What was acknowledged under the stated durability must be there afterwards:
after a kill every append that returned, after a power loss everything before the recovery point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import CorruptMessage, KafkaStorageError, OutOfOrderSequenceNumber
from millstream.records import RecordBatch
from millstream.storage.faults import is_disk_full
from millstream.storage.log.producer_entry import AppendOrigin
from tests.simulation.storage.harness import DIRECTORY, Crash
from tests.simulation.storage.lives import LogLives, Survival
from tests.simulation.storage.model import ModelBatch, ModelLog, ModelProducer
from tests.simulation.storage.producers import PLAIN_PRODUCERS

if TYPE_CHECKING:
    from collections.abc import Callable


_CRASH_PROBABILITY = 0.15


class StorageSimulation(LogLives):
    """One seed's story."""

    def run(self, steps: int) -> None:
        """Live through so many operations; an AssertionError tells what is wrong."""
        operations = self._operations()
        for _ in range(steps):
            self.harness.clock.advance(self.random.choice([0, 1, 10, 500]))
            (operation,) = self.random.choices(*operations)
            self._perform(operation)
        self._perform(self.kill)
        self._perform(self.restart_cleanly)

    def _operations(self) -> tuple[list[Callable[[], None]], list[int]]:
        weights: dict[Callable[[], None], int] = {
            self.append: 30,
            self.end_transaction: 6,
            self.append_duplicate: 2,
            self.append_refused: 2,
            self.change_role: 2,
            self.raise_high_watermark: 4,
            self.truncate: 2,
            self.begin_anew: 1,
            self.delete_records: 2,
            self.roll: 2,
            self.flush: 4,
            self.begin_flush: 4,
            self.finish_flush: 4,
            self.checkpoint: 3,
            self.delete_old_segments: 2,
            self.delete_files: 2,
            self.change_config: 1,
            self.release: 1,
            self.fill_disk: 1,
            self.damage_an_index: 2,
            self.restart_cleanly: 3,
            self.kill: 3,
            self.lose_power: 3,
        }
        return list(weights), list(weights.values())

    def _perform(self, operation: Callable[[], None]) -> None:
        """One operation, which a crash may end at any access to the disk; then look at the log."""
        self.story.append(operation.__name__)
        self.survival = Survival(self.model, self.model.log_end_offset)
        if self.random.random() < _CRASH_PROBABILITY:
            self.harness.crash_within(self.random.randrange(30))
        try:
            operation()
        except Crash as crash:
            self.story.append(f"crash {crash}")
            self._restart(is_power_loss=self.random.random() < 0.5)
        self.harness.survive()
        self.durable_offset = self.log.recovery_point
        self._check()

    # What a leader and a follower do.

    def append(self) -> None:
        """One batch as leader, or a few as follower."""
        if self.is_leader:
            data = self.source.draw(self._known_producers(), self.now_ms, 0, -1)
            self._append_as_leader(data, AppendOrigin.CLIENT)
        else:
            self._append_as_follower()

    def end_transaction(self) -> None:
        """A coordinator writes a marker."""
        open_ones = [
            entry
            for entry in self.log.producers.producers.values()
            if entry.transaction_first_offset is not None
        ]
        if self.is_leader and open_ones:
            entry = self.random.choice(open_ones)
            epoch = entry.epoch + self.random.randrange(2)
            data = self.source.draw_marker(entry.producer_id, epoch, self.now_ms)
            self._append_as_leader(data, AppendOrigin.COORDINATOR)

    def append_duplicate(self) -> None:
        """A retry of a batch that is in the log already."""
        known = self.log.producers.producers.get(self.random.choice(PLAIN_PRODUCERS))
        if self.is_leader and known is not None and known.batches:
            first = known.batches[-1]
            data = self.source.build(
                first.offset_delta + 1,
                self.now_ms,
                producer=(known.producer_id, known.epoch, first.first_sequence),
            )
            info = self.log.append_as_leader(data, self.epoch, self.now_ms)
            assert info.is_duplicate
            assert (info.first_offset, info.last_offset) == (first.first_offset, first.last_offset)

    def append_refused(self) -> None:
        """Damaged bytes, or a sequence with a gap: the log must not change."""
        known = self.log.producers.producers.get(self.random.choice(PLAIN_PRODUCERS))
        if known is None or not known.batches or not self.is_leader:
            data = bytearray(self.source.build(1, self.now_ms))
            data[self.random.randrange(21, len(data))] ^= 1 << self.random.randrange(8)
            expected: type[Exception] = CorruptMessage
        else:
            producer = (known.producer_id, known.epoch, known.last_sequence + 7)
            data = bytearray(self.source.build(1, self.now_ms, producer=producer))
            expected = OutOfOrderSequenceNumber
        try:
            self.log.append_as_leader(data, self.epoch, self.now_ms)
        except expected:
            return
        raise AssertionError("the log took what it must refuse")

    def change_role(self) -> None:
        """An election."""
        self.epoch += self.random.randint(1, 2)
        self.is_leader = self.random.random() < 0.6
        if self.is_leader:
            self.log.begin_epoch(self.epoch)

    def raise_high_watermark(self) -> None:
        """Replicas have caught up to some batch."""
        ends = [
            each.last_offset + 1
            for each in self.model.batches
            if each.last_offset >= self.model.high_watermark
        ]
        if ends:
            self.model.high_watermark = self.random.choice(ends)
            self.log.raise_high_watermark(self.model.high_watermark)

    def truncate(self) -> None:
        """Another leader's log is shorter."""
        # Not behind a gap: the log would then end in one, which only a compacted log does.
        batches = self.model.batches
        offsets = [
            batch.base_offset
            for number, batch in enumerate(batches)
            if number == 0 or batches[number - 1].last_offset + 1 == batch.base_offset
        ]
        if not offsets:
            return
        offset = self.random.choice(offsets[-20:])
        self.survival.floor = offset
        if offset < self.model.log_start_offset:
            self.survival.floor, self.survival.may_begin_anew_at = 0, offset
        self.durable_offset = min(self.durable_offset, offset)
        self.harness.before_truncation_to(offset)
        assert self.log.truncate_to(offset, self.now_ms)
        if offset < self.model.log_start_offset:
            self._model_begins_at(offset)
        else:
            self.model.truncate_to(offset)

    def begin_anew(self) -> None:
        """Another leader's log begins later."""
        offset = self.model.log_end_offset + self.random.choice([-3, 0, 5, 100])
        offset = max(offset, 0)
        self.survival.floor, self.survival.may_begin_anew_at = 0, offset
        self.durable_offset = 0
        self.harness.before_truncation_to(offset)
        self.log.truncate_fully_and_start_at(offset, self.now_ms)
        self._model_begins_at(offset)

    def delete_records(self) -> None:
        """DeleteRecords, to any offset that is committed."""
        if self.model.high_watermark > self.model.log_start_offset:
            low, high = self.model.log_start_offset + 1, self.model.high_watermark
            offset = self.random.randint(low, high)
            assert self.log.raise_log_start_offset(offset)
            self.model.log_start_offset = offset

    # What the manager does.

    def roll(self) -> None:
        """A segment ends before its time."""
        self.log.roll(self.now_ms)

    def flush(self) -> None:
        """Everything to disk."""
        self.log.flush()
        assert self.log.recovery_point == self.log.log_end_offset

    def begin_flush(self) -> None:
        """A worker gets something to sync, which takes its time."""
        self.jobs.append(self.log.begin_flush())

    def finish_flush(self) -> None:
        """The worker is done."""
        if self.jobs:
            job = self.jobs.pop(0)
            job.sync()
            self.log.finish_flush(job)

    def checkpoint(self) -> None:
        """The manager writes its files."""
        self.harness.checkpoint()

    def delete_old_segments(self) -> None:
        """Retention comes by."""
        self.survival.deletable_below = self.model.high_watermark
        self.deleted += self.log.delete_old_segments(self.now_ms)
        self._note_deletions()
        self.model.log_start_offset = self.log.log_start_offset

    def delete_files(self) -> None:
        """The delay of deleted files has passed."""
        while self.deleted:
            self.deleted.pop().delete_files()

    def change_config(self) -> None:
        """An administrator has an idea."""
        self.harness.config = self._draw_config()
        self.log.update_config(self.harness.config)

    def release(self) -> None:
        """The log was idle."""
        self.log.release()

    # Faults.

    def fill_disk(self) -> None:
        """No room for a while; whatever fails has not happened."""
        filesystem = self.harness.filesystem
        filesystem.capacity_bytes = 1 << 40
        used = filesystem.capacity_bytes - filesystem.free_bytes
        filesystem.capacity_bytes = used + self.random.randrange(300)
        for _ in range(3):
            operation = self.random.choice([self.append, self.append, self.end_transaction])
            try:
                operation()
            except KafkaStorageError as error:
                if not is_disk_full(error):
                    raise
            self.survival = Survival(self.model, self.model.log_end_offset)
            assert self.log.log_end_offset == self.model.log_end_offset
        filesystem.capacity_bytes = None

    def damage_an_index(self) -> None:
        """A bit of a file that can be rebuilt changes."""
        filesystem = self.harness.filesystem
        candidates = [
            each.name
            for each in filesystem.scan(DIRECTORY)
            if each.name.endswith((".index", ".snapshot")) and each.size
        ]
        fresh = [each for each in sorted(candidates) if each not in self.damaged]
        if fresh:
            name = self.random.choice(fresh)
            self.damaged.add(name)
            filesystem.flip_bit(f"{DIRECTORY}/{name}")

    def restart_cleanly(self) -> None:
        """A stop in order, and a start."""
        self.survival.deletable_below = self.deleted_below
        self.harness.close()
        assert self.log.recovery_point == self.log.log_end_offset
        self._reopen(is_power_loss=False)

    def kill(self) -> None:
        """kill -9: the operating system still has every write."""
        self._restart(is_power_loss=False)

    def lose_power(self) -> None:
        """What was not synced may be gone, whole or in part."""
        self._restart(is_power_loss=True)

    # Appending.

    def _known_producers(self) -> dict[int, ModelProducer]:
        return {
            pid: ModelProducer(
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.transaction_first_offset,
            )
            for pid, entry in self.log.producers.producers.items()
        }

    def _append_as_leader(self, data: bytes, origin: AppendOrigin) -> None:
        is_stamped = self.log.config.message_timestamp_type == "LogAppendTime"
        expected = ModelBatch.of(RecordBatch(data)).placed(
            self.model.log_end_offset, self.epoch, self.now_ms if is_stamped else None
        )
        after = self.model.copy()
        after.append(expected)
        self.survival = Survival(after, self.model.log_end_offset)
        info = self.log.append_as_leader(
            bytearray(data), self.epoch, self.now_ms, origin=origin, transaction_version=1
        )
        assert not info.is_duplicate
        assert (info.first_offset, info.last_offset) == (expected.base_offset, expected.last_offset)
        self.model = after

    def _append_as_follower(self) -> None:
        after = self.model.copy()
        fetched = b""
        for _ in range(self.random.randint(1, 4)):
            batch = self._draw_replicated(after)
            after.append(ModelBatch.of(RecordBatch(batch)))
            fetched += batch
        fetched += fetched[: self.random.randrange(60)]  # a fetch may end within a batch
        self.survival = Survival(after, self.model.log_end_offset)
        try:
            self.log.append_as_follower(fetched, self.epoch, self.now_ms)
        except KafkaStorageError:
            # A part may be in the log: whole batches, and it knows which.
            after.truncate_to(self.log.log_end_offset)
            self.model = after
            raise
        self.model = after

    def _draw_replicated(self, after: ModelLog) -> bytes:
        """A batch as the leader has it: with offsets, sometimes with a gap, of epochs that grow."""
        offset = after.log_end_offset + (3 if self.random.random() < 0.1 else 0)
        latest = max(self.log.epochs.latest_epoch, 0)
        if after.batches:
            latest = max(latest, after.batches[-1].leader_epoch)
        epoch = self.random.randint(min(latest, self.epoch), self.epoch)
        producers = after.producers()
        open_ones = [
            pid for pid, each in producers.items() if each.transaction_first_offset is not None
        ]
        if open_ones and self.random.random() < 0.3:
            pid = self.random.choice(open_ones)
            return self.source.draw_marker(pid, producers[pid].epoch, self.now_ms, offset, epoch)
        return self.source.draw(producers, self.now_ms, offset, epoch)


def run_seed(seed: int, steps: int = 60) -> None:
    """One seed; what happened is in the error if something is wrong."""
    simulation = StorageSimulation(seed)
    try:
        simulation.run(steps)
    except BaseException as error:
        error.add_note(f"seed {seed}: " + ", ".join(simulation.story))
        raise
