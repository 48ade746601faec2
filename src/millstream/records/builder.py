"""`RecordBatchBuilder`: from records to the finished bytes of a v2 batch.

Producers, the cleaner, coordinators and raft build batches with it. It adds to `BatchWriter` what
the kernel does not know: compression and the meaning of the attribute bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidArgument
from millstream.records.compression import Compression, compress
from millstream.records.kernel import BatchWriter
from millstream.records.layout import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    TimestampType,
)

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer


class RecordBatchBuilder(BatchWriter):
    """A `BatchWriter` that compresses and sets the attributes.

    For a batch with a delete horizon, give the horizon as `base_timestamp` to the constructor.
    """

    def build(
        self,
        *,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        base_offset: int = 0,
        last_offset_delta: int | None = None,
        leader_epoch: int = NO_LEADER_EPOCH,
        base_timestamp: int | None = None,
        max_timestamp: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        has_delete_horizon: bool = False,
    ) -> bytes:
        """The batch. What is not given follows from the records; they stay in the builder.

        With LOG_APPEND_TIME, `max_timestamp` is every record's timestamp and must be given. With a
        delete horizon, the base timestamp is the horizon.
        """
        if timestamp_type == TimestampType.LOG_APPEND_TIME and max_timestamp is None:
            raise InvalidArgument("LOG_APPEND_TIME needs the time of the append as max_timestamp")
        if is_control and compression:
            raise InvalidArgument("a control batch is never compressed")
        body: ReadableBuffer | None = None
        if compression and self.record_count:
            body = compress(compression, self.body(), level)
        return self.seal(
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            attributes=(
                (compression if body is not None else 0)
                | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
                | (TRANSACTIONAL_BIT if is_transactional else 0)
                | (CONTROL_BIT if is_control else 0)
                | (DELETE_HORIZON_BIT if has_delete_horizon else 0)
            ),
            last_offset_delta=last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            body=body,
        )
