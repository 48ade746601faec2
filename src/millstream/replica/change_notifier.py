"""Tells whoever waits for a partition that it has changed.

`PartitionState.changed` leads here, whatever has happened. Sessions are marked at once, so that the
next fetch sees the change; operations and answers that wait are looked at a moment later, when the
requests at hand are done: many appends then wake a consumer once, with all their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.replica.pending_acks import PendingAcks

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

    def attach(self, partition: Partition) -> None:
        """A partition reports its changes here from now on."""
        partition.notifier = self
        partition.waiting = self._purgatory.watchers

    def changed(self, partition: Partition) -> None:
        """A partition has more records, another watermark, start, leader or fault."""
        if partition.watchers:
            self._mark(partition)
        if partition in self._purgatory:
            self._wake(partition)
        if partition.has_acks:
            self._wake(partition.acks)

    def gone(self, partition: Partition) -> None:
        """A partition is no longer here; who fetches it looks it up anew."""
        self.changed(partition)
        for asked in list(partition.watchers):
            asked.unwatch()

    def run(self) -> None:
        """Look at the operations and answers whose turn it is."""
        woken, self._woken = self._woken, {}
        for key in woken:
            if isinstance(key, PendingAcks):
                key.check()
            else:
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
