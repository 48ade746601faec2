"""Records to and from Arrow by the C data interface, compiled."""

from __future__ import annotations

from millstream._accel.arrow.builder import ArrowRecords, ArrowRecordsBuilder, ArrowStream
from millstream._accel.arrow.reader import ArrowChunk, ArrowRecordsReader

__all__ = ["ArrowChunk", "ArrowRecords", "ArrowRecordsBuilder", "ArrowRecordsReader", "ArrowStream"]
