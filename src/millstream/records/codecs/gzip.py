"""gzip by zlib: RFC 1952, one member when written, any number when read."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from millstream.records.codecs.faults import corrupt, cut_off, too_large

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

_GZIP_WBITS = 31
_PIECE = 64 * 1024
"""Input goes in by pieces, because zlib copies what it did not use of the last one."""


def compress(data: ReadableBuffer, level: int) -> bytes:
    """One gzip member."""
    return zlib.compress(data, level, wbits=_GZIP_WBITS)


def decompress(data: ReadableBuffer, size_limit: int) -> bytes:
    """The contents of all members, one after the other."""
    view = memoryview(data)
    parts: list[bytes] = []
    size = position = 0
    member = zlib.decompressobj(_GZIP_WBITS)
    while position < len(view):
        piece = view[position : position + _PIECE]
        try:
            part = member.decompress(piece, size_limit - size + 1)
        except zlib.error as error:
            raise corrupt("gzip", error) from error
        parts.append(part)
        size += len(part)
        if size > size_limit:
            raise too_large("gzip", size_limit)
        position += len(piece) - len(member.unused_data)
        if member.eof and position < len(view):
            member = zlib.decompressobj(_GZIP_WBITS)
    if not member.eof:
        raise cut_off("gzip", len(view))
    return parts[0] if len(parts) == 1 else b"".join(parts)
