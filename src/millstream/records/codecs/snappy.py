"""Snappy by cramjam: Java's stream of blocks ("xerial") is written; bare blocks are read as well.

librdkafka writes bare blocks into v2 batches, Java writes streams; nothing but the first bytes
tells them apart.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, cast

import cramjam

from millstream.records.codecs.faults import corrupt, cut_off, too_large

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.types import ReadableBuffer

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + bytes.fromhex("00000001 00000001")  # version, compatible with
_XERIAL_BLOCK = 32 * 1024
_LENGTH = Struct(">i")
_FIRST_BLOCK_AT = len(_XERIAL_HEADER) + _LENGTH.size
_EXPANSION_MAX = 22
"""The densest element of the format gives 64 bytes for 3."""


def compress(data: ReadableBuffer, level: int) -> bytes:
    """Java's stream: a header, then blocks of 32 KiB of data, each with its length in front.

    There is only one level.
    """
    view = memoryview(data)
    parts: list[bytes | cramjam.Buffer] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK])
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(data: ReadableBuffer, size_limit: int) -> ReadableBuffer:
    """The contents of a stream, of several in a row, or of a bare block."""
    view = memoryview(data)
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _contents(_decompress_block(view, size_limit, size_limit))
    if _has_one_block(view):  # most batches do, and the loop below has its price
        return _contents(_decompress_block(view[_FIRST_BLOCK_AT:], size_limit, size_limit))
    parts: list[cramjam.Buffer] = []
    size = 0
    for block in _blocks(view):
        parts.append(_decompress_block(block, size_limit - size, size_limit))
        size += len(parts[-1])
    return b"".join(parts)


def _contents(buffer: cramjam.Buffer) -> memoryview:
    """What cramjam has in its own memory, in place."""
    return memoryview(cast("bytearray", buffer))


def _has_one_block(view: memoryview) -> bool:
    if len(view) < _FIRST_BLOCK_AT:
        return False
    (length,) = _LENGTH.unpack_from(view, len(_XERIAL_HEADER))
    return bool(length == len(view) - _FIRST_BLOCK_AT)


def _blocks(view: memoryview) -> Iterator[memoryview]:
    """The blocks of a stream, and of those that follow it."""
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _LENGTH.size
        if start > len(view):
            break
        (length,) = _LENGTH.unpack_from(view, position)
        if length >= 0:
            position = start + length
            if position > len(view):
                break
            yield view[start:position]
        elif view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
        else:
            raise corrupt("snappy", f"a block of {length} bytes at byte {position}")
    if position != len(view):
        raise cut_off("snappy", len(view))


def _decompress_block(block: memoryview, size_left: int, size_limit: int) -> cramjam.Buffer:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > len(block) * _EXPANSION_MAX:
            raise corrupt("snappy", f"{len(block)} bytes claim to hold {claimed}")
        if claimed > size_left:
            raise too_large("snappy", size_limit)
        return cramjam.snappy.decompress_raw(block)
    except cramjam.DecompressionError as error:
        raise corrupt("snappy", error) from error
