"""Where a log grows: its offsets, and the one way by which batches get to its end.

`LocalLog` makes a `LogTail`; `UnifiedLog`, `ProducerStateManager` and the readers look at it. Every
append goes through it: a client's batch, what a follower fetched, a coordinator's records. The
compiled version in `_accel.broker.log_tail` has the same interface, and beside it the fast path's
own entrance, which takes ordinary batches of clients without Python. The offsets are always in this
order: 0 <= log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream import _accel
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.epoch_cache import LeaderEpochCache
    from millstream.storage.log.log_state import BatchSummary
    from millstream.storage.log.producer_state import ProducerStateManager
    from millstream.storage.log.segments import LogSegments
    from millstream.storage.log.watermark_wakeup import WatermarkWakeup
    from millstream.types import ReadableBuffer

__all__ = ["LogTail"]

_FUTURE_MAX_MS: Final = 1 << 62
"""Added to the time of day this is still a number of 64 bits."""


class FastLimits(NamedTuple):
    """What a topic's settings mean for the fast path."""

    size_max: int
    """Of a client's batch; 0 if none may come this way."""
    future_max_ms: int
    """How far ahead of the time a timestamp may be."""


def fast_limits(config: LogConfig) -> FastLimits:
    """Some settings close the fast path: those that change batches, or look into them."""
    is_open = (
        config.compression_type == "producer"
        and not config.is_compacted
        and config.message_timestamp_type == "CreateTime"
        and config.message_timestamp_before_max_ms == INT64_MAX
        and config.flush_messages == INT64_MAX
        and config.flush_ms == INT64_MAX
    )
    size_max = min(config.max_message_bytes, config.segment_size_max)
    return FastLimits(
        size_max if is_open else 0, min(config.message_timestamp_after_max_ms, _FUTURE_MAX_MS)
    )


class LogTail:
    """The offsets of one log, and how it gets longer."""

    __slots__ = (
        "dirty_since_ms",
        "epochs",
        "fast_future_max_ms",
        "fast_size_max",
        "has_aborted",
        "high_watermark",
        "is_closed",
        "is_sound",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "segments",
        "wakeup",
    )

    def __init__(
        self,
        segments: LogSegments,
        producers: ProducerStateManager,
        epochs: LeaderEpochCache,
        wakeup: WatermarkWakeup,
        *,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.wakeup = wakeup
        """Who is woken when the high watermark moves after a quiet time."""
        self.log_start_offset = self.high_watermark = log_start_offset
        self.log_end_offset = self.recovery_point = log_end_offset
        self.dirty_since_ms = INT64_MAX
        """When the first record was appended that no flush has taken up."""
        self.is_closed = False
        self.has_aborted = False
        """Whether a transaction was aborted in any segment."""
        self.fast_size_max = self.fast_future_max_ms = 0
        self.is_sound: Callable[[memoryview], bool] | None = None
        """What the fast path asks about the records of a compressed batch."""

    @property
    def last_stable_offset(self) -> int:
        """Every transaction before it is decided, and the decision is committed."""
        unstable = self.producers.first_unstable_offset()
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def set_high_watermark(self, offset: int) -> None:
        """Everything before an offset, as far as the log has it, is committed.

        The only place where it changes.
        """
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.on_high_watermark(self.high_watermark)
        if not self.wakeup.is_awake:
            self.wakeup.wake()

    def raise_high_watermark(self, offset: int) -> bool:
        """Move it up; False if it is there already."""
        if min(offset, self.log_end_offset) <= self.high_watermark:
            return False
        self.set_high_watermark(offset)
        return True

    def append(
        self, data: ReadableBuffer, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Write one batch, whose header has its final offsets. All or nothing."""
        self.segments.active.append(data, last_offset, max_timestamp)
        self._note_appended(last_offset + 1, now_ms)

    def append_batches(
        self, data: ReadableBuffer, batches: Sequence[BatchSummary], now_ms: int
    ) -> None:
        """Write several with one write, each given as size, last offset and largest timestamp."""
        self.segments.active.append_batches(data, batches)
        self._note_appended(batches[-1][1] + 1, now_ms)

    def _note_appended(self, end_offset: int, now_ms: int) -> None:
        self.log_end_offset = end_offset
        self.dirty_since_ms = min(self.dirty_since_ms, now_ms)


if not TYPE_CHECKING and _accel.find("broker.log_tail"):
    from millstream._accel.broker.log_tail import LogTail
