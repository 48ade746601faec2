"""When the sparse indexes of a segment get their entries; by the fast path as by the full one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.storage.log.config import LogConfig
from millstream.storage.log.segment_indexes import SegmentIndexes
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.logs import open_log

if TYPE_CHECKING:
    from collections.abc import Callable

DIRECTORY = "/logs/t-0"
BATCHES = 1200


def new_indexes(*, interval_bytes: int = 100, bytes_max: int = 1 << 20) -> SegmentIndexes:
    filesystem = SimFileSystem(Random(1))
    filesystem.make_directory(DIRECTORY)
    indexes = SegmentIndexes(
        filesystem,
        lambda extension: f"{DIRECTORY}/{7:020}{extension}",
        7,
        bytes_max=bytes_max,
        interval_bytes=interval_bytes,
    )
    indexes.clear()
    return indexes


def test_an_entry_is_due_when_more_bytes_than_the_interval_have_gone_by() -> None:
    indexes = new_indexes()
    position = 0
    for number in range(10):
        indexes.note_batch(position, 40, 7 + number, 1000 + number)
        position += 40

    # The fourth batch is the first with more than 100 bytes before it, and so on.
    assert indexes.offsets.entry_count == 3
    assert indexes.offsets.last_entry == (16, 360)
    assert indexes.times.last_entry == (1009, 16)


def test_the_largest_timestamp_is_that_of_the_batch_that_had_it_first() -> None:
    indexes = new_indexes()
    for number, timestamp in enumerate([5, 9, 9, 3]):
        indexes.note_batch(number, 1, 10 + number, timestamp)

    assert (indexes.largest_timestamp, indexes.largest_offset) == (9, 11)


def test_a_full_index_says_so() -> None:
    indexes = new_indexes(interval_bytes=0, bytes_max=24)
    for number in range(4):
        assert not indexes.is_full
        indexes.note_batch(number, 1, 10 + number, 1000 + number)
        if indexes.is_full:
            break

    assert indexes.is_full
    # The time index keeps room for the entry at the end of the segment.
    assert indexes.times.entry_count == indexes.times.entry_count_max - 1


def index_files(
    timestamp_of: Callable[[int], int], room: int, *, is_fast: bool
) -> dict[str, bytes]:
    """The indexes of a log with an entry for each batch, in files of so many bytes."""
    filesystem = SimFileSystem(Random(1))
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=room, segment_ms=10**9)
    log: Any = open_log(filesystem, DIRECTORY, config)
    for number in range(BATCHES):
        records = batch_bytes(timestamps=[timestamp_of(number)])
        if not is_fast or log.tail.append_fast(bytearray(records), 0, NOW_MS) is None:
            log.append_as_leader(bytearray(records), 0, NOW_MS)
    log.close()
    names = [each.name for each in filesystem.scan(DIRECTORY) if each.name.endswith("index")]
    return {each: filesystem.read_bytes(f"{DIRECTORY}/{each}") for each in names}


@pytest.mark.skipif(not _accel.COMPILED, reason="the compiled kernel is not built (make build)")
@pytest.mark.parametrize("room", [1 << 20, 4096])
@pytest.mark.parametrize(
    "timestamp_of",
    [lambda number: NOW_MS + number, lambda number: NOW_MS, lambda number: NOW_MS - number],
    ids=["later", "same", "earlier"],
)
def test_both_paths_leave_the_same_indexes(timestamp_of: Callable[[int], int], room: int) -> None:
    fast = index_files(timestamp_of, room, is_fast=True)

    assert fast == index_files(timestamp_of, room, is_fast=False)
    assert any(fast.values())
