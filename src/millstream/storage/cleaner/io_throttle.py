"""How fast compaction may read and write. Told the time, it answers when to go on.

The cleaner's owner has one for all its workers. Work is done in slices of about a tenth of a
second's worth, each paid for afterwards by waiting.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Final

_SLICES_PER_SECOND: Final = 10
_UNLIMITED: Final = float(1 << 62)


class IoThrottle:
    """So many bytes per second, shared by everybody who asks."""

    __slots__ = ("_free_at_ms", "bytes_per_second")

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0

    @property
    def slice_bytes(self) -> float:
        """How much may be done before the next `charge`; infinite if nothing is limited."""
        if self.bytes_per_second >= _UNLIMITED:
            return inf
        return self.bytes_per_second / _SLICES_PER_SECOND

    def charge(self, byte_count: int, now_ms: int) -> int:
        """So much was done: when the next slice may begin."""
        if self.bytes_per_second >= _UNLIMITED:
            return now_ms
        cost_ms = byte_count * 1000 / self.bytes_per_second
        self._free_at_ms = max(self._free_at_ms, float(now_ms)) + cost_ms
        return ceil(self._free_at_ms)
