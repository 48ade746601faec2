"""What does our framing add to a compression library? Each codec beside the bare library's call.

Part of `benchmarks.records`. One batch's worth of records that compress about as JSON does.
"""

from __future__ import annotations

import json
import statistics
import time
import zlib
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.records.compression import Compression, compress, decompress

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 512 * 1024


def sample() -> bytes:
    """Events as services log them: the same words, other numbers."""
    events = bytearray()
    number = 1
    while len(events) < SIZE:
        number = number * 48271 % 0x7FFFFFFF
        event = {
            "id": number,
            "user": f"user-{number % 9973}",
            "action": "view",
            "ms": number % 500,
        }
        events += json.dumps(event).encode()
    return bytes(events[:SIZE])


def bare_calls(data: bytes) -> dict[Compression, tuple[Callable[[], Any], Callable[[], Any]]]:
    """(compress, decompress) as one would write them without Kafka's framing and our checks."""
    cramjam: Any = import_module("cramjam")
    lz4: Any = import_module("lz4.frame")
    zstandard: Any = import_module("zstandard")
    gzipped = zlib.compress(data, -1, wbits=31)
    snapped = bytes(cramjam.snappy.compress_raw(data))
    framed = lz4.compress(data, block_linked=False, block_size=lz4.BLOCKSIZE_MAX64KB)
    compressor = zstandard.ZstdCompressor(level=3)
    decompressor = zstandard.ZstdDecompressor()
    zstd = compressor.compress(data)
    return {
        Compression.GZIP: (
            lambda: zlib.compress(data, -1, wbits=31),
            lambda: zlib.decompress(gzipped, wbits=31),
        ),
        Compression.SNAPPY: (
            lambda: bytes(cramjam.snappy.compress_raw(data)),
            lambda: bytes(cramjam.snappy.decompress_raw(snapped)),
        ),
        Compression.LZ4: (
            lambda: lz4.compress(data, block_linked=False, block_size=lz4.BLOCKSIZE_MAX64KB),
            lambda: lz4.decompress(framed),
        ),
        Compression.ZSTD: (
            lambda: compressor.compress(data),
            lambda: decompressor.decompress(zstd),
        ),
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU microseconds of each verb of each codec, ours and the library's, interleaved."""
    data = sample()
    found = {}
    for codec, (bare_compress, bare_decompress) in bare_calls(data).items():
        packed = compress(codec, data)
        assert bytes(decompress(codec, packed)) == data
        name = codec.config_name
        found[f"compress_{name}"] = _interleaved(
            partial(compress, codec, data), bare_compress, rounds
        )
        found[f"decompress_{name}"] = _interleaved(
            partial(decompress, codec, packed), bare_decompress, rounds
        )
    return found


def _interleaved(ours: Callable[[], Any], bare: Callable[[], Any], rounds: int) -> dict[str, float]:
    samples: dict[str, list[int]] = {"ours": [], "the bare library": []}
    for _ in range(rounds):
        for taken, run in zip(samples.values(), (ours, bare), strict=True):
            run()
            start = time.thread_time_ns()
            run()
            taken.append(time.thread_time_ns() - start)
    return {name: statistics.median(taken) / 1000 for name, taken in samples.items()}
