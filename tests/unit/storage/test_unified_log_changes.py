"""What a log loses and keeps: truncation, flushes, full disks, a clean end."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.config import replace
from millstream.errors import InvalidArgument, KafkaStorageError, OffsetOutOfRange
from millstream.storage.faults import is_disk_full
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch
from tests.unit.storage.logs import SMALL, append, fill, offsets, open_log

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog

LOG_DIRECTORY = "/data/log"


@pytest.fixture
def log(filesystem: FileSystem, directory: str) -> UnifiedLog:
    return open_log(filesystem, directory)


@pytest.fixture
def disk() -> SimFileSystem:
    """A simulated disk whose faults a test chooses."""
    filesystem = SimFileSystem(Random(1))
    filesystem.make_directory(LOG_DIRECTORY)
    return filesystem


class TestBounds:
    def test_the_high_watermark_stays_within_the_log(self, log: UnifiedLog) -> None:
        fill(log, 3)

        assert log.update_high_watermark(100) == 6
        assert log.update_high_watermark(2) == 2

    def test_raising_it_never_lowers_it(self, log: UnifiedLog) -> None:
        fill(log, 3)

        assert log.raise_high_watermark(4)
        assert not log.raise_high_watermark(3)
        assert not log.raise_high_watermark(4)
        assert log.high_watermark == 4

    def test_the_log_start_goes_up_to_the_high_watermark_only(self, log: UnifiedLog) -> None:
        fill(log, 3)
        log.update_high_watermark(4)

        with pytest.raises(OffsetOutOfRange, match="the high watermark is 4"):
            log.raise_log_start_offset(5)
        assert log.raise_log_start_offset(3)
        assert not log.raise_log_start_offset(2)
        assert offsets(log) == [3, 4, 5]

    def test_epochs_follow_the_log_start(self, log: UnifiedLog) -> None:
        append(log, term=1)
        append(log, records=3, term=2)
        log.update_high_watermark(4)

        log.raise_log_start_offset(2)

        assert log.epochs.entries == ((2, 2),)


class TestTruncation:
    def test_everything_from_the_offset_on_goes(self, log: UnifiedLog) -> None:
        fill(log, 30)
        log.update_high_watermark(50)

        assert log.truncate_to(20, NOW_MS)

        assert (log.log_end_offset, log.high_watermark) == (20, 20)
        assert offsets(log) == list(range(20))
        assert append(log).first_offset == 20

    def test_a_log_that_ends_before_is_left_alone(self, log: UnifiedLog) -> None:
        fill(log, 3)

        assert not log.truncate_to(6, NOW_MS)
        assert log.truncation_count == 0

    def test_a_negative_offset_is_refused(self, log: UnifiedLog) -> None:
        with pytest.raises(InvalidArgument, match="-1"):
            log.truncate_to(-1, NOW_MS)

    def test_epochs_and_producers_are_those_of_what_is_left(self, log: UnifiedLog) -> None:
        append(log, term=1, pid=1, epoch=0, sequence=0)
        append(log, term=2, pid=1, epoch=0, sequence=1)
        append(log, term=3, pid=2, epoch=0, sequence=0)

        log.truncate_to(1, NOW_MS)

        assert log.epochs.entries == ((1, 0),)
        assert log.producers.producers.keys() == {1}
        assert not append(log, term=4, pid=1, epoch=0, sequence=1).is_duplicate

    def test_a_transaction_whose_marker_is_cut_is_open_again(self, log: UnifiedLog) -> None:
        data = batch_bytes(0, pid=1, epoch=0, sequence=0, is_transactional=True)
        data += bytes(marker_batch(1, is_abort=True).view)
        log.append_as_follower(data, 0, NOW_MS)

        log.truncate_to(1, NOW_MS)

        assert log.producers.has_open_transaction(1, 0)
        assert log.aborted_transactions(0, 10) == []

    def test_decisions_that_are_not_committed_still_hold_readers_back(
        self, log: UnifiedLog
    ) -> None:
        data = batch_bytes(0, pid=1, epoch=0, sequence=0, is_transactional=True)
        log.append_as_follower(data + bytes(marker_batch(1).view), 0, NOW_MS)
        log.roll(NOW_MS)
        log.append_as_follower(batch_bytes(2) + batch_bytes(3), 0, NOW_MS)
        log.update_high_watermark(1)

        log.truncate_to(3, NOW_MS)

        assert log.last_stable_offset == 0

    def test_below_the_log_start_it_begins_anew(self, log: UnifiedLog) -> None:
        fill(log, 10)
        log.update_high_watermark(20)
        log.raise_log_start_offset(10)

        assert log.truncate_to(5, NOW_MS)

        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)

    def test_it_can_begin_anew_anywhere(self, log: UnifiedLog) -> None:
        append(log, term=1, pid=1, epoch=0, sequence=0)

        log.truncate_fully_and_start_at(100, NOW_MS)

        assert (log.log_start_offset, log.log_end_offset) == (100, 100)
        assert log.epochs.entries == ()
        assert not log.producers.producers
        assert append(log).first_offset == 100

    def test_a_lowered_recovery_point_stays_low_until_the_next_flush(self, log: UnifiedLog) -> None:
        fill(log, 5)
        log.flush()
        log.truncate_to(4, NOW_MS)
        fill(log, 5)

        assert log.recovery_point == 4

    def test_a_flush_that_began_before_does_not_vouch_for_what_came_after(
        self, log: UnifiedLog
    ) -> None:
        fill(log, 5)
        job = log.begin_flush()
        log.truncate_to(4, NOW_MS)
        fill(log, 3)

        job.sync()
        log.finish_flush(job)

        assert log.recovery_point == 0


class TestFlushing:
    def test_a_flush_moves_the_recovery_point(self, log: UnifiedLog) -> None:
        fill(log, 20)
        assert log.recovery_point == 0

        log.flush()

        assert log.recovery_point == 40

    def test_bytes_appended_meanwhile_are_not_claimed(self, log: UnifiedLog) -> None:
        fill(log, 2)
        job = log.begin_flush()
        fill(log, 2)

        job.sync()
        log.finish_flush(job)

        assert log.recovery_point == 4

    def test_flush_messages(self, filesystem: FileSystem, directory: str) -> None:
        log = open_log(filesystem, directory, replace(SMALL, {"flush.messages": "3"}))

        assert [append(log).wants_flush for _ in range(4)] == [False, False, True, True]
        log.flush()
        assert not append(log).wants_flush

    def test_flush_ms(self, filesystem: FileSystem, directory: str) -> None:
        log = open_log(filesystem, directory, replace(SMALL, {"flush.ms": "100"}))
        append(log, now_ms=NOW_MS)

        assert not log.wants_flush(NOW_MS + 99)
        assert log.wants_flush(NOW_MS + 100)
        log.flush()
        assert not log.wants_flush(NOW_MS + 1000)

    def test_a_segment_that_vanishes_while_it_is_synced_is_no_fault(self, log: UnifiedLog) -> None:
        fill(log, 30)
        log.update_high_watermark(60)
        log.raise_log_start_offset(60)
        job = log.begin_flush()
        for segment in log.delete_old_segments(NOW_MS):
            segment.delete_files()

        job.sync()
        log.finish_flush(job)

        assert log.recovery_point == 60


class TestFaults:
    def fill_up(self, disk: SimFileSystem, free: int) -> None:
        disk.capacity_bytes = 1 << 40
        disk.capacity_bytes -= disk.free_bytes - free

    @pytest.mark.parametrize("free", [0, 1, 61, 100])
    def test_a_full_disk_is_an_error_and_nothing_else(self, disk: SimFileSystem, free: int) -> None:
        log = open_log(disk, LOG_DIRECTORY)
        fill(log, 3)
        self.fill_up(disk, free)

        with pytest.raises(KafkaStorageError, match="the disk is full while appending") as info:
            append(log, value_bytes=200)

        assert is_disk_full(info.value)
        assert log.log_end_offset == 6
        disk.capacity_bytes = None
        assert append(log).first_offset == 6
        assert offsets(log) == list(range(7))

    def test_a_full_disk_at_an_abort_leaves_the_transaction_open(self, disk: SimFileSystem) -> None:
        log = open_log(disk, LOG_DIRECTORY)
        append(log, pid=1, epoch=0, sequence=0, is_transactional=True)
        marker = bytes(marker_batch(1, is_abort=True).view)

        for free in (10, 40):  # neither the index nor the marker fits; then only the index
            self.fill_up(disk, free)
            with pytest.raises(KafkaStorageError):
                log.append_as_follower(marker, 0, NOW_MS)
            assert log.producers.has_open_transaction(1, 0)
            assert log.aborted_transactions(0, 10) == []
        disk.capacity_bytes = None
        log.append_as_follower(marker, 0, NOW_MS)

        assert len(log.aborted_transactions(0, 10)) == 1
        log.close()
        again = open_log(disk, LOG_DIRECTORY, is_clean=True)
        assert len(again.aborted_transactions(0, 10)) == 1

    def test_an_epoch_that_could_not_be_written_is_written_later(self, disk: SimFileSystem) -> None:
        log = open_log(disk, LOG_DIRECTORY)
        append(log, term=1)
        self.fill_up(disk, 0)
        with pytest.raises(KafkaStorageError):
            append(log, term=2)
        disk.capacity_bytes = None

        append(log, term=2)

        again = open_log(disk.after_kill(), LOG_DIRECTORY, recovery_point=2)
        assert again.epochs.entries == ((1, 0), (2, 1))

    def test_epochs_of_records_that_did_not_arrive_are_not_kept(self, disk: SimFileSystem) -> None:
        log = open_log(disk, LOG_DIRECTORY)
        append(log, term=1)
        self.fill_up(disk, 70)

        with pytest.raises(KafkaStorageError):
            log.append_as_follower(batch_bytes(1, value_bytes=500, leader_epoch=7), 7, NOW_MS)

        assert log.end_offset_for_epoch(1) == (1, 1)

    def test_a_new_segment_without_room_leaves_no_file(self, disk: SimFileSystem) -> None:
        config = replace(SMALL, {"preallocate": "true"})
        log = open_log(disk, LOG_DIRECTORY, config)
        append(log, value_bytes=500)
        self.fill_up(disk, 300)

        with pytest.raises(KafkaStorageError):
            append(log, value_bytes=500)

        assert not disk.exists(f"{LOG_DIRECTORY}/{1:020d}.log")

    def test_a_broken_disk_is_not_called_full(self, disk: SimFileSystem) -> None:
        log = open_log(disk, LOG_DIRECTORY)
        append(log)
        disk.fail_directory(LOG_DIRECTORY)

        with pytest.raises(KafkaStorageError, match="appending failed") as info:
            append(log)

        assert not is_disk_full(info.value)
        assert isinstance(info.value.__cause__, OSError)
        assert info.value.__cause__.errno == errno.EIO


class TestTheEnd:
    def test_a_closed_log_needs_no_recovery(self, filesystem: FileSystem, directory: str) -> None:
        log = open_log(filesystem, directory)
        append(log, pid=1, epoch=0, sequence=0)
        fill(log, 20)
        log.close()

        again = open_log(filesystem, directory, is_clean=True)

        assert (log.recovery_point, again.log_end_offset) == (41, 41)
        assert offsets(again) == list(range(41))
        assert append(again, pid=1, epoch=0, sequence=0).is_duplicate

    def test_what_was_closed_survives_a_power_loss(self) -> None:
        disk = SimFileSystem(Random(3))
        disk.make_directory(LOG_DIRECTORY)
        disk.sync_directory("/data")
        disk.sync_directory("/")
        log = open_log(disk, LOG_DIRECTORY)
        fill(log, 30)
        log.close()

        again = open_log(disk.after_power_loss(), LOG_DIRECTORY, is_clean=True)

        assert offsets(again) == list(range(60))

    def test_a_renamed_log_goes_on(self, filesystem: FileSystem, directory: str) -> None:
        log = open_log(filesystem, f"{directory}/t-0")
        fill(log, 20)
        log.move_to(f"{directory}/t-0.gone-delete")

        fill(log, 20)
        append(log, term=3)

        assert log.directory.endswith("t-0.gone-delete")
        assert offsets(log) == list(range(81))
        assert not filesystem.exists(f"{directory}/t-0")

    def test_an_idle_log_gives_its_files_back_and_goes_on(self, log: UnifiedLog) -> None:
        fill(log, 20)

        log.release()

        assert offsets(log) == list(range(40))
        assert append(log).first_offset == 40

    def test_an_abandoned_log_touches_the_disk_no_more(self, log: UnifiedLog) -> None:
        log.abandon()

        assert log.is_closed
        with pytest.raises(KafkaStorageError):
            log.begin_flush()
