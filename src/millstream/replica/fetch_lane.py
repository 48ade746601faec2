"""The way of an ordinary Fetch request from its frame to the place of its records, compiled.

`ReplicaManager` makes one; the listeners offer it the frames that the lane of Produce declines.
Where the kernel was not built there is none, and requests take the same way in Python, through
`KafkaApis` and `SingleFetches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel
from millstream.replica.fetch_session import FetchSession
from millstream.replica.fetch_session_cache import EVICTION_MS
from millstream.replica.fetch_target import FetchTarget
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
    from millstream._accel.broker.fast_path import FastReader
    from millstream.clock import Clock
    from millstream.replica.fetch_session_cache import FetchSessionCache


def make_fetch_lane(
    cache: FetchSessionCache, clock: Clock, *, fetch_max_bytes: int
) -> FastReader | None:
    """One for the sessions of a cache."""
    if not _accel.COMPILED:
        return None
    from millstream._accel.broker import fetch_lane, log_span

    fetch_lane.bind(FetchSession, FetchTarget, Partition)
    log_span.bind_logs(UnifiedLog, LocalLog, ProducerStateManager, LogReader, LogSegments)
    log_span.bind_segments(LogSegment, SegmentIndexes, OffsetIndex, DiskFile, DiskFileMap)
    return fetch_lane.FetchLane(
        cache,
        clock.monotonic_ms,
        FileSlice,
        fetch_max_bytes=fetch_max_bytes,
        eviction_ms=EVICTION_MS,
    )
