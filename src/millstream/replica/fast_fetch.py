"""The fast path of Fetch, where the kernel was built: `FastFetch`, compiled.

`ReplicaManager` makes one. The listeners offer it the frames that the fast path of Produce
declines, `FetchService` the fetches that have waited. Without the kernel there is none, and the
full path takes every fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel
from millstream.replica.fetch_session_cache import EVICTION_MS
from millstream.storage.filesystem import FileSlice

if TYPE_CHECKING:
    from millstream._accel.broker.fast_fetch import FastFetch
    from millstream.clock import Clock
    from millstream.replica.fetch_session_cache import FetchSessionCache
    from millstream.replica.purgatory import DelayedOperationPurgatory


def make_fast_fetch(
    cache: FetchSessionCache,
    purgatory: DelayedOperationPurgatory,
    clock: Clock,
    *,
    fetch_max_bytes: int,
) -> FastFetch | None:
    """One for the sessions of a cache, which wait in a purgatory; None without the kernel."""
    if (found := _accel.find("broker.fast_fetch")) is None:
        return None
    made: FastFetch = found.FastFetch(
        cache,
        purgatory.watchers,
        clock.monotonic_ms,
        FileSlice,
        fetch_max_bytes=fetch_max_bytes,
        eviction_ms=EVICTION_MS,
    )
    return made
