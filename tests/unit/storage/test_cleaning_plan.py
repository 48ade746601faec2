"""What of a log may be compacted, and which segments become one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.records.control import ControlType, EndTxnMarker, end_txn_marker
from millstream.storage.cleaner.cleaning_plan import (
    CleaningPlan,
    SegmentSpan,
    group_segments,
    last_records_of_producers,
    plan_cleaning,
)
from millstream.storage.cleaner.compaction import LastRecord
from millstream.storage.log.loader import LoadRequest
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.log.unified_log import UnifiedLog
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.cleaner_harness import compacted

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem


@pytest.fixture
def log(filesystem: FileSystem, directory: str) -> UnifiedLog:
    """Four closed segments of ten records each, and an active one; all of it is committed."""
    request = LoadRequest(
        filesystem=filesystem, directory=directory, config=compacted(), now_ms=NOW_MS
    )
    log = UnifiedLog.open(request)
    for number in range(50):
        if number and number % 10 == 0:
            log.roll(NOW_MS)
        log.append_as_leader(batch_bytes(0), 0, NOW_MS)
    log.update_high_watermark(50)
    return log


def bases(plan: CleaningPlan) -> list[int]:
    return [span.base_offset for span in plan.segments]


def test_everything_before_the_active_segment_is_dirty_at_first(log: UnifiedLog) -> None:
    plan = plan_cleaning(log, None, NOW_MS)
    assert (plan.first_dirty_offset, plan.end_offset) == (0, 40)
    assert bases(plan) == [0, 10, 20, 30]
    assert plan.segments[1] == SegmentSpan(10, 20, log.segments.first.size)
    assert plan.dirty_ratio == 1.0


def test_the_clean_part_counts_for_the_ratio(log: UnifiedLog) -> None:
    plan = plan_cleaning(log, 30, NOW_MS)
    assert bases(plan) == [0, 10, 20, 30]
    assert plan.dirty_ratio == 0.25
    assert plan.is_due(compacted(min_cleanable_dirty_ratio=0.2))
    assert not plan.is_due(compacted(min_cleanable_dirty_ratio=0.25))


def test_a_clean_log_is_not_due(log: UnifiedLog) -> None:
    assert not plan_cleaning(log, 40, NOW_MS).is_due(compacted())


def test_a_segment_with_uncommitted_records_is_out(log: UnifiedLog) -> None:
    log.update_high_watermark(25)
    assert plan_cleaning(log, None, NOW_MS).end_offset == 20


def test_a_segment_with_an_open_transaction_is_out(filesystem: FileSystem, directory: str) -> None:
    request = LoadRequest(
        filesystem=filesystem,
        directory=directory,
        config=compacted(),
        now_ms=NOW_MS,
        verifies_transactions=False,
    )
    log = UnifiedLog.open(request)
    open_batch = batch_bytes(0, pid=5, epoch=0, sequence=0, is_transactional=True)
    for data in (batch_bytes(0), open_batch, batch_bytes(0)):
        log.roll(NOW_MS)
        log.append_as_leader(data, 0, NOW_MS)
    log.update_high_watermark(3)
    assert plan_cleaning(log, None, NOW_MS).end_offset == 1
    marker = end_txn_marker(
        EndTxnMarker(ControlType.ABORT, 0), producer_id=5, producer_epoch=1, timestamp=NOW_MS
    )
    log.append_as_leader(marker, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(4)
    assert plan_cleaning(log, None, NOW_MS).end_offset == 2


def test_a_first_dirty_offset_outside_the_log_is_not_believed(
    log: UnifiedLog, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan_cleaning(log, 51, NOW_MS).first_dirty_offset == 0
    assert "ends at 50" in caplog.text
    log.raise_log_start_offset(15)
    assert plan_cleaning(log, 10, NOW_MS).first_dirty_offset == 15


def test_a_log_of_one_segment_has_nothing_to_clean(filesystem: FileSystem, directory: str) -> None:
    request = LoadRequest(
        filesystem=filesystem, directory=directory, config=compacted(), now_ms=NOW_MS
    )
    plan = plan_cleaning(UnifiedLog.open(request), None, NOW_MS)
    assert plan.segments == ()
    assert plan.dirty_ratio == 0.0
    assert not plan.is_due(compacted())


def test_producers_are_remembered_by_their_last_data(log: UnifiedLog) -> None:
    log.append_as_leader(batch_bytes(0, pid=3, epoch=1, sequence=0, records=2), 0, NOW_MS)
    assert last_records_of_producers(log) == {3: LastRecord(51, 1)}


class TestGroups:
    def test_neighbours_that_fit_go_together(self) -> None:
        spans = [SegmentSpan(i * 10, i * 10 + 10, 400) for i in range(5)]
        groups = group_segments(spans, compacted())
        assert [[span.base_offset for span in group] for group in groups] == [
            [0, 10],
            [20, 30],
            [40],
        ]

    def test_a_segment_that_is_too_large_stays_alone(self) -> None:
        spans = [SegmentSpan(0, 10, 10), SegmentSpan(10, 20, 2000), SegmentSpan(20, 30, 10)]
        assert len(group_segments(spans, compacted())) == 3

    def test_the_indexes_must_have_room(self) -> None:
        config = compacted(segment_index_bytes=36, index_interval_bytes=200)
        spans = [SegmentSpan(i * 10, i * 10 + 10, 200) for i in range(4)]
        assert [len(group) for group in group_segments(spans, config)] == [2, 2]

    def test_offsets_must_not_be_too_far_apart(self) -> None:
        spans = [
            SegmentSpan(0, 10, 1),
            SegmentSpan(10, 1 << 31, 1),
            SegmentSpan(1 << 31, 1 << 32, 1),
        ]
        assert [len(group) for group in group_segments(spans, compacted())] == [2, 1]

    def test_nothing_makes_nothing(self) -> None:
        assert group_segments([], compacted()) == []
