"""Operations that wait for something, each at most until its deadline.

`ReplicaManager` puts produces, fetches and deletions here that cannot be answered yet, and tells it
what has changed; its driver tells it the time. Nothing is polled: with nobody waiting it costs
nothing, and with somebody waiting one timer is set, for the earliest deadline.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

_logger = logging.getLogger(__name__)

NEVER_MS: Final = 1 << 63
"""Later than every deadline."""

_DEAD_ENTRIES_MAX: Final = 64
"""So many entries of completed operations may stay in the heap before it is cleaned up."""


class DelayedOperation:
    """Something to be completed when its condition holds, or at its deadline; exactly once."""

    __slots__ = ("deadline_ms", "is_done", "keys")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        """On the monotonic clock."""
        self.is_done = False
        self.keys: tuple[Hashable, ...] = ()

    def is_ready(self) -> bool:
        """Whether its condition holds now. Asked when one of its keys has changed."""
        raise NotImplementedError

    def on_complete(self, *, is_expired: bool) -> None:
        """Answer whoever waits. Called once, when nothing watches the operation any more."""
        raise NotImplementedError


class DelayedOperationPurgatory:
    """All operations that wait, by what they wait for and by deadline."""

    __slots__ = ("_arm", "_armed_ms", "_dead_entries", "_heap", "_sequence", "_watchers")

    def __init__(self, arm: Callable[[int], object]) -> None:
        """`arm` is told the earliest deadline when it has changed: then `expire` is due."""
        self._arm = arm
        self._armed_ms = NEVER_MS
        # Dicts, not sets: whoever came first is completed first.
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        # An entry stays after its operation is done, until it comes to the top or is swept out.
        self._heap: list[tuple[int, int, DelayedOperation]] = []
        self._dead_entries = 0
        self._sequence = 0

    def __len__(self) -> int:
        """How many operations wait."""
        return len(self._heap) - self._dead_entries

    def __contains__(self, key: Hashable) -> bool:
        """Whether an operation waits for a key."""
        return key in self._watchers

    @property
    def watchers(self) -> dict[Hashable, dict[DelayedOperation, None]]:
        """The operations by what they wait for: always the same table, for reading only."""
        return self._watchers

    def complete_or_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Complete an operation if it is ready; otherwise let it wait for its keys."""
        if operation.is_ready():
            self._complete(operation, is_expired=False)
            return True
        self.watch(operation, keys)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Let an operation wait that is known not to be ready."""
        operation.keys = tuple(dict.fromkeys(keys))
        for key in operation.keys:
            self._watchers.setdefault(key, {})[operation] = None
        self._sequence += 1
        heappush(self._heap, (operation.deadline_ms, self._sequence, operation))
        if operation.deadline_ms < self._armed_ms:
            self._set_timer(operation.deadline_ms)

    def check(self, key: Hashable) -> int:
        """Something about a key has changed: complete what is ready now; how many that were."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        for operation in tuple(watchers):
            # One that completes may change the state another one waits for.
            if not operation.is_done and operation.is_ready():
                self._dead_entries += 1
                self._complete(operation, is_expired=False)
                completed += 1
        self._sweep()
        return completed

    def expire(self, now_ms: int) -> int:
        """Complete everything whose deadline has come; how many that were."""
        expired = 0
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, operation = heappop(self._heap)
            if operation.is_done:
                self._dead_entries -= 1
            else:
                self._complete(operation, is_expired=True)
                expired += 1
        self._armed_ms = NEVER_MS
        next_deadline_ms = self.next_deadline_ms()
        if next_deadline_ms is not None:
            self._set_timer(next_deadline_ms)
        return expired

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; None when nothing waits."""
        heap = self._heap
        while heap and heap[0][2].is_done:
            heappop(heap)
            self._dead_entries -= 1
        return heap[0][0] if heap else None

    def complete_all(self) -> None:
        """Complete everything as if its time had come: the broker stops."""
        entries, self._heap, self._dead_entries = sorted(self._heap), [], 0
        for _, _, operation in entries:
            if not operation.is_done:
                self._complete(operation, is_expired=True)

    def _complete(self, operation: DelayedOperation, *, is_expired: bool) -> None:
        assert not operation.is_done
        operation.is_done = True
        self._forget(operation)
        try:
            operation.on_complete(is_expired=is_expired)
        except Exception:
            # One that cannot be answered must not keep the others from their answers.
            _logger.exception("an operation that had waited could not be completed")

    def _forget(self, operation: DelayedOperation) -> None:
        for key in operation.keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]

    def _sweep(self) -> None:
        """Keep the heap within twice what waits: a busy fetch leaves an entry each time."""
        if self._dead_entries > _DEAD_ENTRIES_MAX and self._dead_entries * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].is_done]
            heapify(self._heap)
            self._dead_entries = 0

    def _set_timer(self, deadline_ms: int) -> None:
        self._armed_ms = deadline_ms
        self._arm(deadline_ms)
