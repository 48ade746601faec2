"""The plain-Python version of `millstream._accel.arrow`: the same names from one place."""

from __future__ import annotations

from millstream.records.plain.arrow_builder import ArrowRecords, ArrowRecordsBuilder
from millstream.records.plain.arrow_reader import ArrowChunk, ArrowRecordsReader
from millstream.records.plain.arrow_stream import ArrowStream

__all__ = ["ArrowChunk", "ArrowRecords", "ArrowRecordsBuilder", "ArrowRecordsReader", "ArrowStream"]
