"""The short way of a read says what `read` says, whatever has happened to the segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.storage.config import LogConfig
from millstream.storage.log_results import FetchIsolation
from millstream.storage.segment import LogSegment
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch
from tests.unit.storage.logs import SMALL, append, fill, open_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.filesystem import FileSystem
    from millstream.storage.unified_log import UnifiedLog


@pytest.fixture
def log(filesystem: FileSystem, directory: str) -> UnifiedLog:
    """Committed records in several segments."""
    log = open_log(filesystem, directory)
    fill(log, 30)
    log.update_high_watermark(log.log_end_offset)
    return log


def compare(log: UnifiedLog, *, is_committed: bool = False) -> int:
    """Both ways at every offset before the bound; how many the short one took."""
    isolation = FetchIsolation.TXN_COMMITTED if is_committed else FetchIsolation.HIGH_WATERMARK
    taken = 0
    for offset in range(log.log_start_offset, log.log_end_offset):
        for bytes_max in (1, 150, 100_000):
            short = log.read_whole(offset, bytes_max, is_committed=is_committed)
            found = log.read(offset, bytes_max, isolation)
            if short is None:
                continue
            taken += 1
            file, position, length, *watermarks = short
            assert found.records is not None
            assert (file, position, length) == (
                found.records.file,
                found.records.position,
                found.records.length,
            )
            assert watermarks == [
                log.high_watermark,
                log.last_stable_offset,
                log.log_start_offset,
            ]
    return taken


def roll(log: UnifiedLog) -> None:
    """Who waited at the end goes on in another segment."""
    log.read(log.log_end_offset, 1000)
    log.roll(NOW_MS)
    fill(log, 3)


def truncate(log: UnifiedLog) -> None:
    """Others take the place of what was cut."""
    log.truncate_to(log.log_end_offset - 5, NOW_MS)
    fill(log, 4, value_bytes=33)


def apply_retention(log: UnifiedLog) -> None:
    """The oldest segments go."""
    log.update_config(LogConfig(internal_segment_bytes=1000, retention_bytes=1500))
    assert log.delete_old_segments(NOW_MS)


def delete_records(log: UnifiedLog) -> None:
    """The log begins within a segment."""
    log.raise_log_start_offset(log.log_start_offset + 7)


def compact(log: UnifiedLog) -> None:
    """The first segment is written anew, with only its last batch."""
    first, second = list(log.segments)[:2]
    *_, last = first.batches()
    cleaned = LogSegment.create(
        log._local.filesystem, log.directory, first.base_offset, SMALL, NOW_MS, suffix=".cleaned"
    )
    cleaned.append(last.batch.view, last.batch.last_offset, last.batch.max_timestamp)
    assert cleaned.size < first.size
    log.replace_segments(cleaned, [first])
    assert second in list(log.segments)


def release(log: UnifiedLog) -> None:
    """An idle log gives back its descriptors."""
    log.release()


@pytest.mark.parametrize(
    "change", [roll, truncate, apply_retention, delete_records, compact, release]
)
def test_no_place_is_stale(log: UnifiedLog, change: Callable[[UnifiedLog], None]) -> None:
    assert compare(log) > 100

    change(log)
    log.update_high_watermark(log.log_end_offset)

    assert compare(log) > 10


def test_nothing_above_the_watermark_is_given(log: UnifiedLog) -> None:
    end = log.log_end_offset
    log.update_high_watermark(end - 4)

    assert log.read_whole(end - 4, 1000, is_committed=False) is None
    short = log.read_whole(end - 6, 1 << 20, is_committed=False)
    assert short is not None
    assert short[2] == log.read(end - 6, 1 << 20, FetchIsolation.HIGH_WATERMARK).size
    assert compare(log) > 100


@pytest.mark.parametrize("is_abort", [False, True])
def test_undecided_and_aborted_records_are_left_to_the_long_way(
    filesystem: FileSystem, directory: str, is_abort: bool
) -> None:
    log = open_log(filesystem, directory)
    append(log, records=2)
    in_transaction: dict[str, Any] = {"pid": 5, "epoch": 0, "is_transactional": True}
    records = batch_bytes(log.log_end_offset, sequence=0, **in_transaction)
    log.append_as_follower(records, 0, NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    assert log.read_whole(2, 1000, is_committed=True) is None
    assert log.read_whole(2, 1000, is_committed=False) is not None
    assert compare(log, is_committed=True) > 0

    marker = marker_batch(log.log_end_offset, pid=5, is_abort=is_abort)
    log.append_as_follower(bytes(marker.view), 0, NOW_MS)
    log.update_high_watermark(log.log_end_offset)

    assert (compare(log, is_committed=True) == 0) == is_abort
    assert compare(log) > 0


@pytest.mark.parametrize("offset", [-1, 10_000])
def test_an_offset_out_of_range_is_left_to_the_long_way(log: UnifiedLog, offset: int) -> None:
    assert log.read_whole(offset, 1000, is_committed=False) is None


def test_a_closed_log_gives_nothing(log: UnifiedLog) -> None:
    log.close()

    assert log.read_whole(0, 1000, is_committed=False) is None


def test_a_log_that_cannot_be_read_is_left_to_the_long_way(
    log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("millstream.storage.log_reader.find_place", fail)

    assert log.read_whole(3, 1000, is_committed=False) is None
