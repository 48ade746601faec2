"""LZ4 frames by the lz4 package, in the shape that Java's reader insists on.

Written are independent blocks of 64 KiB without checksums or content size. Read is everything that
the frame format knows, several frames in a row too: librdkafka and Python writers use more of it
than Java does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import lz4.frame  # type: ignore[import-untyped]  # the package has neither stubs nor marker

from millstream.records.codecs.faults import corrupt
from millstream.records.codecs.framing import MAGIC_SIZE, UINT32, decompress_frames

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

FAST = 9
"""Kafka's default level; it stands for the fast compressor and not for a level of the slow one."""

_HIGH_COMPRESSION_MIN = 3
"""Below, the library would use the fast compressor again."""

_MAGIC = 0x184D2204
_PLAIN_HEADER = bytes.fromhex("04224d18 60 40 82")
"""Independent blocks of 64 KiB, nothing optional; the last byte is the header's checksum."""
_HEADER_SIZE = len(_PLAIN_HEADER)
_VERSION_MASK, _VERSION = 0xC0, 0x40
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY_ID = 0x10, 0x08, 0x04, 0x01
_CONTENT_SIZE_SIZE, _DICTIONARY_ID_SIZE, _CHECKSUM_SIZE, _BLOCK_HEADER_SIZE = 8, 4, 4, 4
_BLOCK_SIZES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
_STORED = 0x80000000
_EXPANSION_MAX = 255
"""No byte of a compressed block gives more."""


def compress(data: ReadableBuffer, level: int) -> bytes:
    """One frame."""
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == FAST else max(level, _HIGH_COMPRESSION_MIN),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return compressed


def decompress(data: ReadableBuffer, size_limit: int) -> bytes:
    """The contents of all frames, one after the other."""
    content = _decompress_plain_frame(data, size_limit)
    if content is None:
        return decompress_frames("lz4", data, size_limit, _walk, _decompress_frame)
    return content


def _decompress_plain_frame(data: ReadableBuffer, size_limit: int) -> bytes | None:
    """The contents of a single frame as Java and we write it, else None.

    The library may be left alone with it: nothing is claimed, and it cannot pass the limit.
    """
    if data[: len(_PLAIN_HEADER)] != _PLAIN_HEADER or len(data) * _EXPANSION_MAX > size_limit:
        return None
    try:
        content: bytes
        content, used = lz4.frame.decompress(data, return_bytes_read=True)
    except RuntimeError:
        return None
    return content if used == len(data) else None


def _decompress_frame(frame: memoryview, size_max: int, size_left: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        content: bytes = decompressor.decompress(frame, max_length=min(size_max, size_left) + 1)
    except RuntimeError as error:
        raise corrupt("lz4", error) from error
    if not decompressor.eof and len(content) <= size_left:
        raise corrupt("lz4", "the frame does not end where its blocks do")
    return content


def _walk(view: memoryview, start: int, magic: int) -> tuple[int, int]:
    """Follow the block headers of a frame: where it ends, and what it can hold at most."""
    if magic != _MAGIC:
        raise corrupt("lz4", f"no frame at byte {start}: the magic number is {magic:#010x}")
    flags = view[start + MAGIC_SIZE]
    block_size = _BLOCK_SIZES.get(view[start + MAGIC_SIZE + 1] >> 4)
    if flags & _VERSION_MASK != _VERSION or block_size is None:
        raise corrupt("lz4", f"a frame header that is not LZ4's at byte {start}")
    position = start + _HEADER_SIZE
    position += _CONTENT_SIZE_SIZE if flags & _CONTENT_SIZE else 0
    position += _DICTIONARY_ID_SIZE if flags & _DICTIONARY_ID else 0
    after_block = _CHECKSUM_SIZE if flags & _BLOCK_CHECKSUM else 0
    size_max = 0
    while header := UINT32.unpack_from(view, position)[0]:
        length = header & ~_STORED
        size_max += min(length if header & _STORED else length * _EXPANSION_MAX, block_size)
        position += _BLOCK_HEADER_SIZE + length + after_block
    position += _BLOCK_HEADER_SIZE + (_CHECKSUM_SIZE if flags & _CONTENT_CHECKSUM else 0)
    return position, size_max
