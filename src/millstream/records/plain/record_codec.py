"""The plain version of `_accel.codec.record_codec`: the same names from one place."""

from __future__ import annotations

from millstream.records.plain.decoding import decode_records
from millstream.records.plain.record import Record
from millstream.records.plain.walking import find_since, inspect_records, scan_records
from millstream.records.plain.writing import BatchWriter

__all__ = [
    "BatchWriter",
    "Record",
    "decode_records",
    "find_since",
    "inspect_records",
    "scan_records",
]
