"""Carries the news that a partition has changed to whoever waits for it.

The append, fetch and metadata paths of `ReplicaManager` report changes here. Sessions are marked at
once, so that the next fetch sees the change; operations that wait are looked at a moment later,
when the requests at hand are done: many appends then wake a consumer once, with all their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from millstream.replica.partition import Partition
    from millstream.replica.purgatory import DelayedOperationPurgatory


class ChangeNotifier:
    """Who waits for a change, and when they are looked at."""

    __slots__ = ("_defer", "_purgatory", "_woken")

    def __init__(
        self,
        purgatory: DelayedOperationPurgatory,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        """`defer` calls something soon, on this thread, after what is going on now."""
        self._purgatory = purgatory
        self._defer = defer
        self._woken: dict[Hashable, None] = {}

    def changed(self, partition: Partition) -> None:
        """A partition has more records, another watermark, start, leader or fault."""
        if partition.watchers:
            self._mark(partition)
        if partition in self._purgatory:
            self._wake(partition)

    def gone(self, partition: Partition) -> None:
        """A partition is no longer here; who fetches it looks it up anew."""
        self.changed(partition)
        for asked in list(partition.watchers):
            asked.unwatch()

    def run(self) -> None:
        """Look at the operations whose turn it is."""
        woken, self._woken = self._woken, {}
        for key in woken:
            self._purgatory.check(key)

    def _mark(self, partition: Partition) -> None:
        for asked in partition.watchers:
            watcher = asked.watcher
            if watcher is not None:
                watcher.changed[asked] = None
                if watcher in self._purgatory:
                    self._wake(watcher)

    def _wake(self, key: Hashable) -> None:
        if not self._woken:
            self._defer(self.run)
        self._woken[key] = None
