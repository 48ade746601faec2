"""What a load has done so far: counts, rates and latencies. `perf` reads it, loads write it.

Nothing here prints, and nothing knows the time but by being told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

_SUB_BITS: Final = 6
"""Buckets per power of two, as a power of two: a latency is exact to 1/64."""


class Latencies:
    """How long things took: a histogram of nanoseconds, small however many there are."""

    __slots__ = ("_buckets", "_sum_ns", "count", "max_ns")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._sum_ns = 0
        self.count = 0
        self.max_ns = 0

    def add(self, latency_ns: int, weight: int = 1) -> None:
        """Count a latency, once for each of `weight` things that took as long."""
        shift = max(0, latency_ns.bit_length() - _SUB_BITS - 1)
        bucket = (shift << _SUB_BITS) + (latency_ns >> shift)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + weight
        self._sum_ns += latency_ns * weight
        self.count += weight
        self.max_ns = max(self.max_ns, latency_ns)

    @property
    def mean_ns(self) -> float:
        """The mean; 0 of nothing."""
        return self._sum_ns / self.count if self.count else 0.0

    def percentile_ns(self, share: float) -> int:
        """What `share` of all did not exceed; 0 of nothing."""
        left = share * self.count
        for bucket, weight in sorted(self._buckets.items()):
            left -= weight
            if left <= 0:
                return min(_middle(bucket), self.max_ns)
        return self.max_ns


def _middle(bucket: int) -> int:
    shift = max(0, (bucket >> _SUB_BITS) - 1)
    return ((bucket - (shift << _SUB_BITS)) << shift) + (1 << shift) // 2


class Window(NamedTuple):
    """What happened since somebody last asked."""

    records: int
    byte_count: int
    latencies: Latencies


@dataclass(slots=True)
class Meter:
    """Everything that was acknowledged, or read."""

    records: int = 0
    byte_count: int = 0
    """Of the values."""
    latencies: Latencies = field(default_factory=Latencies)
    _window_records: int = 0
    _window_bytes: int = 0
    _window_latencies: Latencies = field(default_factory=Latencies)

    def add(self, records: int, byte_count: int) -> None:
        """Count records."""
        self.records += records
        self.byte_count += byte_count
        self._window_records += records
        self._window_bytes += byte_count

    def time(self, latency_ns: int, weight: int = 1) -> None:
        """Count how long an answer took."""
        self.latencies.add(latency_ns, weight)
        self._window_latencies.add(latency_ns, weight)

    def take_window(self) -> Window:
        """What came since the last call."""
        window = Window(self._window_records, self._window_bytes, self._window_latencies)
        self._window_records = self._window_bytes = 0
        self._window_latencies = Latencies()
        return window
