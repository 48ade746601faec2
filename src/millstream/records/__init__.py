"""Record batches: the bytes that producers send, logs keep and consumers read.

`RecordBatchBuilder` makes them, `RecordBatch` and `split_batches` look at them in place, and
`kernel` does the work, compiled or in plain Python. Nothing here knows files, sockets or time.
"""

from __future__ import annotations

from millstream.records.batch import RecordBatch, split_batches
from millstream.records.builder import RecordBatchBuilder
from millstream.records.compression import DECOMPRESSED_SIZE_MAX, Compression, compress, decompress
from millstream.records.control import (
    ControlType,
    EndTxnMarker,
    control_batch,
    control_type,
    end_txn_marker,
    parse_end_txn_marker,
)
from millstream.records.kernel import (
    BatchWriter,
    Record,
    crc32c,
    decode_records,
    murmur2,
    partition_for_key,
    scan_records,
)
from millstream.records.layout import TimestampType
from millstream.records.legacy import LegacyBatch

__all__ = [
    "DECOMPRESSED_SIZE_MAX",
    "BatchWriter",
    "Compression",
    "ControlType",
    "EndTxnMarker",
    "LegacyBatch",
    "Record",
    "RecordBatch",
    "RecordBatchBuilder",
    "TimestampType",
    "compress",
    "control_batch",
    "control_type",
    "crc32c",
    "decode_records",
    "decompress",
    "end_txn_marker",
    "murmur2",
    "parse_end_txn_marker",
    "partition_for_key",
    "scan_records",
    "split_batches",
]
