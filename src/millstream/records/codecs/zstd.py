"""Zstandard frames by the zstandard package.

Java and librdkafka write frames without a content size, so the size is found by walking the block
headers: a block holds 128 KiB at most. Contexts are expensive to make and are kept for the next
call, each used by one caller at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import zstandard

from millstream.records.codecs.faults import corrupt
from millstream.records.codecs.framing import MAGIC_SIZE, decompress_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.types import ReadableBuffer

_MAGIC = 0xFD2FB528
_CONTENT_CHECKSUM = 0x04
_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZE_SIZES = (0, 2, 4, 8)
_CHECKSUM_SIZE = 4
_BLOCK_HEADER_SIZE = 3
_LAST_BLOCK = 1
_RUN, _COMPRESSED = 1, 2
_BLOCK_SIZE_MAX = 128 * 1024
_KEPT_CONTEXTS = 8
_KEPT_LEVEL_MAX = 9
"""Contexts of higher levels take many megabytes and are not worth keeping."""

# A deque's append and pop are atomic, with and without the GIL: who popped a context has it alone.
_compressors: dict[int, deque[zstandard.ZstdCompressor]] = {}
_decompressors: deque[zstandard.ZstdDecompressor] = deque(maxlen=_KEPT_CONTEXTS)


def compress(data: ReadableBuffer, level: int) -> bytes:
    """One frame."""
    kept = _compressors.setdefault(level, deque(maxlen=_KEPT_CONTEXTS))
    try:
        compressor = kept.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    compressed = compressor.compress(data)
    if level <= _KEPT_LEVEL_MAX:
        kept.append(compressor)
    return compressed


def decompress(data: ReadableBuffer, size_limit: int) -> bytes:
    """The contents of all frames, one after the other."""
    content = _decompress_sized_frame(data, size_limit)
    if content is None:
        return decompress_frames("zstd", data, size_limit, _walk, _decompress_frame)
    return content


def _decompress_sized_frame(data: ReadableBuffer, size_limit: int) -> bytes | None:
    """The contents of a single frame that tells their size, as we write it, else None.

    The library takes the memory that the header claims; a claim that the bytes at hand cannot
    fulfil, whatever blocks they are, is not believed here.
    """
    try:
        claimed = zstandard.frame_content_size(data)
        possible = (len(data) // _BLOCK_HEADER_SIZE + 1) * _BLOCK_SIZE_MAX
        if not 0 < claimed <= min(size_limit, possible):
            return None
        decompressor = _taken_decompressor()
        content = decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError:
        return None
    _decompressors.append(decompressor)
    return content


def _taken_decompressor() -> zstandard.ZstdDecompressor:
    try:
        return _decompressors.pop()
    except IndexError:
        return zstandard.ZstdDecompressor()


def _decompress_frame(frame: memoryview, size_max: int, size_left: int) -> bytes:
    decompressor = _taken_decompressor()
    try:
        if size_max <= size_left:
            content = decompressor.decompress(frame, max_output_size=size_max or 1)
        else:
            content = _decompress_by_pieces(decompressor, frame, size_left)
    except zstandard.ZstdError as error:
        raise corrupt("zstd", error) from error
    _decompressors.append(decompressor)
    return content


def _decompress_by_pieces(
    decompressor: zstandard.ZstdDecompressor, content: memoryview, size_left: int
) -> bytes:
    """Decompress what may be too much, and stop soon when it is."""
    stream = decompressor.decompressobj()
    parts: list[bytes] = []
    position = pending = 0
    first_block, _ = _walk_header(content, MAGIC_SIZE + 1, content[MAGIC_SIZE])
    for block_end, size_max in _walk_blocks(content, first_block):
        pending += size_max
        # Small blocks go together: there may be very many.
        if pending >= _BLOCK_SIZE_MAX:
            parts.append(stream.decompress(content[position:block_end]))
            size_left -= len(parts[-1])
            position, pending = block_end, 0
            if size_left < 0:
                return b"".join(parts)
    if position < len(content):
        parts.append(stream.decompress(content[position:]))
        size_left -= len(parts[-1])
    if not stream.eof and size_left >= 0:
        raise corrupt("zstd", "the frame does not end where its blocks do")
    return b"".join(parts)


def _walk(view: memoryview, start: int, magic: int) -> tuple[int, int]:
    """Follow the block headers of a frame: where it ends, and what it can hold at most."""
    if magic != _MAGIC:
        raise corrupt("zstd", f"no frame at byte {start}: the magic number is {magic:#010x}")
    descriptor = view[start + MAGIC_SIZE]
    position, claimed = _walk_header(view, start + MAGIC_SIZE + 1, descriptor)
    size_max = 0
    for block_end, block_size_max in _walk_blocks(view, position):
        position = block_end
        size_max += block_size_max
    if descriptor & _CONTENT_CHECKSUM:
        position += _CHECKSUM_SIZE
    if claimed is None:
        return position, size_max
    if claimed > size_max:
        raise corrupt("zstd", f"blocks for {size_max} bytes claim to hold {claimed}")
    return position, claimed


def _walk_blocks(view: memoryview, position: int) -> Iterator[tuple[int, int]]:
    """Where each block of a frame ends, and what it can hold at most."""
    header = 0
    while not header & _LAST_BLOCK:
        header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        kind, length = header >> 1 & 3, header >> 3
        position += _BLOCK_HEADER_SIZE + (1 if kind == _RUN else length)
        yield position, _BLOCK_SIZE_MAX if kind == _COMPRESSED else min(length, _BLOCK_SIZE_MAX)


def _walk_header(view: memoryview, position: int, descriptor: int) -> tuple[int, int | None]:
    """Where the first block is, and the size of the contents if the header claims one."""
    is_single_segment = descriptor >> 5 & 1
    position += 1 - is_single_segment  # the window size
    position += _DICTIONARY_ID_SIZES[descriptor & 3]
    field_size = _CONTENT_SIZE_SIZES[descriptor >> 6] or is_single_segment
    if not field_size:
        return position, None
    claimed = int.from_bytes(view[position : position + field_size], "little")
    return position + field_size, claimed + 256 if field_size == 2 else claimed
