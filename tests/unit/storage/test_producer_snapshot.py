"""Producer snapshots: Kafka's bytes, what survives a restart, and damaged files."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.records.kernel import crc32c
from millstream.storage.log.producer_snapshot import (
    EarlierBatch,
    SnapshotEntry,
    SnapshotFiles,
    parse_snapshot,
    render_snapshot,
    snapshot_offset,
)
from millstream.storage.log.producer_state import ProducerStateManager
from tests.unit.storage.batches import NOW_MS, marker_batch, producer_batch

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

DAY_MS = 86_400_000
ENTRY = SnapshotEntry(1, 2, 30, 400, 5, NOW_MS, 6, 395)


def manager_of(
    filesystem: FileSystem, directory: str, snapshots: tuple[int, ...] = ()
) -> ProducerStateManager:
    return ProducerStateManager(
        filesystem,
        directory,
        expiration_ms=DAY_MS,
        verifies_transactions=False,
        snapshot_offsets=snapshots,
    )


def names(filesystem: FileSystem, directory: str) -> set[str]:
    return {status.name for status in filesystem.scan(directory)}


def test_a_snapshot_has_kafkas_bytes() -> None:
    body = pack(">i", 1) + pack(">qhiqiqiq", 1, 2, 30, 400, 5, NOW_MS, 6, 395)

    data = render_snapshot([ENTRY])

    assert data == pack(">hI", 1, crc32c(body)) + body
    assert len(data) == 6 + 4 + 46
    assert parse_snapshot(data, "f") == [ENTRY]
    assert parse_snapshot(render_snapshot([]), "f") == []


def test_batches_before_the_last_are_behind_what_kafka_reads() -> None:
    earlier = (EarlierBatch(10, 380, 1, NOW_MS), EarlierBatch(24, 394, 13, NOW_MS + 1))
    entries = [ENTRY._replace(earlier=earlier), ENTRY._replace(producer_id=2)]

    data = render_snapshot(entries)

    assert data[10 : 10 + 2 * 46] == b"".join(pack(">qhiqiqiq", *each[:-1]) for each in entries)
    assert len(data) == 10 + 2 * 46 + 2 * 32
    assert parse_snapshot(data, "f") == entries


def test_every_flipped_bit_is_noticed() -> None:
    data = render_snapshot([ENTRY._replace(earlier=(EarlierBatch(10, 380, 1, NOW_MS),))])

    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(KafkaStorageError, match="f"):
                parse_snapshot(bytes(damaged), "f")


@pytest.mark.parametrize("length", [0, 1, 9, 10, 55])
def test_a_torn_snapshot_is_noticed(length: int) -> None:
    with pytest.raises(KafkaStorageError, match="corrupt"):
        parse_snapshot(render_snapshot([ENTRY])[:length], "f")


def test_a_count_that_does_not_fill_the_file_is_noticed() -> None:
    body = pack(">i", 2) + pack(">qhiqiqiq", *ENTRY[:-1])

    with pytest.raises(KafkaStorageError, match="2 entries do not fill"):
        parse_snapshot(pack(">hI", 1, crc32c(body)) + body, "f")


def test_only_snapshot_names_have_an_offset() -> None:
    assert snapshot_offset("00000000000000000042.snapshot") == 42
    assert snapshot_offset("00000000000000000042.log") is None
    assert snapshot_offset("42.snapshot") is None
    assert snapshot_offset("0000000000000000004x.snapshot") is None


def test_the_state_survives_a_restart_with_the_last_batches(
    filesystem: FileSystem, directory: str
) -> None:
    manager = manager_of(filesystem, directory)
    first, second = producer_batch(0, sequence=0, records=2), producer_batch(2, sequence=2)
    manager.record(first)
    manager.record(second)
    manager.record(producer_batch(3, pid=9, is_transactional=True))
    manager.record(producer_batch(4, pid=8, is_transactional=True))
    manager.record(marker_batch(5, pid=7, epoch=3, coordinator_epoch=11))

    assert manager.take_snapshot() == 6
    restarted = manager_of(filesystem, directory, (6,))
    restarted.reload(0, 6, NOW_MS)

    assert restarted.end_offset == 6
    assert restarted.find_duplicate(first) == manager.find_duplicate(first)
    assert restarted.find_duplicate(second) == (2, 2, 0, NOW_MS)
    assert restarted.first_unstable_offset() == 3
    assert restarted.has_open_transaction(8, 0)
    assert restarted.producers[7].coordinator_epoch == 11
    assert restarted.producers[7].last_sequence == -1


def test_nothing_new_needs_no_snapshot(filesystem: FileSystem, directory: str) -> None:
    manager = manager_of(filesystem, directory)

    assert manager.take_snapshot() is None
    manager.advance_to(3)
    assert manager.take_snapshot(sync=False) == 3
    manager.snapshots.sync(3)
    manager.snapshots.sync(99)
    assert manager.take_snapshot() is None
    assert names(filesystem, directory) == {"00000000000000000003.snapshot"}


def test_a_damaged_snapshot_is_dropped_for_an_older_one(
    filesystem: FileSystem, directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager = manager_of(filesystem, directory)
    manager.record(producer_batch(0, pid=1))
    manager.take_snapshot()
    manager.record(producer_batch(1, pid=2))
    manager.take_snapshot()
    file = filesystem.open(f"{directory}/00000000000000000002.snapshot")
    file.pwrite(b"\xff", 20)

    restarted = manager_of(filesystem, directory, (1, 2))
    restarted.reload(0, 2, NOW_MS)

    assert restarted.end_offset == 1
    assert set(restarted.producers) == {1}
    assert names(filesystem, directory) == {"00000000000000000001.snapshot"}
    assert "00000000000000000002.snapshot is corrupt" in caplog.text


def test_without_a_snapshot_the_state_begins_at_the_log_start(
    filesystem: FileSystem, directory: str
) -> None:
    manager = manager_of(filesystem, directory)

    manager.reload(40, 50, NOW_MS)

    assert manager.end_offset == 40


def test_snapshots_outside_of_the_log_are_removed(filesystem: FileSystem, directory: str) -> None:
    manager = manager_of(filesystem, directory)
    for offset in (2, 5, 8):
        manager.advance_to(offset)
        manager.take_snapshot()

    manager.reload(2, 7, NOW_MS)

    assert manager.snapshots.offsets == (5,)
    assert manager.end_offset == 5


def test_truncation_goes_back_to_a_snapshot_and_forgets_what_came_later(
    filesystem: FileSystem, directory: str
) -> None:
    manager = manager_of(filesystem, directory)
    manager.record(producer_batch(0, pid=1))
    manager.take_snapshot()
    manager.record(producer_batch(1, pid=2, is_transactional=True))

    manager.reload(0, 1, NOW_MS)

    assert set(manager.producers) == {1}
    assert manager.first_unstable_offset() is None


def test_state_that_ends_with_the_log_is_kept(filesystem: FileSystem, directory: str) -> None:
    manager = manager_of(filesystem, directory)
    manager.record(producer_batch(0, pid=1))

    manager.reload(0, 1, NOW_MS)

    assert set(manager.producers) == {1}


def test_expired_producers_are_not_restored(filesystem: FileSystem, directory: str) -> None:
    manager = manager_of(filesystem, directory)
    manager.record(producer_batch(0, pid=1))
    manager.take_snapshot()

    restarted = manager_of(filesystem, directory, (1,))
    restarted.reload(0, 1, NOW_MS + DAY_MS)

    assert not restarted.producers


def test_producers_outlive_their_records(filesystem: FileSystem, directory: str) -> None:
    manager = manager_of(filesystem, directory)
    manager.record(producer_batch(0, pid=1))

    manager.on_log_start(1)
    manager.on_log_start(20)

    assert set(manager.producers) == {1}
    assert manager.end_offset == 20
    manager.clear(30)
    assert not manager.producers
    assert manager.end_offset == 30


def test_stray_snapshots_go_but_not_the_newest(filesystem: FileSystem, directory: str) -> None:
    files = SnapshotFiles(filesystem, directory)
    for offset in (1, 5, 7, 10, 12):
        files.write(offset, [], sync=False)

    files.remove_strays([0, 5, 10])

    assert files.offsets == (5, 10, 12)
    assert files.newest_at_most(11) == 10
    assert files.newest_at_most(4) is None


def test_a_renamed_log_takes_its_snapshots_along(filesystem: FileSystem, directory: str) -> None:
    filesystem.make_directory(f"{directory}/a")
    files = SnapshotFiles(filesystem, f"{directory}/a")
    files.write(3, [ENTRY], sync=True)
    filesystem.rename(f"{directory}/a", f"{directory}/b")

    files.move_to(f"{directory}/b")

    assert files.read_newest() == (3, [ENTRY])
