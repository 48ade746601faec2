"""The fast search for a batch finds what the full one finds, and leaves what is odd to it."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from hypothesis import event, given, settings
from hypothesis import strategies as st

from millstream.errors import MillstreamError
from millstream.storage.disk import DiskFileSystem
from millstream.storage.log.batch_finder import find_place
from millstream.storage.log.config import LogConfig
from tests.unit.storage.batches import NOW_MS
from tests.unit.storage.logs import append, open_log

if TYPE_CHECKING:
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.unified_log import UnifiedLog

lengths = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from([0, 10, 300, 5000, 20_000])),
    min_size=1,
    max_size=25,
)


def place_by_rules(segment: LogSegment, offset: int) -> tuple[int, int] | str | None:
    """What the full search says."""
    try:
        head = segment.find_batch(offset)
    except MillstreamError as error:
        return type(error).__name__
    return None if head is None else (head.position, head.size)


def place_quickly(segment: LogSegment, offset: int) -> tuple[int, int] | str | None:
    """What the fast search says."""
    try:
        return find_place(segment, offset)
    except MillstreamError as error:
        return type(error).__name__


def compare(log: UnifiedLog) -> None:
    """At every offset, and beside them."""
    for segment in log.segments:
        for offset in range(segment.base_offset, log.log_end_offset + 2):
            assert place_quickly(segment, offset) == place_by_rules(segment, offset)


@settings(max_examples=60, deadline=None)
@given(
    batches=lengths,
    interval=st.sampled_from([1, 100, 4096, 1 << 20]),
    cut=st.integers(0, 40),
    more=lengths,
    is_sealed=st.booleans(),
)
def test_batches_are_found_where_they_are(
    batches: list[tuple[int, int]],
    interval: int,
    cut: int,
    more: list[tuple[int, int]],
    is_sealed: bool,
) -> None:
    config = LogConfig(internal_segment_bytes=150_000, index_interval_bytes=interval)
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(DiskFileSystem(), directory, config)
        for records, value_bytes in batches:
            append(log, records=records, value_bytes=value_bytes)
        compare(log)
        log.truncate_to(cut, NOW_MS)
        compare(log)
        for records, value_bytes in more:
            append(log, records=records, value_bytes=value_bytes)
        if is_sealed:
            log.roll(NOW_MS)
            log.release()
        compare(log)
        log.close()


@settings(max_examples=60, deadline=None)
@given(batches=lengths, interval=st.sampled_from([1, 4096]), data=st.data())
def test_damage_is_found_by_the_long_way(
    batches: list[tuple[int, int]], interval: int, data: st.DataObject
) -> None:
    config = LogConfig(internal_segment_bytes=1 << 20, index_interval_bytes=interval)
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(DiskFileSystem(), directory, config)
        for records, value_bytes in batches:
            append(log, records=records, value_bytes=value_bytes)
        log.roll(NOW_MS)
        first = log.segments.first
        log.release()
        name = data.draw(st.sampled_from(["index", "log"]))
        path = f"{directory}/{first.base_offset:020}.{name}"
        with open(path, "r+b") as file:  # noqa: PTH123 - paths of logs are strings
            size = file.seek(0, 2)
            event(f"{name} of {'some' if size else 'no'} bytes")
            if size:
                file.seek(data.draw(st.integers(0, size - 1)))
                file.write(bytes([data.draw(st.integers(0, 255))]))
        offset = data.draw(st.integers(0, log.log_end_offset))

        quick = place_quickly(first, offset)

        # The full search rebuilds an index that lies, once, so it is asked afterwards.
        if quick is not None and name == "index":
            assert quick == place_by_rules(first, offset)
        log.close()
