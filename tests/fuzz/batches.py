"""Mutated record batches for both kernels: only documented errors, and equal results.

`python -m tests.fuzz.batches --seconds 60 [--seed N]` runs until the time is up and prints the seed
of a failure; the property tests use the same checks on Hypothesis's examples.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import TYPE_CHECKING, Any

from millstream import _accel
from millstream.errors import CorruptMessage, UnsupportedCompressionType
from millstream.records import Compression, RecordBatch, RecordBatchBuilder, split_batches
from tests.unit.records.kernels import NOT_BUILT, PLAIN, compiled
from tests.unit.records.test_legacy import message, wrapper

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types import Headers

DOCUMENTED = (CorruptMessage, UnsupportedCompressionType)
SIZE_LIMIT = 1 << 20
HEADERS: list[Headers] = [(), (("h", b"x"),), (("a", None), ("\udcff", b""))]


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """The records as tuples, or the documented error with its text. Other errors escape."""
    try:
        found = call(*arguments)
    except DOCUMENTED as error:
        return type(error), str(error)
    return [
        item
        if isinstance(item, tuple)
        else (item.offset, item.timestamp, item.key, item.value, item.headers)
        for item in found
    ]


def check_body(body: bytes, count: int, base_offset: int, base_timestamp: int) -> None:
    """Both kernels must say the same about a records section."""
    kernel = compiled()
    for append_timestamp in (None, 5):
        arguments = (body, count, base_offset, base_timestamp, append_timestamp)
        assert outcome(PLAIN.decode_records, *arguments) == outcome(
            kernel.decode_records, *arguments
        )
    assert outcome(PLAIN.scan_records, body, count) == outcome(kernel.scan_records, body, count)


def check_buffer(buffer: bytes) -> None:
    """Splitting and reading must end in records or in a documented error."""
    try:
        for batch in split_batches(buffer):
            batch.is_intact()
            batch.records(size_limit=SIZE_LIMIT)
            if isinstance(batch, RecordBatch):
                check_body(
                    bytes(batch.body(SIZE_LIMIT)),
                    batch.record_count,
                    batch.base_offset,
                    batch.base_timestamp,
                )
    except DOCUMENTED:
        pass


def random_batch(source: random.Random) -> bytes:
    """A valid batch of any format and codec."""
    codec = source.choice(list(Compression))
    if source.random() < 0.2 and codec != Compression.ZSTD:
        magic = source.randrange(2)
        inner = b"".join(message(magic, offset=i, value=b"v" * i) for i in range(3))
        return wrapper(magic, codec, inner, offset=9) if codec else inner
    builder = RecordBatchBuilder()
    for _ in range(source.randrange(1, 6)):
        builder.append(
            source.choice([0, 1_700_000_000_000, -1, source.randrange(2**41)]),
            source.choice([None, b"", source.randbytes(source.randrange(200))]),
            source.choice([None, b"", source.randbytes(source.randrange(200)), b"x" * 9000]),
            source.choice(HEADERS),
        )
    return builder.build(compression=codec, base_offset=source.randrange(2**40))


def mutated(source: random.Random, data: bytes) -> bytes:
    """A few edits, most of them behind the header, where the records are."""
    changed = bytearray(data)
    for _ in range(source.randrange(1, 5)):
        at = source.randrange(len(changed) + 1)
        if source.random() < 0.6:
            at = min(len(changed), 61 + source.randrange(40))
        size = source.randrange(1, 9)
        match source.randrange(5):
            case 0:
                changed[at : at + 1] = source.randbytes(1)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = source.choice([b"\xff" * size, bytes(size), b"\x80" * size])
            case 3:
                changed[at:at] = changed[at : at + size]
            case _:
                changed[at : at + size] = source.randbytes(size)
    return bytes(changed)


def check_seed(seed: int) -> None:
    """One example: a batch, damaged, as a buffer and as a records section of its own."""
    source = random.Random(seed)
    data = random_batch(source)
    damaged = mutated(source, data)
    check_buffer(damaged)
    count, base_timestamp = source.choice([1, 3, 2**31 - 1]), source.choice([0, 2**63 - 3])
    check_body(damaged[61:], count, 2**63 - 3, base_timestamp)


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
            sys.stderr.write(f"failed: python -m tests.fuzz.batches --seed {seed}\n")
            raise
        seed += 1
    sys.stdout.write(
        f"{seed - first} mutated batches, seeds from {first}: documented errors only\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
