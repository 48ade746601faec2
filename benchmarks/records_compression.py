"""What does our framing add to a compression library? Each codec beside the bare library's call.

Part of `benchmarks.records`. A small and a large batch's worth of records that compress about as
JSON does.
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

SIZES = {"16k": 16 * 1024, "512k": 512 * 1024}
BYTES_PER_SAMPLE = 512 * 1024


def sample(size: int) -> bytes:
    """Events as services log them: the same words, other numbers."""
    events = bytearray()
    number = 1
    while len(events) < size:
        number = number * 48271 % 0x7FFFFFFF
        event = {
            "id": number,
            "user": f"user-{number % 9973}",
            "action": "view",
            "ms": number % 500,
        }
        events += json.dumps(event).encode()
    return bytes(events[:size])


def bare_calls(data: bytes) -> dict[Compression, tuple[Callable[[], Any], Callable[[], Any]]]:
    """(compress, decompress) as one would write them without Kafka's framing and our checks."""
    cramjam: Any = import_module("cramjam")
    lz4: Any = import_module("lz4.frame")
    zstandard: Any = import_module("zstandard")
    gzipped = zlib.compress(data, -1, wbits=31)
    snapped = bytes(cramjam.snappy.compress_raw(data))
    lz4_settings = {"block_linked": False, "block_size": lz4.BLOCKSIZE_MAX64KB, "store_size": False}
    framed = lz4.compress(data, **lz4_settings)
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
            lambda: lz4.compress(data, **lz4_settings),
            lambda: lz4.decompress(framed),
        ),
        Compression.ZSTD: (
            lambda: compressor.compress(data),
            lambda: decompressor.decompress(zstd),
        ),
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU microseconds of each verb of each codec, ours and the library's, interleaved."""
    return {
        f"{verb}_{label}": costs
        for label, size in SIZES.items()
        for verb, costs in _measure_size(sample(size), rounds).items()
    }


def _measure_size(data: bytes, rounds: int) -> dict[str, dict[str, float]]:
    calls = BYTES_PER_SAMPLE // len(data)
    found = {}
    for codec, (bare_compress, bare_decompress) in bare_calls(data).items():
        packed = compress(codec, data)
        assert bytes(decompress(codec, packed)) == data
        name = codec.config_name
        found[f"compress_{name}"] = _interleaved(
            partial(compress, codec, data), bare_compress, rounds, calls
        )
        found[f"decompress_{name}"] = _interleaved(
            partial(decompress, codec, packed), bare_decompress, rounds, calls
        )
    return found


def _interleaved(
    ours: Callable[[], Any], bare: Callable[[], Any], rounds: int, calls: int
) -> dict[str, float]:
    samples: dict[str, list[int]] = {"ours": [], "the bare library": []}
    for _ in range(rounds):
        for taken, run in zip(samples.values(), (ours, bare), strict=True):
            run()
            start = time.thread_time_ns()
            for _ in range(calls):
                run()
            taken.append(time.thread_time_ns() - start)
    return {name: statistics.median(taken) / calls / 1000 for name, taken in samples.items()}
