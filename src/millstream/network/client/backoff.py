"""How long to wait before the next try: doubling, capped, with chance in it.

Clients use it for connections, requests and refreshes. The chance is handed in, so that a
simulation can repeat a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

_EXPONENT_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_ms` after the first failure, twice that after each more, never above `max_ms`."""

    first_ms: int
    max_ms: int
    jitter: float = 0.2
    """By which part a wait is longer or shorter, so that clients do not come back all at once."""

    def after(self, failures: int, random: Random) -> int:
        """The wait in milliseconds after so many failures in a row; 0 after none."""
        if failures <= 0:
            return 0
        plain_ms = self.first_ms << min(failures - 1, _EXPONENT_MAX)
        spread = random.uniform(1 - self.jitter, 1 + self.jitter)
        return round(min(plain_ms, max(self.max_ms, self.first_ms)) * spread)
