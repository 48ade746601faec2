"""The short way into a log: one ordinary batch, checked, numbered, written.

`UnifiedLog` tries it first. Nearly every append of a producer is of this kind; whatever is not (a
transaction, a new epoch, a segment to roll, a topic that looks into batches, and everything that
is wrong) gets None before anything was changed, and goes through `LogAppender`, which knows all
rules and gives all errors. Both leave the same log behind. The compiled twin in
`_accel.broker.express_lane` runs where it was built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream import _accel
from millstream.records.kernel import inspect_client_batch, number_batch
from millstream.records.layout import NO_PRODUCER_ID
from millstream.storage.faults import storage_error
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from millstream.storage.config import LogConfig
    from millstream.storage.epoch_cache import LeaderEpochCache
    from millstream.storage.index import PENDING_BYTES_MAX, SparseIndex
    from millstream.storage.local_log import LocalLog
    from millstream.storage.producer_state import ProducerStateManager
    from millstream.types import ReadableBuffer

_FUTURE_MAX_MS: Final = 1 << 62
"""Added to the time of day this is still a number of 64 bits."""


class Limits(NamedTuple):
    """What a topic's settings mean for its lane."""

    future_max_ms: int
    """How far ahead of the time a timestamp may be."""
    size_max: int
    """Of a client's batch; 0 if none may come this way."""
    own_size_max: int
    """The same for a batch that this broker built."""


def limits_of(config: LogConfig) -> Limits:
    """Some settings close the lane."""
    size_max = min(config.max_message_bytes, config.segment_size_max)
    return Limits(
        min(config.message_timestamp_after_max_ms, _FUTURE_MAX_MS),
        size_max if _takes_all(config) else 0,
        size_max if _takes_own(config) else 0,
    )


class ExpressLane:
    """Appends what needs no second look."""

    __slots__ = ("_epochs", "_limits", "_local", "_producers")

    def __init__(
        self, local: LocalLog, producers: ProducerStateManager, epochs: LeaderEpochCache
    ) -> None:
        self._local = local
        self._producers = producers
        self._epochs = epochs
        self.update_config(local.config)

    def update_config(self, config: LogConfig) -> None:
        """Take new settings."""
        self._limits = limits_of(config)

    def append(
        self, records: ReadableBuffer, leader_epoch: int, now_ms: int, *, is_own: bool = False
    ) -> int | None:
        """The batch's offset, or None if it has to go the long way; then nothing has changed.

        `is_own` says that this broker built the batch: not compressed, and with a key for each
        record, which others are not believed without a look.
        """
        epochs = self._epochs
        if epochs.is_dirty or epochs.latest_epoch != leader_epoch:
            return None
        future_max_ms, client_size_max, own_size_max = self._limits
        size_max = own_size_max if is_own else client_size_max
        batch = inspect_client_batch(records, size_max, now_ms + future_max_ms)
        if batch is None:
            return None
        last_offset_delta, max_timestamp, producer_id, producer_epoch, base_sequence = batch
        producers, local = self._producers, self._local
        if producer_id != NO_PRODUCER_ID and not producers.is_next(
            producer_id, producer_epoch, base_sequence, last_offset_delta
        ):
            return None
        base_offset = local.log_end_offset
        last_offset = base_offset + last_offset_delta
        segment = local.segments.active
        try:
            if segment.should_roll(len(records), last_offset, max_timestamp, now_ms):
                return None
            number_batch(records, base_offset, leader_epoch)
            segment.append(records, last_offset, max_timestamp)
        except OSError as error:
            raise storage_error(local.directory, "appending", error) from error
        local.log_end_offset = last_offset + 1
        if now_ms < local.dirty_since_ms:
            local.dirty_since_ms = now_ms
        if producer_id != NO_PRODUCER_ID:
            producers.record_next(producer_id, last_offset_delta, last_offset, max_timestamp)
        else:
            producers.advance_to(last_offset + 1)
        return base_offset


def _takes_all(config: LogConfig) -> bool:
    """Whether a topic takes the batches of clients as they are."""
    return _takes_own(config) and config.compression_type == "producer" and not config.is_compacted


def _takes_own(config: LogConfig) -> bool:
    """Whether a topic takes this broker's batches as they are, and is never synced by itself."""
    return (
        config.compression_type in ("producer", "uncompressed")
        and config.message_timestamp_type == "CreateTime"
        and config.message_timestamp_before_max_ms == INT64_MAX
        and config.flush_messages == INT64_MAX
        and config.flush_ms == INT64_MAX
    )


PlainExpressLane = ExpressLane
"""The twin in Python, whichever runs."""
if not TYPE_CHECKING and _accel.COMPILED:
    from millstream._accel.broker import express_lane as _compiled
    from millstream._accel.broker import index_entries
    from millstream._accel.broker.express_lane import ExpressLane
    from millstream.storage.disk import DiskFile
    from millstream.storage.epoch_cache import LeaderEpochCache
    from millstream.storage.index import PENDING_BYTES_MAX, SparseIndex
    from millstream.storage.local_log import LocalLog
    from millstream.storage.producer_entry import ProducerEntry
    from millstream.storage.producer_state import ProducerStateManager
    from millstream.storage.segment import LogSegment
    from millstream.storage.segment_indexes import SegmentIndexes
    from millstream.storage.segments import LogSegments
    from millstream.storage.verification import VerificationTable

    index_entries.bind(SegmentIndexes, SparseIndex, PENDING_BYTES_MAX)
    _compiled.bind(
        LocalLog,
        LogSegments,
        LogSegment,
        SegmentIndexes,
        ProducerStateManager,
        ProducerEntry,
        VerificationTable,
        LeaderEpochCache,
        DiskFile,
        limits_of,
        storage_error,
    )
