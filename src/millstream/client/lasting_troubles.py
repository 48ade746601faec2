"""Warnings of what stays wrong: topics and partitions that somebody wants and nobody has.

What is wrong for a moment only (a topic that is being made, a broker that lags behind) is no news.
It is told the time and the troubles of the moment, and says which of them deserve a line; it never
writes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE_MS: Final = 3_000
"""What is over by then is not told."""
REPEAT_MS: Final = 60_000


class LastingTroubles:
    """Knows since when something is wrong."""

    __slots__ = ("_tell_ms",)

    def __init__(self) -> None:
        self._tell_ms: dict[object, int] = {}
        """When each trouble is to be told, if it lasts until then."""

    def take(self, troubles: Mapping[object, str], now_ms: int) -> list[str]:
        """All that is wrong now; what is to be told of it."""
        if not troubles:
            self._tell_ms.clear()
            return []
        tell_ms = {each: self._tell_ms.get(each, now_ms + PATIENCE_MS) for each in troubles}
        due = [each for each, when_ms in tell_ms.items() if now_ms >= when_ms]
        self._tell_ms = tell_ms | dict.fromkeys(due, now_ms + REPEAT_MS)
        return [troubles[each] for each in due]
