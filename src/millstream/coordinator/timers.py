"""Deadlines of a state machine: what is to be decided when. Pure data; the runtime fires them."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from millstream.coordinator.decision import Decision, Moment

    TimerAction: TypeAlias = Callable[[Moment], Decision[None]]


class TimerQueue:
    """One deadline for each key; setting a key again replaces its deadline.

    Cancelled and replaced deadlines stay in the heap until they come up, and are ignored then; the
    heap is rebuilt when they are the most of it.
    """

    __slots__ = ("_actions", "_heap", "_serial")

    def __init__(self) -> None:
        self._actions: dict[Hashable, tuple[int, int, TimerAction]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._actions)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._actions

    def set(self, key: Hashable, deadline_ms: int, action: TimerAction) -> None:
        """Let an action happen at a moment of the monotonic clock, instead of the key's last."""
        self._serial += 1
        self._actions[key] = (deadline_ms, self._serial, action)
        heappush(self._heap, (deadline_ms, self._serial, key))
        if len(self._heap) > 2 * len(self._actions) + 64:
            self._heap = [(at, serial, key) for key, (at, serial, _) in self._actions.items()]
            self._heap.sort()

    def set_if_absent(self, key: Hashable, deadline_ms: int, action: TimerAction) -> None:
        """The same, unless the key has a deadline."""
        if key not in self._actions:
            self.set(key, deadline_ms, action)

    def cancel(self, key: Hashable) -> None:
        """Let nothing happen."""
        self._actions.pop(key, None)

    def deadline_ms(self, key: Hashable) -> int | None:
        """When a key's action is due; None if it has none."""
        found = self._actions.get(key)
        return None if found is None else found[0]

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            at, serial, key = self._heap[0]
            found = self._actions.get(key)
            if found is not None and found[1] == serial:
                return at
            heappop(self._heap)
        return None

    def pop_due(self, now_ms: int) -> tuple[Hashable, TimerAction] | None:
        """An action whose time has come, taken out; None if there is none."""
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        return key, self._actions.pop(key)[2]

    def clear(self) -> None:
        """Forget everything."""
        self._actions.clear()
        self._heap.clear()
