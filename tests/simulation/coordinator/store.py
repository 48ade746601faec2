"""The logs of an internal topic, replicated elsewhere: commits come late, and what is not
committed may be lost when the leader changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.ports import Appended, LogBounds
from millstream.errors import (
    ApiError,
    InvalidProducerEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from millstream.records import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.coordinator.schedule import Schedule


class _Waiting(NamedTuple):
    end_offset: int
    done: Callable[[ApiError | None], None]


class _Log:
    """One partition."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.epoch = -1
        self.committed = 0
        self.waiting: list[_Waiting] = []

    @property
    def end_offset(self) -> int:
        return RecordBatch(self.batches[-1]).next_offset if self.batches else 0

    def producer_epoch(self, producer_id: int) -> int:
        """The newest epoch in which a producer has written here."""
        for data in reversed(self.batches):
            batch = RecordBatch(data)
            if batch.producer_id == producer_id:
                return batch.producer_epoch
        return -1

    def commit(self, end_offset: int) -> None:
        self.committed = max(self.committed, min(end_offset, self.end_offset))
        ready = [each for each in self.waiting if each.end_offset <= self.committed]
        self.waiting = [each for each in self.waiting if each.end_offset > self.committed]
        for each in ready:
            each.done(None)


class ReplicatedStore:
    """A `PartitionStore` whose followers are slow, now and then very slow."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self._schedule = schedule
        self._random = random
        self._logs: dict[int, _Log] = {}
        self.is_troubled = True
        """Whether commits may take long and appends may fail."""

    def _log(self, partition: int) -> _Log:
        return self._logs.setdefault(partition, _Log())

    def append(
        self,
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        done: Callable[[ApiError | None], None],
        *,
        timeout_ms: int,
        transaction_version: int = 2,
    ) -> Appended:
        """Keep a batch; it is committed at once, soon, or not in time."""
        log = self._log(partition)
        if leader_epoch != log.epoch:
            raise NotLeaderOrFollower
        if self.is_troubled and self._random.random() < 0.01:
            raise NotEnoughReplicas
        parsed = RecordBatch(batch)
        if 0 <= parsed.producer_epoch < log.producer_epoch(parsed.producer_id):
            raise InvalidProducerEpoch
        is_first = log.committed == log.end_offset
        parsed.patch(log.end_offset, leader_epoch)
        log.batches.append(bytes(batch))
        end_offset = log.end_offset
        delay_ms = self._delay_ms()
        if is_first and not delay_ms:
            log.committed = end_offset
            return Appended(end_offset, is_committed=True)
        waiting = _Waiting(end_offset, done)
        log.waiting.append(waiting)
        self._schedule.after(delay_ms, lambda: self._commit(log, leader_epoch, end_offset))
        self._schedule.after(timeout_ms, lambda: _time_out(log, waiting))
        return Appended(end_offset, is_committed=False)

    def _delay_ms(self) -> int:
        if not self.is_troubled:
            return 0
        return self._random.choice([0, 0, 1, 5, 40, 40, 300, 2_000, 7_000])

    def _commit(self, log: _Log, epoch: int, end_offset: int) -> None:
        if log.epoch == epoch:
            log.commit(end_offset)

    def lead(self, partition: int, epoch: int) -> None:
        """Another leader takes over. It has all that is committed, and perhaps more."""
        log = self._log(partition)
        kept = [each for each in log.batches if RecordBatch(each).next_offset <= log.committed]
        rest = log.batches[len(kept) :]
        log.batches = kept + rest[: self._random.randint(0, len(rest))]
        log.epoch = epoch
        waiting, log.waiting = log.waiting, []
        for each in waiting:
            each.done(NotLeaderOrFollower())
        end_offset = log.end_offset
        self._schedule.after(self._delay_ms(), lambda: self._commit(log, epoch, end_offset))

    def bounds(self, partition: int, leader_epoch: int) -> LogBounds:
        """All of a log, committed or not."""
        return LogBounds(0, self._log(partition).end_offset)

    def read(self, partition: int, offset: int, bytes_max: int) -> bytes:
        """Batches from an offset on."""
        batches = self._log(partition).batches
        return b"".join(each for each in batches if RecordBatch(each).next_offset > offset)

    def is_committed(self, partition: int, end_offset: int) -> bool:
        """Whether everything before an offset is committed."""
        return self._log(partition).committed >= end_offset

    def batch_size_max(self, partition: int) -> int:
        """The largest batch."""
        return 1 << 20


def _time_out(log: _Log, waiting: _Waiting) -> None:
    if waiting in log.waiting:
        log.waiting.remove(waiting)
        waiting.done(RequestTimedOut())
