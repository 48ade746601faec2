"""Which figures `benchmarks.broker` must reach, and which of them a run has reached."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Pair = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit for every figure whose name fits: a ratio at least, or a figure of ours at most."""

    figures: str
    ratio_min: float | None = None
    ours_max: float | None = None

    def verdict(self, name: str, pair: Pair) -> str | None:
        """Whether a figure reaches the bar, in words; None if the run cannot tell."""
        if self.ratio_min is not None:
            found, limit, text = pair["ratio"], self.ratio_min, f">= {self.ratio_min}x"
            is_reached = found is not None and found >= limit
            shown = f"{found}x"
        else:
            assert self.ours_max is not None
            found, limit, text = pair["ours"], self.ours_max, f"< {self.ours_max}"
            is_reached = found is not None and found < limit
            shown = str(found)
        if found is None:
            return None
        return f"{'holds' if is_reached else 'FAILS':6} {name:44} {shown:>10}  (bar {text})"


BARS = (
    Bar("produce-*_requests_per_second", ratio_min=2),
    Bar("produce-*_cpu_us", ratio_min=2),
    Bar("produce-100B-c1-w1_p50_us", ratio_min=2),
    Bar("fetch-64KiB-*_requests_per_second", ratio_min=1.5),
    Bar("fetch-1MiB-c4_requests_per_second", ratio_min=1),
    Bar("follow-*_p50_us", ratio_min=2),
    Bar("start_ms", ours_max=500),
    Bar("embedded-start_ms", ours_max=100),
    Bar("rss-idle_mb", ours_max=80),
    Bar("rss-1000-partitions_mb", ours_max=150),
    # Zero to the precision in which anybody looks at it: 0.0 % of a core.
    Bar("idle*_cpu_us_per_second", ours_max=500),
)

BARS_BEFORE = (Bar("*cpu*", ratio_min=0.95),)
"""Beside another revision of ours: nothing costs a twentieth more than it did."""


def verdicts(results: Mapping[str, Pair], bars: Iterable[Bar] = BARS) -> Iterator[str]:
    """One line for every figure that has a bar."""
    for bar in bars:
        for name, pair in results.items():
            if fnmatch.fnmatchcase(name, bar.figures) and (line := bar.verdict(name, pair)):
                yield line
