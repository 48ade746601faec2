"""The fast path of Fetch, where the kernel was built: `FastFetch`, compiled.

`ReplicaManager` makes one. The listeners offer it the frames that the fast path of Produce
declines, `FetchService` the fetches that have waited. Without the kernel there is none, and the
full path takes every fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel
from millstream.replica.fetch_session_cache import EVICTION_MS
from millstream.replica.partition import Partition
from millstream.storage.disk import DiskFile, DiskFileMap
from millstream.storage.filesystem import FileSlice
from millstream.storage.index import OffsetIndex
from millstream.storage.local_log import LocalLog
from millstream.storage.log_reader import LogReader
from millstream.storage.producer_state import ProducerStateManager
from millstream.storage.segment import LogSegment
from millstream.storage.segment_indexes import SegmentIndexes
from millstream.storage.segments import LogSegments
from millstream.storage.unified_log import UnifiedLog

if TYPE_CHECKING:
    from millstream._accel.broker.fast_fetch import FastFetch
    from millstream.clock import Clock
    from millstream.replica.fetch_session_cache import FetchSessionCache


def make_fast_fetch(
    cache: FetchSessionCache, clock: Clock, *, fetch_max_bytes: int
) -> FastFetch | None:
    """One for the sessions of a cache; None without the kernel."""
    if not _accel.COMPILED:
        return None
    from millstream._accel.broker import fast_fetch, log_span

    fast_fetch.bind(Partition)
    log_span.bind_logs(UnifiedLog, LocalLog, ProducerStateManager, LogReader, LogSegments)
    log_span.bind_segments(LogSegment, SegmentIndexes, OffsetIndex, DiskFile, DiskFileMap)
    return fast_fetch.FastFetch(
        cache,
        clock.monotonic_ms,
        FileSlice,
        fetch_max_bytes=fetch_max_bytes,
        eviction_ms=EVICTION_MS,
    )
