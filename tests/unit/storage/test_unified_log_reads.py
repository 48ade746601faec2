"""Reads of a log: by offset, by isolation, by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument, KafkaStorageError, OffsetOutOfRange
from millstream.records import RecordBatch, split_batches
from millstream.storage.log.config import LogConfig
from millstream.storage.log.log_results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    FetchIsolation,
)
from tests.unit.storage.batches import NOW_MS
from tests.unit.storage.logs import append, fill, open_log

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog


@pytest.fixture
def log(filesystem: FileSystem, directory: str) -> UnifiedLog:
    return open_log(filesystem, directory)


class TestReading:
    @pytest.mark.parametrize("offset", [0, 1, 7, 20, 39])
    def test_a_read_begins_with_the_batch_that_has_the_offset(
        self, log: UnifiedLog, offset: int
    ) -> None:
        fill(log, 20)

        fetched = log.read(offset, 1)

        assert fetched.records is not None
        batch = RecordBatch(fetched.records.read())
        assert batch.base_offset <= offset <= batch.last_offset

    def test_the_first_batch_comes_whole_however_large(self, log: UnifiedLog) -> None:
        append(log, value_bytes=500)

        fetched = log.read(0, 10)

        assert fetched.size > 500
        assert not fetched.is_first_batch_incomplete

    def test_without_progress_asked_for_it_may_be_cut(self, log: UnifiedLog) -> None:
        append(log, value_bytes=500)

        fetched = log.read(0, 10, must_progress=False)

        assert (fetched.size, fetched.is_first_batch_incomplete) == (10, True)

    def test_who_waited_at_the_end_goes_on_there(self, log: UnifiedLog) -> None:
        fill(log, 3)
        end = log.log_end_offset
        assert log.read(end, 1000).records is None
        fill(log, 4)

        for bytes_max in (10_000, 1, 10_000):
            fetched = log.read(end, bytes_max)
            assert fetched.records is not None
            assert RecordBatch(fetched.records.read()).base_offset == end
        assert log.read(end, 1).size < log.read(end, 10_000).size

    def test_who_waited_at_the_end_goes_on_in_the_next_segment(self, log: UnifiedLog) -> None:
        fill(log, 3)
        end = log.log_end_offset
        assert log.read(end, 1000).start == log.end_metadata
        log.roll(NOW_MS)
        append(log)

        fetched = log.read(end, 1000)

        assert fetched.records is not None
        assert fetched.start == (end, end, 0)

    def test_a_place_is_forgotten_when_the_log_is_cut_there(self, log: UnifiedLog) -> None:
        append(log, value_bytes=10)
        append(log, value_bytes=300)
        append(log)
        assert log.read(2, 1000).records is not None
        log.truncate_to(1, NOW_MS)
        append(log, value_bytes=7)
        append(log)

        fetched = log.read(2, 1000)

        assert fetched.records is not None
        assert RecordBatch(fetched.records.read()).base_offset == 2

    def test_a_few_places_are_remembered_and_all_are_found(self, log: UnifiedLog) -> None:
        fill(log, 60)

        for offset in [*range(100), *range(100)]:
            fetched = log.read(offset, 1)
            assert fetched.records is not None
            batch = RecordBatch(fetched.records.read())
            assert batch.base_offset <= offset <= batch.last_offset

    def test_consumers_read_up_to_the_high_watermark(self, log: UnifiedLog) -> None:
        fill(log, 10)
        log.update_high_watermark(6)

        fetched = log.read(0, 10_000, FetchIsolation.HIGH_WATERMARK)

        assert fetched.records is not None
        last = list(split_batches(fetched.records.read()))[-1]
        assert last.last_offset == 5

    @pytest.mark.parametrize("offset", [6, 8, 20])
    def test_what_is_not_committed_reads_as_nothing_for_consumers(
        self, log: UnifiedLog, offset: int
    ) -> None:
        fill(log, 10)
        log.update_high_watermark(6)

        fetched = log.read(offset, 10_000, FetchIsolation.HIGH_WATERMARK)

        assert fetched.records is None
        assert fetched.start.offset == offset

    @pytest.mark.parametrize("offset", [-1, 3, 21])
    def test_an_offset_outside_the_log_is_an_error(self, log: UnifiedLog, offset: int) -> None:
        fill(log, 10)
        log.update_high_watermark(20)
        log.raise_log_start_offset(4)

        with pytest.raises(OffsetOutOfRange, match="which has 4 to 20"):
            log.read(offset, 100)

    def test_a_slice_outlives_the_deletion_of_its_segment(self, log: UnifiedLog) -> None:
        fill(log, 20)
        fetched = log.read(0, 100)
        log.update_high_watermark(log.log_end_offset)
        log.raise_log_start_offset(log.log_end_offset)
        for segment in log.delete_old_segments(NOW_MS):
            segment.delete_files()

        assert fetched.records is not None
        assert RecordBatch(fetched.records.read()).base_offset == 0

    def test_positions_tell_how_many_bytes_lie_between_offsets(self, log: UnifiedLog) -> None:
        append(log)
        second = append(log)

        assert log.locate(1).bytes_before(log.end_metadata) == second.byte_count

    def test_a_failed_disk_is_a_storage_error_with_the_path(self, log: UnifiedLog) -> None:
        append(log)
        log.release()
        for segment in log.segments:
            segment.delete_files()

        with pytest.raises(KafkaStorageError, match=r"reading failed .*\.log"):
            log.read(0, 100)


class TestLookupByTime:
    @pytest.fixture
    def timed(self, log: UnifiedLog) -> UnifiedLog:
        """Twenty batches of two records, a second apart; the ninth is the newest."""
        for number in range(20):
            time = NOW_MS + (900_000 if number == 9 else number * 1000)
            append(log, records=2, value_bytes=20, timestamps=[time, time + 1], term=number // 10)
        return log

    def test_the_first_record_that_is_not_older(self, timed: UnifiedLog) -> None:
        found = timed.offset_for_timestamp(NOW_MS + 3000)
        between = timed.offset_for_timestamp(NOW_MS + 3001)
        later = timed.offset_for_timestamp(NOW_MS + 3002)

        assert found == (NOW_MS + 3000, 6, 0)
        assert between == (NOW_MS + 3001, 7, 0)
        assert later == (NOW_MS + 4000, 8, 0)

    def test_none_is_late_enough(self, timed: UnifiedLog) -> None:
        assert timed.offset_for_timestamp(NOW_MS + 900_002) is None

    def test_records_before_the_log_start_are_not_found(self, timed: UnifiedLog) -> None:
        timed.update_high_watermark(40)
        timed.raise_log_start_offset(7)

        assert timed.offset_for_timestamp(0) == (NOW_MS + 3001, 7, 0)

    def test_records_a_reader_may_not_see_are_not_found(self, timed: UnifiedLog) -> None:
        timed.update_high_watermark(6)

        assert timed.offset_for_timestamp(NOW_MS + 3000, FetchIsolation.HIGH_WATERMARK) is None
        assert timed.offset_for_timestamp(NOW_MS + 2000, FetchIsolation.HIGH_WATERMARK) is not None

    def test_the_record_with_the_largest_timestamp(self, timed: UnifiedLog) -> None:
        assert timed.offset_for_timestamp(MAX_TIMESTAMP) == (NOW_MS + 900_001, 19, 0)

    def test_beginning_and_end(self, timed: UnifiedLog) -> None:
        timed.update_high_watermark(30)
        timed.raise_log_start_offset(25)

        assert timed.offset_for_timestamp(EARLIEST_TIMESTAMP) == (-1, 25, 1)
        assert timed.offset_for_timestamp(EARLIEST_LOCAL_TIMESTAMP) == (-1, 25, 1)
        assert timed.offset_for_timestamp(LATEST_TIMESTAMP) == (-1, 40, 1)
        latest = timed.offset_for_timestamp(LATEST_TIMESTAMP, FetchIsolation.HIGH_WATERMARK)
        assert latest == (-1, 30, 1)

    @pytest.mark.parametrize(
        "special", [LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP]
    )
    def test_nothing_is_tiered(self, timed: UnifiedLog, special: int) -> None:
        assert timed.offset_for_timestamp(special) == (-1, -1, -1)

    def test_an_unknown_special_value_is_refused(self, timed: UnifiedLog) -> None:
        with pytest.raises(InvalidArgument, match="-7"):
            timed.offset_for_timestamp(-7)

    def test_an_empty_log_has_no_largest_timestamp(self, log: UnifiedLog) -> None:
        assert log.offset_for_timestamp(MAX_TIMESTAMP) is None


def test_an_index_entry_that_points_before_the_file_is_mended(
    filesystem: FileSystem, directory: str
) -> None:
    log = open_log(filesystem, directory, LogConfig(index_interval_bytes=1))
    for _ in range(5):
        append(log)
    log.roll(NOW_MS)
    log.release()
    first = log.segments.first
    # The second entry's position gets its sign bit: 8 bytes per entry, the position is the last 4.
    filesystem.open(f"{directory}/{first.base_offset:020}.index").pwrite(b"\x80", 12)

    head = first.find_batch(2)

    assert head is not None
    assert head.base_offset == 2
