"""Loading a log: what each kind of damage ends in, and that doing it again changes nothing."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream.config import replace
from millstream.errors import KafkaStorageError
from millstream.storage.log.producer_snapshot import snapshot_name
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch
from tests.unit.storage.logs import SMALL, append, fill, offsets, open_log

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog


def name(base_offset: int, extension: str = ".log") -> str:
    return f"{base_offset:020d}{extension}"


@pytest.fixture
def bases(filesystem: FileSystem, directory: str) -> tuple[int, ...]:
    """A log of sixty records in several segments, closed; where the segments begin."""
    log = open_log(filesystem, directory)
    fill(log, 30)
    log.close()
    assert len(log.segments) > 3
    return log.segments.base_offsets


def write(filesystem: FileSystem, path: str, data: bytes, position: int | None = None) -> None:
    file = filesystem.open(path, create=True)
    file.pwrite(data, file.size() if position is None else position)


def spoil(filesystem: FileSystem, path: str, position: int) -> None:
    """Change a byte that the checksum of its batch covers."""
    (byte,) = filesystem.open(path).pread(1, position)
    write(filesystem, path, bytes([byte ^ 0xFF]), position)


def reopened_twice(filesystem: FileSystem, directory: str, **request: Any) -> UnifiedLog:
    """Recover, and recover again: the second time must find nothing to do."""
    first = open_log(filesystem, directory, **request)
    found = (offsets(first), first.epochs.entries, first.segments.base_offsets)
    first.release()
    second = open_log(filesystem, directory, **request)
    assert (offsets(second), second.epochs.entries, second.segments.base_offsets) == found
    return second


def test_a_new_directory_is_an_empty_log(filesystem: FileSystem, directory: str) -> None:
    log = open_log(filesystem, f"{directory}/t-0", log_start_offset=7)

    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (7, 7, 7)
    assert filesystem.exists(f"{directory}/t-0/{name(7)}")


@pytest.mark.usefixtures("bases")
def test_after_a_crash_everything_is_verified_and_certain(
    filesystem: FileSystem, directory: str
) -> None:
    log = reopened_twice(filesystem, directory)

    assert offsets(log) == list(range(60))
    assert log.recovery_point == 60


def test_a_torn_tail_is_cut(filesystem: FileSystem, directory: str, bases: tuple[int, ...]) -> None:
    torn = batch_bytes(60, records=2)
    write(filesystem, f"{directory}/{name(bases[-1])}", torn[:-5])

    log = reopened_twice(filesystem, directory)

    assert offsets(log) == list(range(60))
    assert append(log).first_offset == 60


def test_a_bad_batch_in_the_middle_ends_the_log_before_it(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    spoil(filesystem, f"{directory}/{name(bases[1])}", position=100)

    log = reopened_twice(filesystem, directory)

    assert log.log_end_offset == bases[1]
    assert offsets(log) == list(range(bases[1]))
    assert log.segments.base_offsets == bases[:2]
    assert not filesystem.exists(f"{directory}/{name(bases[2])}")


def test_nothing_below_the_recovery_point_is_read_again(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    spoil(filesystem, f"{directory}/{name(bases[0])}", position=100)

    log = open_log(filesystem, directory, recovery_point=bases[2])

    assert log.log_end_offset == 60


def test_a_segment_that_lost_its_end_ends_the_log(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    """A power loss may cut a segment exactly between two batches."""
    path = f"{directory}/{name(bases[1])}"
    filesystem.open(path).truncate(filesystem.open(path).size() // 2 // 114 * 114)

    log = reopened_twice(filesystem, directory)

    assert offsets(log) == list(range(log.log_end_offset))
    assert log.log_end_offset < bases[2]


def test_a_segment_that_is_missing_ends_the_log(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    filesystem.remove(f"{directory}/{name(bases[2])}")

    log = reopened_twice(filesystem, directory)

    assert log.log_end_offset == bases[2]


def test_a_hole_in_a_compacted_log_is_the_cleaners(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    filesystem.remove(f"{directory}/{name(bases[2])}")
    compacted = replace(SMALL, {"cleanup.policy": "compact"})

    log = open_log(filesystem, directory, compacted)

    assert log.log_end_offset == 60
    assert offsets(log) == [*range(bases[2]), *range(bases[3], 60)]


def test_the_cleaners_holes_outlive_a_change_of_the_policy(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    filesystem.remove(f"{directory}/{name(bases[2])}")

    log = open_log(filesystem, directory, cleaned_to=bases[3])

    assert offsets(log) == [*range(bases[2]), *range(bases[3], 60)]


def test_a_hole_above_what_was_cleaned_ends_the_log(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    filesystem.remove(f"{directory}/{name(bases[2])}")

    log = open_log(filesystem, directory, cleaned_to=bases[2])

    assert log.log_end_offset == bases[2]


def test_zeros_that_waited_for_records_are_no_loss(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    write(filesystem, f"{directory}/{name(bases[1])}", bytes(500))

    assert offsets(reopened_twice(filesystem, directory)) == list(range(60))


def test_a_duplicate_segment_goes(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    copy = filesystem.read_bytes(f"{directory}/{name(bases[1])}")
    write(filesystem, f"{directory}/{name(bases[1] + 2)}", copy)

    log = reopened_twice(filesystem, directory)

    assert log.segments.base_offsets == bases
    assert offsets(log) == list(range(60))


@pytest.mark.parametrize("extension", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "foreign", "torn"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_an_index_is_never_trusted_blindly(
    filesystem: FileSystem,
    directory: str,
    bases: tuple[int, ...],
    extension: str,
    damage: str,
    is_clean: bool,
) -> None:
    for base in bases:
        path = f"{directory}/{name(base, extension)}"
        size = filesystem.open(path).size()
        match damage:
            case "missing":
                filesystem.remove(path)
            case "short":
                filesystem.open(path).truncate(0)
            case "foreign":
                write(filesystem, path, Random(base).randbytes(size), position=0)
            case "torn":
                filesystem.open(path).truncate(max(size - 3, 0))

    log = open_log(filesystem, directory, is_clean=is_clean, recovery_point=60)

    assert offsets(log) == list(range(60))
    assert [log.read(offset, 1).start.offset for offset in (0, 31, 59)] == [0, 31, 59]


def test_an_index_without_its_log_goes(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    for extension in (".index", ".timeindex", ".txnindex"):
        write(filesystem, f"{directory}/{name(77, extension)}", bytes(24))

    log = open_log(filesystem, directory, is_clean=True)

    assert log.segments.base_offsets == bases
    assert not [each for each in filesystem.scan(directory) if each.name.startswith(f"{77:020d}")]


@pytest.mark.usefixtures("bases")
def test_a_clean_stop_that_was_not_clean_is_noticed(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    write(filesystem, f"{directory}/{name(bases[-1])}", b"not a batch")

    log = open_log(filesystem, directory, is_clean=True, recovery_point=60)

    assert offsets(log) == list(range(60))
    assert append(log).first_offset == 60


def test_a_log_that_ends_before_its_start_begins_anew(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    log = reopened_twice(filesystem, directory, log_start_offset=100)

    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert log.segments.base_offsets == (100,)
    assert not filesystem.exists(f"{directory}/{name(bases[0])}")


def test_the_log_start_is_not_before_the_first_segment(
    filesystem: FileSystem, directory: str, bases: tuple[int, ...]
) -> None:
    filesystem.remove(f"{directory}/{name(bases[0])}")

    log = open_log(filesystem, directory, log_start_offset=1, is_clean=True)

    assert log.log_start_offset == bases[1]


class TestProducersAndEpochs:
    def test_producers_are_rebuilt_from_the_log(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = open_log(filesystem, directory)
        for sequence in range(20):
            append(log, pid=1, epoch=0, sequence=sequence, value_bytes=100)
        log.release()

        again = reopened_twice(filesystem, directory)

        assert append(again, pid=1, epoch=0, sequence=19).is_duplicate
        assert append(again, pid=1, epoch=0, sequence=20).first_offset == 20

    @pytest.mark.parametrize("damage", [b"", b"garbage", None])
    def test_damaged_snapshots_are_replaced_by_older_ones_or_the_log(
        self, filesystem: FileSystem, directory: str, damage: bytes | None
    ) -> None:
        log = open_log(filesystem, directory)
        for sequence in range(20):
            append(log, pid=1, epoch=0, sequence=sequence, value_bytes=100)
        log.close()
        for offset in log.producers.snapshots.offsets:
            path = f"{directory}/{snapshot_name(offset)}"
            filesystem.remove(path)
            if damage is not None:
                write(filesystem, path, damage)

        again = open_log(filesystem, directory, is_clean=True)

        assert again.producers.producers[1].last_sequence == 19

    def test_snapshots_beyond_the_log_go(self, filesystem: FileSystem, directory: str) -> None:
        log = open_log(filesystem, directory)
        append(log, pid=1, epoch=0, sequence=0)
        log.close()
        good = filesystem.read_bytes(f"{directory}/{snapshot_name(1)}")
        write(filesystem, f"{directory}/{snapshot_name(50)}", good)

        again = open_log(filesystem, directory)

        assert 50 not in again.producers.snapshots.offsets
        assert not filesystem.exists(f"{directory}/{snapshot_name(50)}")

    def test_aborted_transactions_are_found_again(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = open_log(filesystem, directory)
        data = batch_bytes(0, pid=1, epoch=0, sequence=0, is_transactional=True)
        log.append_as_follower(data + bytes(marker_batch(1, is_abort=True).view), 0, NOW_MS)
        log.release()
        filesystem.remove(f"{directory}/{name(0, '.txnindex')}")

        again = reopened_twice(filesystem, directory)

        assert [each.first_offset for each in again.aborted_transactions(0, 5)] == [0]
        assert again.last_stable_offset == again.high_watermark

    def test_epochs_beyond_the_log_are_forgotten(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = open_log(filesystem, directory)
        append(log, term=1)
        log.begin_epoch(9)
        log.release()

        assert reopened_twice(filesystem, directory).epochs.entries == ((1, 0),)

    def test_lost_epochs_are_rebuilt_from_the_records(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = open_log(filesystem, directory)
        append(log, term=1)
        append(log, term=3)
        log.release()
        filesystem.remove(f"{directory}/leader-epoch-checkpoint")

        assert open_log(filesystem, directory).epochs.entries == ((1, 0), (3, 1))


def test_progress_is_shown(filesystem: FileSystem, directory: str, bases: tuple[int, ...]) -> None:
    shown: list[tuple[int, int]] = []

    open_log(filesystem, directory, progress=lambda done, total: shown.append((done, total)))

    count = len(bases)
    assert shown == [(number, count) for number in range(1, count + 1)]


def test_a_disk_that_fails_is_a_storage_error_with_the_path() -> None:
    disk = SimFileSystem(Random(1))
    disk.make_directory("/data/t-0")
    disk.fail_directory("/data/t-0")

    with pytest.raises(KafkaStorageError, match="/data/t-0: loading the log failed"):
        open_log(disk, "/data/t-0")


def test_records_cut_off_before_a_kill_do_not_come_back_after_a_power_loss() -> None:
    """A process died while it truncated; what it cut must not follow what was written since."""
    for seed in range(30):
        disk = SimFileSystem(Random(seed))
        disk.make_directory("/data/t-0")
        disk.sync_directory("/data")
        disk.sync_directory("/")
        log = open_log(disk, "/data/t-0")
        fill(log, 3)
        log.flush()
        log.segments.active.truncate_to(2, NOW_MS)  # and the process dies before the sync
        disk = disk.after_kill()
        log = open_log(disk, "/data/t-0")
        append(log, records=2, value_bytes=20, timestamps=[5, 5])

        again = open_log(disk.after_power_loss(), "/data/t-0", recovery_point=2)

        assert again.log_end_offset in (2, 4)
