"""Batches for storage tests, in one line each."""

from __future__ import annotations

from millstream.records.batch import RecordBatch
from millstream.records.builder import RecordBatchBuilder
from millstream.records.compression import Compression
from millstream.records.control import ControlType, EndTxnMarker, end_txn_marker

NOW_MS = 1_700_000_000_000


def batch_bytes(
    base_offset: int = 0,
    *,
    records: int = 1,
    value_bytes: int = 10,
    timestamps: list[int] | None = None,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    leader_epoch: int = 0,
    is_transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytes:
    """A batch as a leader would append it."""
    builder = RecordBatchBuilder()
    for i in range(records):
        timestamp = timestamps[i] if timestamps else NOW_MS + base_offset + i
        builder.append(timestamp, b"key-%d" % (base_offset + i), bytes(value_bytes))
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
        compression=compression,
    )


def producer_batch(
    base_offset: int,
    *,
    pid: int = 1,
    epoch: int = 0,
    sequence: int = 0,
    records: int = 1,
    timestamp: int = NOW_MS,
    is_transactional: bool = False,
) -> RecordBatch:
    """A batch of an idempotent or transactional producer."""
    return RecordBatch(
        batch_bytes(
            base_offset,
            records=records,
            timestamps=[timestamp] * records,
            pid=pid,
            epoch=epoch,
            sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def marker_batch(
    base_offset: int,
    *,
    pid: int = 1,
    epoch: int = 0,
    is_abort: bool = False,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
) -> RecordBatch:
    """The end of a transaction."""
    kind = ControlType.ABORT if is_abort else ControlType.COMMIT
    marker = EndTxnMarker(kind, coordinator_epoch)
    return RecordBatch(
        end_txn_marker(
            marker,
            producer_id=pid,
            producer_epoch=epoch,
            timestamp=timestamp,
            base_offset=base_offset,
        )
    )
