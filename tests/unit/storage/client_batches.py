"""Batches of a client, as `LogValidator` sees them."""

from __future__ import annotations

from typing import Any

from millstream.records import RecordBatch, RecordBatchBuilder
from millstream.storage.log.config import LogConfig
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.log.validator import LogValidator

NOW = 1_700_000_000_000
ROWS = [(NOW, b"k%d" % number, b"v%d" % number) for number in range(3)]


def batch(rows: list[Any] = ROWS, **build: Any) -> bytearray:
    builder = RecordBatchBuilder()
    builder.extend(rows)
    return bytearray(builder.build(**build))


def resealed(data: bytearray) -> bytearray:
    """The batch with a right checksum after a test has changed its header."""
    header = RecordBatch(data)
    header.stamp(header.timestamp_type, header.max_timestamp)
    return data


def admit(
    data: bytes | bytearray, origin: AppendOrigin = AppendOrigin.CLIENT, **config: Any
) -> RecordBatch:
    validator = LogValidator(LogConfig(**config))
    (admitted,) = validator.inspect(data, NOW, origin).number(100, 7)
    return admitted


def contents(admitted: RecordBatch) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in admitted.records()]


EXPECTED = [(100, b"k0", b"v0"), (101, b"k1", b"v1"), (102, b"k2", b"v2")]
