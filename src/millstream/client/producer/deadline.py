"""How long a call of a producer's API may still take. Reads a clock that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Deadline:
    """How long a call may still take."""

    __slots__ = ("_at_ms", "_now_ms")

    def __init__(self, now_ms: Callable[[], int], limit_ms: int | None) -> None:
        self._now_ms = now_ms
        self._at_ms = None if limit_ms is None else now_ms() + limit_ms

    def left_s(self, *, at_least: float = 0.0) -> float | None:
        """Seconds that are left; None if there is no limit."""
        if self._at_ms is None:
            return None
        return max(at_least, (self._at_ms - self._now_ms()) / 1000)
