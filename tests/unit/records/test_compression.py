"""Codecs: round trips, levels, framing as Java has it, and everything that must be refused."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import cramjam
import lz4.frame  # type: ignore[import-untyped]  # the package has neither stubs nor marker
import pytest
import zstandard

from millstream.errors import (
    CorruptMessage,
    DecompressedTooLarge,
    InvalidArgument,
    UnsupportedCompressionType,
)
from millstream.records.codecs import zstd
from millstream.records.compression import LEVELS, Compression, compress, decompress

GZIP, SNAPPY, LZ4, ZSTD = list(Compression)[1:]
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
TEXT = b"the quick brown fox jumps over the lazy dog. " * 200
NOISE = Random(1).randbytes(70_000)
XERIAL_HEADER = bytes.fromhex("82534e4150505900 00000001 00000001")
SKIPPABLE = bytes.fromhex("532a4d18 03000000") + b"???"


def lz4_frame(data: bytes, **options: Any) -> bytes:
    frame: bytes = lz4.frame.compress(data, **options)
    return frame


def zstd_frame(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("size", [0, 1, 100, 32_768, 65_536, 65_537, 300_000])
def test_what_was_compressed_comes_back(codec: Compression, size: int) -> None:
    for data in (bytes(size), Random(size).randbytes(size), (TEXT * 40)[:size]):
        for kind in (bytes, bytearray, memoryview):
            compressed = compress(codec, kind(data))
            assert decompress(codec, compressed) == data
            assert decompress(codec, memoryview(compressed)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_repetitive_data_becomes_smaller(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 4


def test_no_compression_copies_nothing() -> None:
    assert compress(Compression.NONE, TEXT) is TEXT
    assert decompress(Compression.NONE, TEXT) is TEXT


@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_of_the_range_works(codec: Compression) -> None:
    levels = LEVELS[codec]
    for level in {levels.minimum, -1 if codec == ZSTD else 1, 3, 9, levels.maximum, levels.default}:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT


@pytest.mark.parametrize(
    ("codec", "fast", "thorough"), [(GZIP, 1, 9), (LZ4, 9, 12), (ZSTD, -5, 19)]
)
def test_a_higher_level_gives_less(codec: Compression, fast: int, thorough: int) -> None:
    words = [NOISE[i * 20 :][: 3 + i % 12] for i in range(500)]
    data = b" ".join(Random(2).choices(words, k=8000))

    assert len(compress(codec, data, thorough)) < len(compress(codec, data, fast))


def test_threads_do_not_share_contexts() -> None:
    def round_trip(seed: int) -> bool:
        data = Random(seed).randbytes(100) * Random(seed).randrange(1, 500)
        return all(decompress(codec, compress(codec, data)) == data for codec in CODECS)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(round_trip, range(100)))


@pytest.mark.parametrize(
    ("codec", "level", "text"),
    [
        (GZIP, 0, "gzip has no level 0; choose 1 to 9, or leave it out for -1"),
        (GZIP, 10, "gzip has no level 10; choose 1 to 9, or leave it out for -1"),
        (LZ4, 0, "lz4 has no level 0; choose 1 to 17, or leave it out for 9"),
        (LZ4, 18, "lz4 has no level 18; choose 1 to 17, or leave it out for 9"),
        (ZSTD, 23, "zstd has no level 23; choose -131072 to 22, or leave it out for 3"),
        (SNAPPY, 1, "snappy has no levels; leave the level out"),
        (Compression.NONE, 1, "none has no levels; leave the level out"),
    ],
)
def test_a_level_outside_the_range_is_refused(codec: Compression, level: int, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        compress(codec, TEXT, level)

    assert str(caught.value) == text


@pytest.mark.parametrize("codec", Compression)
def test_a_codec_has_a_name(codec: Compression) -> None:
    assert Compression.parse(codec.config_name) is codec


@pytest.mark.parametrize("name", ["", "LZ4", "brotli"])
def test_other_names_are_refused_with_the_choice(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Compression.parse(name)

    choice = "choose one of none, gzip, snappy, lz4, zstd"
    assert str(caught.value) == f"no compression is called {name!r}; {choice}"


def test_the_attributes_tell_the_codec() -> None:
    assert Compression.of_attributes(0x7FF8 | 3) is LZ4
    for unknown in (5, 6, 7):
        with pytest.raises(UnsupportedCompressionType, match=f"codec {unknown} is not known"):
            Compression.of_attributes(unknown)


def test_lz4_frames_are_the_ones_java_accepts() -> None:
    frame = compress(LZ4, NOISE[:70_000])

    assert bytes(frame[:7]) == bytes.fromhex("04224d18604082")
    assert int.from_bytes(frame[7:11], "little") == 0x80000000 | 65_536
    assert bytes(frame[-4:]) == bytes(4)


def test_snappy_streams_are_the_ones_java_writes() -> None:
    stream = bytes(compress(SNAPPY, bytes(40_000)))

    assert stream.startswith(XERIAL_HEADER)
    first = int.from_bytes(stream[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(stream[20 : 20 + first]) == 32_768


FOREIGN = {
    "gzip of two members": (GZIP, gzip.compress(TEXT) + gzip.compress(b"more"), TEXT + b"more"),
    "gzip with a file name": (
        GZIP,
        b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + gzip.compress(TEXT)[10:],
        TEXT,
    ),
    "gzip of an empty and a full member": (GZIP, gzip.compress(b"") + gzip.compress(TEXT), TEXT),
    "bare snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), TEXT),
    "bare snappy of nothing": (SNAPPY, b"\0", b""),
    "snappy stream of nothing": (SNAPPY, XERIAL_HEADER, b""),
    "two snappy streams": (SNAPPY, bytes(compress(SNAPPY, TEXT)) * 2, TEXT * 2),
    "lz4 with everything": (
        LZ4,
        lz4_frame(TEXT, store_size=True, content_checksum=True, block_checksum=True),
        TEXT,
    ),
    "lz4 with linked blocks": (LZ4, lz4_frame(TEXT * 20, block_linked=True), TEXT * 20),
    "lz4 with blocks of 4 MiB": (
        LZ4,
        lz4_frame(TEXT * 20, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False),
        TEXT * 20,
    ),
    "two lz4 frames": (LZ4, bytes(compress(LZ4, TEXT)) * 2, TEXT * 2),
    "lz4 frames to skip": (LZ4, SKIPPABLE + bytes(compress(LZ4, TEXT)) + SKIPPABLE, TEXT),
    "only a frame to skip": (ZSTD, SKIPPABLE, b""),
    "zstd without content size": (ZSTD, zstd_frame(TEXT, write_content_size=False), TEXT),
    "zstd with checksum": (ZSTD, zstd_frame(TEXT, write_checksum=True), TEXT),
    "zstd of nothing without content size": (ZSTD, zstd_frame(b"", write_content_size=False), b""),
    "zstd of many blocks": (ZSTD, zstd_frame(TEXT * 100, write_content_size=False), TEXT * 100),
    "two zstd frames": (ZSTD, zstd_frame(TEXT) + SKIPPABLE + zstd_frame(b"x"), TEXT + b"x"),
    "zstd content size of two bytes": (ZSTD, zstd_frame(bytes(1000)), bytes(1000)),
    "zstd content size of one byte": (ZSTD, zstd_frame(b"abc"), b"abc"),
}


@pytest.mark.parametrize(("codec", "data", "expected"), FOREIGN.values(), ids=FOREIGN.keys())
def test_what_other_writers_write_is_read(codec: Compression, data: bytes, expected: bytes) -> None:
    assert decompress(codec, data) == expected
    assert decompress(codec, data, len(expected)) == expected
    if expected:
        with pytest.raises(DecompressedTooLarge):
            decompress(codec, data, len(expected) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_noticed(codec: Compression) -> None:
    data = NOISE[:200] + bytes(2000)
    compressed = bytes(compress(codec, data))

    for size in range(len(compressed)):
        if codec == SNAPPY and size == len(XERIAL_HEADER):
            continue  # a stream of no blocks is complete
        with pytest.raises(CorruptMessage):
            decompress(codec, compressed[:size])


@pytest.mark.parametrize(("codec", "data", "expected"), FOREIGN.values(), ids=FOREIGN.keys())
def test_every_truncation_of_foreign_data_is_noticed_or_harmless(
    codec: Compression, data: bytes, expected: bytes
) -> None:
    for size in range(0, len(data), max(1, len(data) // 300)):
        try:
            shorter = bytes(decompress(codec, data[:size]))
        except CorruptMessage:
            continue
        # Only whole frames before the cut may be given.
        assert expected.startswith(shorter)


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_that_follow_are_noticed(codec: Compression) -> None:
    compressed = bytes(compress(codec, TEXT))

    for more in (b"\0", b"???", b"\0\0\0\x05abc", bytes(20)):
        with pytest.raises(CorruptMessage):
            decompress(codec, compressed + more)


def test_bytes_that_follow_a_bare_snappy_block_are_noticed() -> None:
    with pytest.raises(CorruptMessage, match="snappy: "):
        decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)) + b"?")


BOMB = bytes(64 * 1024 * 1024)
BOMBS = {
    "gzip": (GZIP, zlib.compress(BOMB, wbits=31)),
    "gzip in many members": (GZIP, zlib.compress(bytes(1 << 20), wbits=31) * 64),
    "snappy": (SNAPPY, compress(SNAPPY, BOMB)),
    "bare snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(BOMB))),
    "lz4": (LZ4, compress(LZ4, BOMB)),
    "lz4 in many frames": (LZ4, bytes(compress(LZ4, bytes(1 << 20))) * 64),
    "zstd": (ZSTD, compress(ZSTD, BOMB)),
    "zstd without content size": (ZSTD, zstd_frame(BOMB, write_content_size=False)),
    "zstd in many frames": (ZSTD, zstd_frame(bytes(1 << 20)) * 64),
}


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_ends_at_the_limit(codec: Compression, bomb: bytes) -> None:
    with pytest.raises(DecompressedTooLarge) as caught:
        decompress(codec, bomb, 1 << 20)

    assert str(caught.value) == (
        f"{codec.config_name}: more than 1048576 bytes when decompressed; if the data is meant to "
        "be this large, raise the size limit"
    )


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS.keys())
def test_large_data_within_the_limit_is_read(codec: Compression, bomb: bytes) -> None:
    assert len(decompress(codec, bomb, len(BOMB))) == len(BOMB)


CORRUPT = {
    "gzip: no header": (GZIP, b"not gzip at all", "gzip: Error -3"),
    "gzip: wrong checksum": (GZIP, gzip.compress(TEXT)[:-8] + bytes(8), "gzip: Error -3"),
    "snappy: a claim that cannot be": (
        SNAPPY,
        b"\xff\xff\xff\xff\x0f\0",
        "snappy: 6 bytes claim to hold 4294967295",
    ),
    "snappy: a length that is none": (SNAPPY, b"\xff" * 10, "snappy: "),
    "snappy: a block that is cut off": (
        SNAPPY,
        XERIAL_HEADER + b"\0\0\0\x09" + b"12345",
        "snappy: cut off after 25 bytes",
    ),
    "snappy: a length that is cut off": (
        SNAPPY,
        XERIAL_HEADER + b"\0\0\0",
        "snappy: cut off after 19 bytes",
    ),
    "snappy: a header that is cut off": (
        SNAPPY,
        XERIAL_HEADER[:10],
        "snappy: cut off after 10 bytes",
    ),
    "snappy: a negative block": (
        SNAPPY,
        XERIAL_HEADER + b"\xff\xff\xff\xff",
        "snappy: a block of -1 bytes at byte 16",
    ),
    "lz4: another magic number": (
        LZ4,
        b"\x02\x21\x4c\x18????",
        "lz4: no frame at byte 0: the magic number is 0x184c2102",
    ),
    "lz4: another version": (
        LZ4,
        b"\x04\x22\x4d\x18\x20\x40\0\0\0\0\0",
        "lz4: a frame header that is not LZ4's at byte 0",
    ),
    "lz4: an unknown block size": (
        LZ4,
        b"\x04\x22\x4d\x18\x60\x30\0\0\0\0\0",
        "lz4: a frame header that is not LZ4's at byte 0",
    ),
    "lz4: a wrong header checksum": (
        LZ4,
        b"\x04\x22\x4d\x18\x60\x40\x83\0\0\0\0",
        "lz4: LZ4F_decompress failed",
    ),
    "lz4: a dictionary": (LZ4, b"\x04\x22\x4d\x18\x61\x40" + bytes(9), "lz4: LZ4F_"),
    "lz4: a block that is cut off": (
        LZ4,
        b"\x04\x22\x4d\x18\x60\x40\x82\xff\0\0\0abc",
        "lz4: cut off after 14 bytes",
    ),
    "lz4: an impossible block": (
        LZ4,
        b"\x04\x22\x4d\x18\x60\x40\x82\x03\0\0\0\xff\xff\xff\0\0\0\0",
        "lz4: LZ4F_decompress failed",
    ),
    "lz4: a wrong content checksum": (
        LZ4,
        lz4_frame(TEXT, content_checksum=True)[:-4] + bytes(4),
        "lz4: LZ4F_decompress failed",
    ),
    "zstd: another magic number": (
        ZSTD,
        b"\x27\xb5\x2f\xfd????",
        "zstd: no frame at byte 0: the magic number is 0xfd2fb527",
    ),
    "zstd: a claim that cannot be": (
        ZSTD,
        bytes.fromhex("28b52ffd a0 00000040 010000"),
        "zstd: blocks for 0 bytes claim to hold 1073741824",
    ),
    "zstd: a reserved block": (ZSTD, bytes.fromhex("28b52ffd 00 00 0f0000 00"), "zstd: "),
    "zstd: a skippable frame that is cut off": (
        ZSTD,
        SKIPPABLE[:-1],
        "zstd: cut off after 10 bytes",
    ),
    "zstd: a wrong checksum": (
        ZSTD,
        zstd_frame(TEXT, write_checksum=True)[:-4] + bytes(4),
        "zstd: ",
    ),
}


@pytest.mark.parametrize(("codec", "data", "text"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_data_ends_in_words(codec: Compression, data: bytes, text: str) -> None:
    with pytest.raises(CorruptMessage) as caught:
        decompress(codec, data)

    assert str(caught.value).startswith(text)


def test_a_claimed_size_takes_no_memory() -> None:
    """The frame claims 200 MiB in blocks that do not exist."""
    frame = bytes.fromhex("28b52ffd a0 0000800c") + b"\x03\0\x10?"

    with pytest.raises(CorruptMessage, match="blocks for 131072 bytes claim to hold 209715200"):
        decompress(ZSTD, frame)


class StopsEarly:
    """A library's decompressor that is content with half a frame."""

    eof = False

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        return b"half"

    def decompressobj(self) -> StopsEarly:
        return self


def test_a_library_that_stops_early_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", StopsEarly)
    with pytest.raises(CorruptMessage, match="lz4: the frame does not end where its blocks do"):
        decompress(LZ4, lz4_frame(TEXT, block_linked=True))

    monkeypatch.setattr(zstd, "_decompressors", [StopsEarly()])
    frame = zstd_frame(TEXT, write_content_size=False)
    with pytest.raises(CorruptMessage, match="zstd: the frame does not end where its blocks do"):
        decompress(ZSTD, frame, 100_000)


def test_codec_libraries_are_imported_on_first_use() -> None:
    code = (
        "import sys, millstream.records;"
        "assert not {'cramjam', 'lz4', 'zstandard'} & sys.modules.keys()"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
