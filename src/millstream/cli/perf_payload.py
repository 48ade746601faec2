"""Batches to write, as many as wanted: records of one size, or the lines of a file.

`perf produce` sends them. Records are encoded anew for every batch, as a producer would, but by
the kernel and not one by one.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.faults import CommandFailed
from millstream.records import Compression, RecordBatchBuilder
from millstream.records.layout import HEADER_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.types import ReadableBuffer

_DISTINCT_MAX: Final = 1024
_DISTINCT_BYTES_MAX: Final = 4 << 20
_TO_LETTERS: Final = bytes(ord("A") + byte % 26 for byte in range(256))


class Batch(NamedTuple):
    """A batch that is ready to be sent."""

    data: ReadableBuffer
    records: int
    value_bytes: int


class Payload:
    """Values without keys, in turn; the same at every run."""

    def __init__(self, values: list[bytes], batch_bytes: int, compression: Compression) -> None:
        self._compression = compression
        self._builder = RecordBatchBuilder()
        self._distinct = len(values)
        self._builder.extend((0, None, value) for value in values)
        record_bytes = len(self._builder.body()) / len(values)
        self.records_per_batch = max(1, int((batch_bytes - HEADER_SIZE) / record_bytes))
        # So many that a batch from any start is one slice. The time is the batch's: its header
        # has it, and the records are all as old as that.
        repeats = self.records_per_batch // self._distinct + 2
        self._rows = [(0, None, value) for value in values] * repeats
        self._bytes_before = list(accumulate((len(row[2]) for row in self._rows), initial=0))
        self._start = 0

    def batch(self, records: int, now_ms: int) -> Batch:
        """The next `records` records, at most `records_per_batch`."""
        start, stop = self._start, self._start + records
        self._start = stop % self._distinct
        self._builder.clear()
        self._builder.extend(self._rows[start:stop])
        data = self._builder.build(
            compression=self._compression, base_timestamp=now_ms, max_timestamp=now_ms
        )
        return Batch(data, records, self._bytes_before[stop] - self._bytes_before[start])


def random_values(size: int) -> list[bytes]:
    """Capital letters by chance: they compress to about two thirds."""
    count = max(1, min(_DISTINCT_MAX, _DISTINCT_BYTES_MAX // max(1, size)))
    letters = Random(size).randbytes(count * size).translate(_TO_LETTERS)
    return [letters[number * size : (number + 1) * size] for number in range(count)]


def values_of_file(path: Path) -> list[bytes]:
    """The lines of a file, without those that are empty."""
    try:
        values = [line for line in path.read_bytes().splitlines() if line]
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror or error}") from error
    if not values:
        raise CommandFailed(f"{path} has no lines to take values from")
    return values
