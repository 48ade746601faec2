"""How much of the machine its host took away while something was measured.

A virtual machine shares its processors; what the host gives to others is missing in every figure.
`broker` measures its rounds through `in_quiet`; other benchmarks may. Where the system does not
tell (no Linux, no /proc/stat), nothing seems to be stolen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

STEAL_MAX: Final = 0.10
"""A round that lost more than this share of the machine's time is measured again,"""
ATTEMPTS_MAX: Final = 3
"""but not more often than this in all."""
_STAT: Final = Path("/proc/stat")
_STOLEN_AT: Final = 7
_KINDS: Final = 8  # What guests use is counted in these already.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Times:
    """Of all processors since the machine started: what was stolen, and all of it."""

    stolen: int
    total: int

    @classmethod
    def now(cls) -> Times:
        """Read them."""
        try:
            return cls.parse(_STAT.read_text())
        except OSError:
            return cls(0, 0)

    @classmethod
    def parse(cls, stat: str) -> Times:
        """From the first line of /proc/stat."""
        kinds = [int(word) for word in stat.split("\n", 1)[0].split()[1 : 1 + _KINDS]]
        return cls(kinds[_STOLEN_AT] if len(kinds) > _STOLEN_AT else 0, sum(kinds))

    def steal_since(self, before: Times) -> float:
        """The share that was stolen between two moments."""
        total = self.total - before.total
        return (self.stolen - before.stolen) / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Measured(Generic[T]):
    """What a measurement found, what share of the machine was stolen, how often it was repeated."""

    found: T
    steal: float
    repeats: int


def in_quiet(
    measure: Callable[[], T],
    now: Callable[[], Times] = Times.now,
    steal_max: float = STEAL_MAX,
) -> Measured[T]:
    """Measure, again if the host took too much; then the least disturbed of all attempts counts."""
    best: Measured[T] | None = None
    for repeats in range(ATTEMPTS_MAX):
        before = now()
        found = measure()
        steal = now().steal_since(before)
        if best is None or steal < best.steal:
            best = Measured(found, steal, repeats)
        if steal <= steal_max:
            break
    assert best is not None
    return Measured(best.found, best.steal, repeats)
