"""Arrow data with wrong numbers for both kernels: rows or a documented error, and equal results.

`python -m tests.fuzz.arrow --seconds 60 [--seed N]` runs until the time is up and prints the seed
of a failure. Only what a reader can notice is made wrong: the interface does not tell how large a
buffer is, so the last offset of a column and the sizes of its buffers stay true.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import sys
import time
from typing import Any

from millstream import _accel
from millstream.errors import InvalidArgument
from tests.unit.records.arrow_sources import ENTRY, Tampered, pa
from tests.unit.records.kernels import NOT_BUILT, PLAIN, compiled

BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.string_view()]
FIELDS = ["length", "offset", "null_count", "n_buffers", "n_children", "buffers", "children"]
# Larger counts of buffers or children, and lengths that fit, would be believed.
COUNTS = [-1, 0, -(2**63)]
NUMBERS = [*COUNTS, 2**60, 2**62, 2**63 - 1]


def outcome(kernel: Any, data: Any) -> Any:
    """All that a chunk tells, by every way of reading it, or the documented error."""
    try:
        found = []
        for chunk in kernel.ArrowRecordsReader(data):
            numbers, places = chunk.spread(0, len(chunk), 3, True)
            writer = kernel.BatchWriter()
            writer.extend_arrow(chunk, 0, len(chunk), 1 << 30, 5)
            rows = [chunk.row(index) for index in range(len(chunk))]
            found.append((rows, bytes(numbers), places, bytes(writer.seal(last_offset_delta=9))))
    except (InvalidArgument, OverflowError) as error:
        return type(error), str(error)
    return found


def random_table(source: random.Random) -> Any:
    """A sound record batch, as a slice of a longer one now and then."""
    count = source.randrange(1, 8)

    def strings(kind: Any) -> Any:
        texts = [source.choice([None, "", "k", "x" * 40]) for _ in range(count)]
        return pa.array(texts, pa.string()).cast(kind)

    columns = {"value": strings(source.choice(BYTES)), "key": strings(source.choice(BYTES))}
    if source.random() < 0.5:
        entries = [{"key": "k" * source.randrange(30), "value": source.choice([None, b"v"])}]
        lists = [entries * source.randrange(4) for _ in range(count)]
        columns["headers"] = pa.array(lists, pa.list_(ENTRY))
    if source.random() < 0.5:
        columns["timestamp"] = pa.array([source.randrange(2**62) for _ in range(count)])
    batch = pa.record_batch(columns)
    return batch.slice(source.randrange(count)) if source.random() < 0.3 else batch


class Damage:
    """Wrong numbers in an exported array; keeps the memory of buffers that it replaced."""

    def __init__(self, source: random.Random, layouts: list[Any]) -> None:
        self._source = source
        self._layouts = layouts
        self._memory: list[Any] = []

    def __call__(self, array: Any) -> None:
        """Change one thing or two."""
        for _ in range(self._source.randrange(1, 3)):
            has_children = array.children and array.n_children > 0
            child = self._source.randrange(-1, array.n_children) if has_children else -1
            target = array.children[child].contents if child >= 0 else array
            if child >= 0 and self._source.random() < 0.6:
                self._spoil_values(target, self._layouts[child])
            else:
                self._spoil_field(target)

    def _spoil_field(self, array: Any) -> None:
        field = self._source.choice(FIELDS)
        if field in {"buffers", "children"}:
            setattr(array, field, type(getattr(array, field))())
        elif field == "null_count":
            array.null_count = self._source.choice([-1, 0])
        else:
            numbers = NUMBERS if field in {"length", "offset"} else COUNTS
            setattr(array, field, self._source.choice(numbers))

    def _spoil_values(self, array: Any, kind: Any) -> None:
        """Other offsets, all but the last, or other numbers in views."""
        width = 8 if pa.types.is_large_binary(kind) or pa.types.is_int64(kind) else 4
        is_view = kind in {pa.binary_view(), pa.string_view()}
        count = (array.offset + array.length) * (4 if is_view else 1) + (not is_view)
        if not array.buffers or array.n_buffers < 2 or not array.buffers[1] or not 0 < count < 999:
            return
        numbers = ((ctypes.c_int64 if width == 8 else ctypes.c_int32) * count).from_buffer_copy(
            ctypes.string_at(array.buffers[1], width * count)
        )
        self._memory.append(numbers)
        for _ in range(self._source.randrange(1, 3)):
            at = self._source.randrange(count) if is_view or count == 1 else count - 2
            at = self._source.randrange(at + 1)
            if is_view or at < count - 1:
                numbers[at] = self._source.choice([-1, 0, 1, 13, 40, 4000, 2**31 - 1, -(2**31)])
        array.buffers[1] = ctypes.addressof(numbers)


def check_seed(seed: int) -> None:
    """One example: a sound batch, damaged in the same way for both kernels."""
    table = random_table(random.Random(seed))
    layouts = [field.type for field in table.schema]
    found = [
        outcome(kernel, Tampered(table, Damage(random.Random(seed + 1), layouts)))
        for kernel in (PLAIN, compiled())
    ]
    assert found[0] == found[1]


def main() -> int:
    """Run examples until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="run this one example")
    options = parser.parse_args()
    if not _accel.COMPILED:
        sys.stdout.write(f"skipped: {NOT_BUILT}\n")
        return 0
    if options.seed is not None:
        check_seed(options.seed)
        return 0
    started = time.perf_counter()
    first = seed = random.SystemRandom().randrange(2**48)
    while time.perf_counter() - started < options.seconds:
        try:
            check_seed(seed)
        except BaseException:
            sys.stderr.write(f"failed: python -m tests.fuzz.arrow --seed {seed}\n")
            raise
        seed += 1
    sys.stdout.write(f"{seed - first} damaged arrays, seeds from {first}: documented errors only\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
