"""One partition's log: appends, reads, bounds and segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.config import replace
from millstream.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    KafkaStorageError,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from millstream.records import Compression
from millstream.storage.log.config import LogConfig
from millstream.storage.log.epoch_cache import LeaderEpochCache
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.log.producer_entry import AppendOrigin
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch
from tests.unit.storage.logs import SMALL, append, fill, offsets, open_log

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog


@pytest.fixture
def log(filesystem: FileSystem, directory: str) -> UnifiedLog:
    return open_log(filesystem, directory)


def append_marker(log: UnifiedLog, *, is_abort: bool, pid: int = 1, epoch: int = 0) -> int:
    """End a producer's transaction; the marker's offset."""
    marker = marker_batch(0, pid=pid, epoch=epoch, is_abort=is_abort)
    info = log.append_as_leader(
        bytearray(marker.view),
        0,
        NOW_MS,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=1,
    )
    return info.first_offset


class TestAppendingAsLeader:
    def test_records_get_offsets_from_the_logs_end_on(self, log: UnifiedLog) -> None:
        first, second = append(log, records=3), append(log, records=2)

        assert (first.first_offset, first.last_offset) == (0, 2)
        assert (second.first_offset, second.last_offset) == (3, 4)
        assert log.log_end_offset == 5
        assert offsets(log) == [0, 1, 2, 3, 4]

    def test_the_answer_has_times_and_size(self, log: UnifiedLog) -> None:
        data = batch_bytes(records=2)

        info = log.append_as_leader(data, 0, NOW_MS)

        assert (info.max_timestamp, info.log_append_time) == (NOW_MS + 1, -1)
        assert info.byte_count == len(data)

    def test_log_append_time_is_in_the_answer(self, filesystem: FileSystem, directory: str) -> None:
        stamping = replace(SMALL, {"message.timestamp.type": "LogAppendTime"})
        log = open_log(filesystem, directory, stamping)

        info = append(log, now_ms=NOW_MS + 77)

        assert (info.max_timestamp, info.log_append_time) == (NOW_MS + 77, NOW_MS + 77)

    def test_a_refused_batch_changes_nothing(self, log: UnifiedLog) -> None:
        data = bytearray(batch_bytes())
        data[-1] ^= 1

        with pytest.raises(CorruptMessage):
            log.append_as_leader(data, 0, NOW_MS)

        assert (log.log_end_offset, log.size) == (0, 0)

    def test_a_new_leader_epoch_is_noted_where_it_begins(self, log: UnifiedLog) -> None:
        append(log, term=1)
        append(log, term=1)
        append(log, term=4)

        assert log.epochs.entries == ((1, 0), (4, 2))
        assert log.end_offset_for_epoch(1) == (1, 2)
        assert log.end_offset_for_epoch(3) == (1, 2)
        assert log.end_offset_for_epoch(4) == (4, 3)

    def test_an_epoch_begins_even_before_its_first_record(self, log: UnifiedLog) -> None:
        append(log, term=1)

        log.begin_epoch(5)

        assert log.end_offset_for_epoch(1) == (1, 1)

    def test_a_record_is_never_in_the_log_before_its_epoch_is_on_disk(
        self, log: UnifiedLog, filesystem: FileSystem
    ) -> None:
        append(log, term=1)
        log.begin_epoch(5)
        assert LeaderEpochCache.load(filesystem, log.directory).latest_epoch == 1

        append(log, term=5)

        assert LeaderEpochCache.load(filesystem, log.directory).entries == ((1, 0), (5, 1))

    def test_a_closed_log_takes_nothing(self, log: UnifiedLog) -> None:
        log.close()
        log.close()

        with pytest.raises(KafkaStorageError, match="the log is closed"):
            append(log)


class TestProducers:
    def test_a_retry_is_answered_with_the_first_offsets(self, log: UnifiedLog) -> None:
        first = append(log, records=2, pid=1, epoch=0, sequence=0)
        append(log, records=1, pid=1, epoch=0, sequence=2)

        again = append(log, records=2, pid=1, epoch=0, sequence=0)

        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
        assert log.log_end_offset == 3

    def test_a_gap_in_the_sequence_is_refused(self, log: UnifiedLog) -> None:
        append(log, records=2, pid=1, epoch=0, sequence=0)

        with pytest.raises(OutOfOrderSequenceNumber):
            append(log, pid=1, epoch=0, sequence=3)

    def test_an_old_producer_epoch_is_refused(self, log: UnifiedLog) -> None:
        append(log, pid=1, epoch=2, sequence=0)

        with pytest.raises(InvalidProducerEpoch):
            append(log, pid=1, epoch=1, sequence=0)

    def test_a_marker_of_an_old_coordinator_is_refused(self, log: UnifiedLog) -> None:
        append(log, pid=1, epoch=0, sequence=0, is_transactional=True)
        for coordinator_epoch in (3, 2):
            marker = marker_batch(0, coordinator_epoch=coordinator_epoch)
            if coordinator_epoch == 3:
                log.append_as_leader(
                    marker.view, 0, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=1
                )
                continue
            with pytest.raises(TransactionCoordinatorFenced):
                log.append_as_leader(
                    marker.view, 0, NOW_MS, origin=AppendOrigin.COORDINATOR, transaction_version=1
                )

    def test_idle_producers_are_forgotten(self, log: UnifiedLog) -> None:
        append(log, pid=1, epoch=0, sequence=0, timestamps=[NOW_MS])

        assert log.remove_expired_producers(NOW_MS + 86_400_000 - 1) == 0
        assert log.remove_expired_producers(NOW_MS + 86_400_000) == 1


class TestTransactions:
    def test_an_open_transaction_holds_the_last_stable_offset(self, log: UnifiedLog) -> None:
        append(log, records=2)
        append(log, pid=1, epoch=0, sequence=0, is_transactional=True)
        append(log)
        log.update_high_watermark(4)

        assert log.last_stable_offset == 2

    def test_its_end_frees_readers_only_when_the_marker_is_committed(self, log: UnifiedLog) -> None:
        append(log, pid=1, epoch=0, sequence=0, is_transactional=True)
        log.raise_high_watermark(1)
        append_marker(log, is_abort=False)

        assert log.last_stable_offset == 0
        log.raise_high_watermark(2)
        assert log.last_stable_offset == 2

    def test_a_committed_read_tells_which_transactions_were_aborted(self, log: UnifiedLog) -> None:
        append(log, pid=1, epoch=0, sequence=0, is_transactional=True)
        append(log, pid=2, epoch=0, sequence=0, is_transactional=True)
        marker_offset = append_marker(log, is_abort=True)
        append_marker(log, is_abort=False, pid=2)
        log.update_high_watermark(log.log_end_offset)

        fetched = log.read(0, 10_000, FetchIsolation.TXN_COMMITTED)

        assert fetched.aborted_transactions is not None
        assert [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions] == [
            (1, 0)
        ]
        assert fetched.aborted_transactions[0].last_offset == marker_offset
        assert log.read(0, 10_000).aborted_transactions is None

    def test_an_abort_is_found_although_its_marker_is_segments_away(self, log: UnifiedLog) -> None:
        append(log, pid=1, epoch=0, sequence=0, is_transactional=True)
        fill(log, 20)
        append_marker(log, is_abort=True)
        log.update_high_watermark(log.log_end_offset)
        assert len(log.segments) > 2

        fetched = log.read(0, 100, FetchIsolation.TXN_COMMITTED)

        assert fetched.aborted_transactions is not None
        assert len(fetched.aborted_transactions) == 1


class TestAppendingAsFollower:
    def test_batches_keep_the_leaders_offsets_and_epochs(self, log: UnifiedLog) -> None:
        data = batch_bytes(0, records=2, leader_epoch=3) + batch_bytes(2, leader_epoch=4)

        info = log.append_as_follower(data, 4, NOW_MS)

        assert info is not None
        assert (info.first_offset, info.last_offset, info.byte_count) == (0, 2, len(data))
        assert offsets(log) == [0, 1, 2]
        assert log.epochs.entries == ((3, 0), (4, 2))

    def test_nothing_usable_is_nothing_done(self, log: UnifiedLog) -> None:
        assert log.append_as_follower(batch_bytes(0)[:-1], 0, NOW_MS) is None
        assert log.append_as_follower(b"", 0, NOW_MS) is None

    def test_a_gap_in_the_leaders_log_is_a_gap_here(self, log: UnifiedLog) -> None:
        log.append_as_follower(batch_bytes(0) + batch_bytes(5), 0, NOW_MS)

        assert offsets(log) == [0, 5]
        assert log.read(2, 1000).start.position > 0

    def test_a_fetch_larger_than_a_segment_goes_to_several(self, log: UnifiedLog) -> None:
        data = b"".join(batch_bytes(number, value_bytes=300) for number in range(10))

        log.append_as_follower(data, 0, NOW_MS)

        assert offsets(log) == list(range(10))
        assert all(segment.size <= 1000 for segment in log.segments)
        assert len(log.segments) > 2

    def test_transactions_in_one_fetch_are_understood(self, log: UnifiedLog) -> None:
        data = batch_bytes(0, pid=1, epoch=0, sequence=0, is_transactional=True)
        data += bytes(marker_batch(1, is_abort=True).view)
        data += batch_bytes(2, pid=1, epoch=0, sequence=1, is_transactional=True)

        log.append_as_follower(data, 0, NOW_MS)
        log.update_high_watermark(3)

        assert log.last_stable_offset == 2
        assert [each.last_offset for each in log.aborted_transactions(0, 3)] == [1]

    def test_an_offset_too_far_for_an_index_begins_a_segment_of_its_own(
        self, log: UnifiedLog
    ) -> None:
        far = 5_000_000_000
        log.append_as_follower(batch_bytes(0) + batch_bytes(far), 0, NOW_MS)

        assert log.segments.base_offsets == (0, far)
        assert offsets(log) == [0, far]


class TestSegments:
    def test_a_batch_that_does_not_fit_begins_a_new_one(self, log: UnifiedLog) -> None:
        fill(log, 12)

        assert log.segments.base_offsets[:2] == (0, log.segments.first.read_next_offset())
        assert log.segments.first.size <= 1000

    def test_age_begins_a_new_one(self, filesystem: FileSystem, directory: str) -> None:
        log = open_log(filesystem, directory, LogConfig(segment_ms=1000))
        append(log, timestamps=[NOW_MS])
        append(log, timestamps=[NOW_MS + 1000])
        assert len(log.segments) == 1

        append(log, timestamps=[NOW_MS + 1001])

        assert log.segments.base_offsets == (0, 2)

    def test_a_full_index_begins_a_new_one(self, filesystem: FileSystem, directory: str) -> None:
        config = LogConfig(segment_index_bytes=24, index_interval_bytes=0)
        log = open_log(filesystem, directory, config)
        fill(log, 6)

        assert len(log.segments) > 1
        assert offsets(log) == list(range(12))

    def test_rolling_an_empty_segment_does_nothing(self, log: UnifiedLog) -> None:
        assert log.roll(NOW_MS) is log.segments.active
        append(log)
        log.roll(NOW_MS)
        log.roll(NOW_MS)

        assert log.segments.base_offsets == (0, 1)

    def test_a_closed_segment_asks_to_be_synced(self, log: UnifiedLog) -> None:
        wants = [append(log, value_bytes=400).wants_flush for _ in range(4)]

        assert wants == [False, False, True, False]

    def test_settings_change_while_it_runs(self, log: UnifiedLog) -> None:
        append(log)
        log.update_config(replace(SMALL, {"compression.type": "zstd"}))
        append(log)

        codecs = [batch.batch.compression for batch in log.segments.active.batches()]
        assert codecs == [Compression.NONE, Compression.ZSTD]
