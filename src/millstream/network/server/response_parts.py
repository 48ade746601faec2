"""The parts of a response on its way out: bytes in memory, or a region of a file.

The senders ask here what a part is. Nothing is sent.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.network.server.request import FileRegion, ResponsePart
    from millstream.types import ReadableBuffer

BUFFER_TYPES: Final = (bytes, bytearray, memoryview)
"""What is in memory; everything else is a region."""


def size_of(part: ResponsePart) -> int:
    """How many bytes."""
    return len(part) if isinstance(part, BUFFER_TYPES) else part.length


def bytes_of(part: ResponsePart) -> ReadableBuffer:
    """The bytes, read if need be."""
    if isinstance(part, BUFFER_TYPES):
        return part
    data = part.read()
    if len(data) != part.length:
        raise cut_short(part)
    return data


def cut_short(region: FileRegion) -> OSError:
    """What is raised where a file has less than was promised."""
    # The frame's size is on the wire already: the response cannot be finished or taken back.
    return OSError(
        errno.EIO, f"a file ends inside the {region.length} bytes at {region.position} being sent"
    )
