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
from millstream.storage.filesystem import FileSlice

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
    from millstream._accel.broker import fetch_lane

    fetch_lane.bind(FetchSession, FetchTarget)
    return fetch_lane.FetchLane(
        cache,
        clock.monotonic_ms,
        FileSlice,
        fetch_max_bytes=fetch_max_bytes,
        eviction_ms=EVICTION_MS,
    )
