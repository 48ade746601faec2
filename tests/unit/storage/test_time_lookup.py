"""The record of a time within a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.records.batch import RecordBatch
from millstream.records.compression import Compression
from millstream.storage.log.config import LogConfig
from millstream.storage.log.segment import LogSegment
from millstream.storage.log.time_lookup import find_by_timestamp, find_largest_timestamp
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

BASE = 1000
CONFIG = LogConfig(index_interval_bytes=300, segment_index_bytes=2400)


@pytest.fixture
def segment(filesystem: FileSystem, directory: str) -> LogSegment:
    return LogSegment.create(filesystem, directory, BASE, CONFIG, NOW_MS)


def append(segment: LogSegment, data: bytes) -> None:
    batch = RecordBatch(data)
    segment.append(data, batch.last_offset, batch.max_timestamp)


def reopened(filesystem: FileSystem, directory: str, segment: LogSegment) -> LogSegment:
    return LogSegment(filesystem, directory, BASE, CONFIG, size=segment.size, created_ms=NOW_MS)


def test_an_empty_segment_has_no_record_of_any_time(segment: LogSegment) -> None:
    assert find_by_timestamp(segment, 0, BASE) is None


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_the_first_record_of_a_time_is_found(
    segment: LogSegment,
    filesystem: FileSystem,
    directory: str,
    is_reopened: bool,
    compression: Compression,
) -> None:
    for i in range(30):
        times = [NOW_MS + 100 * i, NOW_MS + 100 * i + 50]
        append(
            segment,
            batch_bytes(
                BASE + 2 * i, records=2, timestamps=times, leader_epoch=7, compression=compression
            ),
        )
    if is_reopened:
        segment.close()
        segment = reopened(filesystem, directory, segment)

    for i in range(60):
        found = find_by_timestamp(segment, NOW_MS + 50 * i, BASE)
        assert found == (NOW_MS + 50 * i, BASE + i, 7)
        assert find_by_timestamp(segment, NOW_MS + 50 * i - 49, BASE) == found
    assert find_by_timestamp(segment, NOW_MS + 3000, BASE) is None
    assert find_by_timestamp(segment, 0, BASE + 33) == (NOW_MS + 1650, BASE + 33, 7)


def test_times_out_of_order_still_give_the_first_offset(segment: LogSegment) -> None:
    for i, time in enumerate([10, 50, 20, 60, 5]):
        append(segment, batch_bytes(BASE + i, timestamps=[NOW_MS + time], value_bytes=400))

    def offset_of(time: int) -> int | None:
        found = find_by_timestamp(segment, NOW_MS + time, BASE)
        return None if found is None else found.offset - BASE

    assert [offset_of(time) for time in (0, 10, 11, 50, 51, 61)] == [0, 0, 1, 1, 3, None]


def test_the_largest_timestamp_is_known_and_found(
    segment: LogSegment, filesystem: FileSystem, directory: str
) -> None:
    assert segment.largest == (-1, BASE)
    assert find_largest_timestamp(segment) is None
    append(segment, batch_bytes(BASE, records=3, timestamps=[5, 90, 90]))
    append(segment, batch_bytes(BASE + 3, timestamps=[40]))

    assert segment.largest == (90, BASE + 2)
    found = find_largest_timestamp(segment)
    assert found is not None
    assert (found.timestamp, found.offset) == (90, BASE + 1)
    segment.close()
    assert reopened(filesystem, directory, segment).largest == (90, BASE + 2)
