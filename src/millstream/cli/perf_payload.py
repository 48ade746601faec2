"""Values to write, as many as wanted: of one size, or the lines of a file.

`perf produce` sends them.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.faults import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_RECORD_OVERHEAD: Final = 7
"""Bytes of a record besides its value, nearly always."""
_DISTINCT_MAX: Final = 1024
_DISTINCT_BYTES_MAX: Final = 4 << 20
_TO_LETTERS: Final = bytes(ord("A") + byte % 26 for byte in range(256))


class Chunk(NamedTuple):
    """Values to be sent one after the other."""

    values: Sequence[bytes]
    value_bytes: int


class Payload:
    """Values without keys, in turn; the same at every run."""

    def __init__(self, values: list[bytes], chunk_bytes: int) -> None:
        self._distinct = len(values)
        mean_bytes = sum(map(len, values)) / len(values) + _RECORD_OVERHEAD
        self.records_per_chunk = max(1, int(chunk_bytes / mean_bytes))
        # So many that a chunk from any start is one slice.
        repeats = self.records_per_chunk // self._distinct + 2
        self._values = values * repeats
        self._bytes_before = list(accumulate(map(len, self._values), initial=0))
        self._start = 0

    def chunk(self, records: int) -> Chunk:
        """The next `records` values, at most `records_per_chunk`."""
        start, stop = self._start, self._start + records
        self._start = stop % self._distinct
        value_bytes = self._bytes_before[stop] - self._bytes_before[start]
        return Chunk(self._values[start:stop], value_bytes)


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
