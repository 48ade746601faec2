"""Deadlines of things that are done every so often. Knows no clock: it is told the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class PeriodicTasks:
    """Named tasks with their intervals; one with interval 0 never runs."""

    def __init__(self, intervals_ms: Mapping[str, int], now_ms: int) -> None:
        self._intervals_ms = {name: ms for name, ms in intervals_ms.items() if ms > 0}
        self._due_ms = {name: now_ms + ms for name, ms in self._intervals_ms.items()}

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next task is due."""
        return min(self._due_ms.values(), default=None)

    def take_due(self, now_ms: int) -> list[str]:
        """The tasks that are due, which are thereby put off by their interval."""
        due = [name for name, due_ms in self._due_ms.items() if now_ms >= due_ms]
        for name in due:
            self.postpone(name, now_ms)
        return due

    def postpone(self, name: str, now_ms: int) -> None:
        """A task need not run before its interval has passed from now."""
        if name in self._intervals_ms:
            self._due_ms[name] = now_ms + self._intervals_ms[name]

    def run_soon(self, name: str, now_ms: int) -> None:
        """A task has more to do."""
        self._due_ms[name] = now_ms
