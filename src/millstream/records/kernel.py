"""The one place that chooses between the compiled codec and its plain-Python version.

Everything else in Millstream imports these names from here. `millstream._accel.COMPILED` is the
choice; both give the same results, the same errors and the same error texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel

if TYPE_CHECKING or not _accel.COMPILED:
    from millstream.records.plain.arrow import (
        ArrowChunk,
        ArrowRecords,
        ArrowRecordsBuilder,
        ArrowRecordsReader,
        ArrowStream,
    )
    from millstream.records.plain.consumer_record import ConsumerRecord
    from millstream.records.plain.consumer_records import FetchedBatches
    from millstream.records.plain.crc32c import crc32c
    from millstream.records.plain.murmur2 import murmur2, partition_for_key
    from millstream.records.plain.record_codec import (
        BatchWriter,
        Record,
        decode_records,
        find_since,
        inspect_records,
        scan_records,
    )
    from millstream.records.plain.row_fingerprint import fold_rows
else:
    from millstream._accel.arrow.records import (
        ArrowChunk,
        ArrowRecords,
        ArrowRecordsBuilder,
        ArrowRecordsReader,
        ArrowStream,
    )
    from millstream._accel.codec.consumer_record import ConsumerRecord
    from millstream._accel.codec.consumer_records import FetchedBatches
    from millstream._accel.codec.crc32c import crc32c
    from millstream._accel.codec.murmur2 import murmur2, partition_for_key
    from millstream._accel.codec.record_codec import (
        BatchWriter,
        Record,
        decode_records,
        find_since,
        inspect_records,
        scan_records,
    )
    from millstream._accel.codec.row_fingerprint import fold_rows

__all__ = [
    "ArrowChunk",
    "ArrowRecords",
    "ArrowRecordsBuilder",
    "ArrowRecordsReader",
    "ArrowStream",
    "BatchWriter",
    "ConsumerRecord",
    "FetchedBatches",
    "Record",
    "crc32c",
    "decode_records",
    "find_since",
    "fold_rows",
    "inspect_records",
    "murmur2",
    "partition_for_key",
    "scan_records",
]
