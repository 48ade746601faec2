"""Rot in the metadata log is refused and a torn tail is cut, whatever the power loss left."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.clock import ManualClock
from millstream.errors import KafkaStorageError
from millstream.metadata.metadata_log import METADATA_PARTITION, MetadataLog
from millstream.metadata.metadata_log_config import MetadataLogConfig
from millstream.metadata.synced_offset import SYNCED_OFFSET_FILE, SyncedOffset
from millstream.raft import batches
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORY = f"/data/{METADATA_PARTITION}"
FIRST_LOG = f"{DIRECTORY}/{0:020d}.log"
SYNCED = f"{DIRECTORY}/{SYNCED_OFFSET_FILE}"
POSITIONS = {
    "base offset": 3,
    "length, too large": 8,
    "length, a little": 11,
    "magic": 16,
    "checksum": 18,
    "attributes": 22,
    "last offset delta": 26,
    "timestamp": 30,
    "record count": 60,
    "body": 70,
}


class Crash(BaseException):
    """The process ends here."""


def new_disk(seed: int = 1) -> SimFileSystem:
    filesystem = SimFileSystem(Random(seed))
    filesystem.make_directory("/data")
    filesystem.sync_directory("/")
    return filesystem


def open_log(
    filesystem: SimFileSystem, *, recovery: str = "strict", is_voter: bool = True
) -> MetadataLog:
    def sync(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        work()
        done(None)

    return MetadataLog.open(
        filesystem,
        "/data",
        MetadataLogConfig(recovery=recovery),
        clock=ManualClock(),
        sync=sync,
        on_failure=lambda error: pytest.fail(str(error)),
        is_voter=is_voter,
    )


def append(log: MetadataLog, *values: bytes, epoch: int = 1) -> int:
    """Returns the bytes of the batch."""
    data = batches.data_batch(log.end_offset, epoch, 0, values)
    log.append(data)
    return len(data)


def records(log: MetadataLog) -> list[bytes]:
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        for each in batches.walk_batches(log.read(offset, 1 << 20)):
            found += [record.value or b"" for record in each.records()]
            offset = each.next_offset
    return found


def three_batches(filesystem: SimFileSystem) -> list[int]:
    """A log of offsets 0, 1-2 and 3, closed in order; where each batch begins."""
    log = open_log(filesystem)
    sizes = [append(log, b"first"), append(log, b"second", b"third"), append(log, b"fourth")]
    log.flush(lambda: None)
    log.close()
    return [0, sizes[0], sizes[0] + sizes[1]]


@pytest.mark.parametrize("kind", POSITIONS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_bit_in_what_was_synced_is_refused(kind: str, number: int) -> None:
    filesystem = new_disk()
    start = three_batches(filesystem)[number]
    filesystem.flip_bit(FIRST_LOG, start + POSITIONS[kind])
    content = filesystem.read_bytes(FIRST_LOG)

    for _ in range(2):
        with pytest.raises(KafkaStorageError) as caught:
            open_log(filesystem)

    said = str(caught.value)
    assert "\n" not in said
    assert f"{FIRST_LOG} at byte {start}, offset {[0, 1, 3][number]};" in said
    behind = (
        "2 intact batches, offsets 1 to 3",
        "1 intact batch, offsets 3 to 3",
        "nothing intact",
    )
    assert behind[number] in said
    assert "--set millstream.metadata.recovery=truncate" in said
    # Nothing was cut: whoever repairs the file has everything again.
    assert filesystem.read_bytes(FIRST_LOG) == content


def test_whoever_says_so_cuts_the_log_and_is_told_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    filesystem = new_disk()
    filesystem.flip_bit(FIRST_LOG, three_batches(filesystem)[1] + 70)

    log = open_log(filesystem, recovery="truncate")

    assert records(log) == [b"first"]
    assert "1 intact batch, offsets 3 to 3" in caplog.text
    assert "what came from offset 1 on is lost" in caplog.text
    append(log, b"new")
    log.flush(lambda: None)
    assert records(open_log(filesystem.after_kill())) == [b"first", b"new"]


def test_a_node_that_does_not_vote_cuts_and_will_fetch_again() -> None:
    filesystem = new_disk()
    filesystem.flip_bit(FIRST_LOG, three_batches(filesystem)[1] + 70)

    assert records(open_log(filesystem, is_voter=False)) == [b"first"]


def test_a_torn_tail_that_was_never_synced_is_cut() -> None:
    filesystem = new_disk()
    three_batches(filesystem)
    log = open_log(filesystem)
    append(log, b"torn")
    append(log, b"intact behind it")
    filesystem = filesystem.after_kill()
    filesystem.flip_bit(FIRST_LOG, filesystem.read_bytes(FIRST_LOG).index(b"torn"))

    assert records(open_log(filesystem)) == [b"first", b"second", b"third", b"fourth"]


def test_records_that_are_missing_at_the_end_are_missed() -> None:
    filesystem = new_disk()
    start = three_batches(filesystem)[2]
    filesystem.open(FIRST_LOG).truncate(start)

    with pytest.raises(KafkaStorageError, match=r"ends at offset 3; .* offset 3 had been on disk"):
        open_log(filesystem)
    assert records(open_log(filesystem, recovery="truncate")) == [b"first", b"second", b"third"]


def test_a_hole_between_segments_is_refused() -> None:
    filesystem = new_disk()
    log = open_log(filesystem)
    first_size = append(log, b"first")
    append(log, b"second")
    log._log.roll(0)
    append(log, b"third")
    log.flush(lambda: None)
    log.close()
    filesystem.open(FIRST_LOG).truncate(first_size)

    with pytest.raises(
        KafkaStorageError, match=r"00002\.log at byte 0, offset 1; behind it is 1 int"
    ):
        open_log(filesystem)


def test_without_a_note_whatever_is_intact_behind_the_damage_counts() -> None:
    """Such as in a directory that Apache Kafka wrote."""
    for number, is_refused in ((1, True), (2, False)):
        filesystem = new_disk()
        filesystem.flip_bit(FIRST_LOG, three_batches(filesystem)[number] + 70)
        filesystem.remove(SYNCED)

        if is_refused:
            with pytest.raises(KafkaStorageError, match="1 intact batch, offsets 3 to 3"):
                open_log(filesystem)
        else:
            assert records(open_log(filesystem)) == [b"first", b"second", b"third"]


def test_what_a_snapshot_has_is_not_missed() -> None:
    filesystem = new_disk()
    log = open_log(filesystem)
    append(log, b"first")
    log.flush(lambda: None)
    snapshot_id = OffsetAndEpoch(1, 5)
    log.note_snapshot(snapshot_id, log.snapshot_job(snapshot_id, [b"all"])())
    log.close()
    filesystem.flip_bit(FIRST_LOG, 70)

    assert open_log(filesystem).start_offset == 5


def test_a_truncation_lowers_the_note_first() -> None:
    filesystem = new_disk()
    three_batches(filesystem)
    log = open_log(filesystem)

    log.truncate_to(3)

    assert SyncedOffset(filesystem.after_power_loss(), DIRECTORY).read() == 3


def test_a_torn_slot_leaves_the_other() -> None:
    filesystem = new_disk()
    note = SyncedOffset(filesystem, "/data")
    assert note.read() is None
    for offset in (7, 8):
        note.write(offset, is_durable=True)
    path = f"/data/{SYNCED_OFFSET_FILE}"
    assert SyncedOffset(filesystem, "/data").read() == 8

    filesystem.flip_bit(path, 8)
    assert SyncedOffset(filesystem, "/data").read() == 7

    filesystem.flip_bit(path, 28)
    assert SyncedOffset(filesystem, "/data").read() is None


class Lives:
    """A log that is written by processes which end at any call to the disk."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.filesystem = new_disk(seed)
        self.safe: list[bytes] = []
        """What was acknowledged: no loss of power may take it."""
        self.written: list[bytes] = []

    def live(self) -> None:
        calls_left = self.random.randrange(5, 120)

        def count(*_: object) -> None:
            nonlocal calls_left
            calls_left -= 1
            if calls_left < 0:
                raise Crash

        self.filesystem.before_operation = count
        with suppress(Crash):
            self._work(open_log(self.filesystem))
        self.filesystem.before_operation = None
        is_power_loss = self.random.random() < 0.8
        before = self.filesystem
        self.filesystem = before.after_power_loss() if is_power_loss else before.after_kill()

    def _work(self, log: MetadataLog) -> None:
        self.written = records(log)
        assert self.written[: len(self.safe)] == self.safe
        self.safe = list(self.written)
        for number in range(self.random.randrange(40)):
            chance = self.random.random()
            if chance < 0.6:
                value = b"%d " % number * self.random.choice([1, 10, 400])
                self.written.append(value)
                append(log, value)
            elif chance < 0.9:
                log.flush(self._flushed)
            elif self.written:
                # Raft cuts off what was not committed, synced or not.
                offset = self.random.randrange(max(log.end_offset - 3, 0), log.end_offset)
                del self.written[offset:]
                del self.safe[offset:]
                log.truncate_to(offset)
        if self.random.random() < 0.3:
            log.close()
            self.safe = list(self.written)

    def _flushed(self) -> None:
        self.safe = list(self.written)


@pytest.mark.parametrize("seed", range(60))
def test_no_power_loss_makes_a_node_refuse_or_forget(seed: int) -> None:
    lives = Lives(seed)
    for _ in range(8):
        lives.live()

    log = open_log(lives.filesystem)

    assert records(log)[: len(lives.safe)] == lives.safe
