"""What LZ4 and Zstandard frames have in common: any number in a row, some of them to be skipped.

A walk over a frame's block headers tells where the frame ends and how much it can hold, before
any memory is taken for its contents.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from millstream.records.codecs.faults import cut_off, too_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types import ReadableBuffer

UINT32 = struct.Struct("<I")
MAGIC_SIZE = 4
_SKIPPABLE_MAGICS = range(0x184D2A50, 0x184D2A60)
_SKIPPABLE_HEADER_SIZE = 8


def decompress_frames(
    codec: str,
    data: ReadableBuffer,
    size_limit: int,
    walk: Callable[[memoryview, int, int], tuple[int, int]],
    decompress_frame: Callable[[memoryview, int, int], bytes],
) -> bytes:
    """The contents of all frames of `data`, one after the other.

    `walk` is told the bytes, where a frame starts and its magic number. It follows the headers, may
    run past the bytes, and gives the frame's end and the size that its blocks can hold at most.
    `decompress_frame` is told a frame's bytes, that size, and how many bytes are still allowed; it
    stops soon after them.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    size = position = 0
    while position < len(view) or not position:
        start = position
        try:
            (magic,) = UINT32.unpack_from(view, start)
            if magic in _SKIPPABLE_MAGICS:
                (length,) = UINT32.unpack_from(view, start + MAGIC_SIZE)
                position, size_max = start + _SKIPPABLE_HEADER_SIZE + length, -1
            else:
                position, size_max = walk(view, start, magic)
        except (struct.error, IndexError):
            raise cut_off(codec, len(view)) from None
        if position > len(view):
            raise cut_off(codec, len(view))
        if size_max >= 0:
            parts.append(decompress_frame(view[start:position], size_max, size_limit - size))
            size += len(parts[-1])
            if size > size_limit:
                raise too_large(codec, size_limit)
    return parts[0] if len(parts) == 1 else b"".join(parts)
