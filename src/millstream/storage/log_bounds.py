"""The offsets of one partition's log: where it begins and ends, and how far readers may read.

`UnifiedLog` is one, with everything that moves the offsets. They are always in this order:
0 <= log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, and the recovery
point is not above the end either. Nothing here touches a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.storage.log_results import FetchIsolation
from millstream.storage.watermark_news import NOBODY

if TYPE_CHECKING:
    from millstream.storage.config import LogConfig
    from millstream.storage.local_log import LocalLog
    from millstream.storage.log_results import OffsetMetadata
    from millstream.storage.producer_state import ProducerStateManager
    from millstream.storage.segments import LogSegments


class LogBounds:
    """What a log is asked most often, and its watermarks."""

    __slots__ = ("_high_watermark", "_local", "_log_start_offset", "producers", "watermark_news")

    def __init__(
        self, local: LocalLog, producers: ProducerStateManager, log_start_offset: int
    ) -> None:
        self.producers = producers
        self._local = local
        self._log_start_offset = log_start_offset
        self._high_watermark = log_start_offset
        self.watermark_news = NOBODY
        """Who hears of a high watermark that moves; the log's manager puts its own here."""

    @property
    def directory(self) -> str:
        """The directory of its files."""
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        return self._local.config

    @property
    def segments(self) -> LogSegments:
        """The segments, for reading; only the log changes them."""
        return self._local.segments

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._local.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Every transaction before it is decided, and the decision is committed."""
        unstable = self.producers.first_unstable_offset()
        if unstable is None or unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self._log_start_offset)

    @property
    def recovery_point(self) -> int:
        """Everything before it is on disk."""
        return self._local.recovery_point

    @property
    def truncation_count(self) -> int:
        """Changes whenever records are cut off the end."""
        return self._local.truncation_count

    @property
    def size(self) -> int:
        """Bytes of records on this disk."""
        return self._local.segments.size

    @property
    def end_metadata(self) -> OffsetMetadata:
        """Where the log ends, with its place in the files."""
        return self._local.end

    def update_high_watermark(self, offset: int) -> int:
        """Set it, within the log; what it is now. A follower's may go back, a leader's does not."""
        self._high_watermark = min(max(offset, self._log_start_offset), self.log_end_offset)
        self.producers.on_high_watermark(self._high_watermark)
        if not self.watermark_news.is_awake:
            self.watermark_news.wake()
        return self._high_watermark

    def raise_high_watermark(self, offset: int) -> bool:
        """Move it up; False if it is there already."""
        if min(offset, self.log_end_offset) <= self._high_watermark:
            return False
        self.update_high_watermark(offset)
        return True

    def _bound(self, isolation: FetchIsolation) -> int:
        if isolation is FetchIsolation.LOG_END:
            return self.log_end_offset
        is_uncommitted = isolation is FetchIsolation.HIGH_WATERMARK
        return self._high_watermark if is_uncommitted else self.last_stable_offset
