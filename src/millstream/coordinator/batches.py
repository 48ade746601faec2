"""A coordinator's records as batches of its log, and back into its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import ProducerStamp
from millstream.errors import CorruptMessage
from millstream.records import (
    ControlType,
    LegacyBatch,
    RecordBatchBuilder,
    control_type,
    split_batches,
)
from millstream.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.ports import CoordinatorShard
    from millstream.protocol.records_framing import CoordinatorRecords
    from millstream.records import RecordBatch

_RECORD_OVERHEAD: Final = 32
"""More than a record needs besides its key and value."""
_BATCH_OVERHEAD: Final = 128


def encode_batches(
    codec: CoordinatorRecords,
    records: Sequence[CoordinatorRecord],
    wall_ms: int,
    stamp: ProducerStamp | None,
    size_max: int | None,
) -> Iterable[tuple[bytearray, Sequence[CoordinatorRecord]]]:
    """Batches with the records that are in each; a single one if `size_max` is None."""
    if size_max is not None:
        return _split(codec, records, wall_ms, stamp, size_max)
    builder = RecordBatchBuilder(1024)
    for record in records:
        builder.append(wall_ms, *encode_record(codec, record))
    return ((_build(builder, stamp), records),)


def encode_record(
    codec: CoordinatorRecords, record: CoordinatorRecord
) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    return record.encoded or codec.encode(record.key, record.value, record.version)


def _split(
    codec: CoordinatorRecords,
    records: Sequence[CoordinatorRecord],
    wall_ms: int,
    stamp: ProducerStamp | None,
    size_max: int,
) -> Iterator[tuple[bytearray, Sequence[CoordinatorRecord]]]:
    builder, size, first = RecordBatchBuilder(1024), _BATCH_OVERHEAD, 0
    for place, record in enumerate(records):
        key, value = encode_record(codec, record)
        size += len(key) + (0 if value is None else len(value)) + _RECORD_OVERHEAD
        if size > size_max and place > first:
            yield _build(builder, stamp), records[first:place]
            builder, size, first = RecordBatchBuilder(1024), _BATCH_OVERHEAD, place
        builder.append(wall_ms, key, value)
    yield _build(builder, stamp), records[first:]


def _build(builder: RecordBatchBuilder, stamp: ProducerStamp | None) -> bytearray:
    producer_id, epoch = stamp or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return bytearray(
        builder.build(
            producer_id=producer_id, producer_epoch=epoch, is_transactional=stamp is not None
        )
    )


def replay_batch(
    codec: CoordinatorRecords, data: bytes, shard: CoordinatorShard, from_offset: int
) -> int:
    """Replay what was read from a log; the offset to go on with."""
    next_offset = from_offset
    for batch in split_batches(data):
        if isinstance(batch, LegacyBatch):
            raise CorruptMessage("a coordinator's log has messages of an old format")
        batch.check_crc()
        if batch.is_control:
            _replay_control(batch, shard)
        else:
            _replay_records(codec, batch, shard, from_offset)
        next_offset = batch.next_offset
    return next_offset


def _replay_records(
    codec: CoordinatorRecords, batch: RecordBatch, shard: CoordinatorShard, from_offset: int
) -> None:
    stamp = None
    if batch.is_transactional:
        stamp = ProducerStamp(batch.producer_id, batch.producer_epoch)
    for record in batch.records(from_offset):
        if record.key is None:
            raise CorruptMessage(f"the record at offset {record.offset} has no key")
        shard.replay(*codec.decode(record.key, record.value), stamp)


def _replay_control(batch: RecordBatch, shard: CoordinatorShard) -> None:
    for record in batch.records():
        kind = control_type(record)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            stamp = ProducerStamp(batch.producer_id, batch.producer_epoch)
            shard.replay_end_of_transaction(stamp, is_committed=kind is ControlType.COMMIT)
