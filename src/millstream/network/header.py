"""The first bytes of a request frame, read where they lie.

`KafkaChannel` unpacks every header with `unpack_header` and handles the common ones itself; the
others, and everything malformed, come here. Bad bytes end in a `ProtocolError`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from millstream.errors import DecodeError
from millstream.protocol.primitives import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Mapping

# Frame size; api key and version, looked up as one number; correlation id; client id's length.
_HEADER: Final = struct.Struct(">iIih")
unpack_header: Final = _HEADER.unpack_from

FRAME_SIZE_BYTES: Final = 4
FRAME_HEADER_BYTES: Final = _HEADER.size
"""The frame's size and the fixed part of the header."""
REQUEST_BYTES_MIN: Final = FRAME_HEADER_BYTES - FRAME_SIZE_BYTES
"""The smallest request there is: no client id, no body."""
_API_VERSIONS: Final = 18


def body_start(
    buffer: memoryview, start: int, frame_end: int, header_versions: Mapping[int, int]
) -> int:
    """Where the body begins, for any header; `start` is where the frame's size is."""
    api: int
    client_id_length: int
    _, api, _, client_id_length = unpack_header(buffer, start)
    body = start + FRAME_HEADER_BYTES + max(client_id_length, 0)
    if client_id_length < -1 or body > frame_end:
        raise DecodeError(
            f"a client id of {client_id_length} bytes", message="RequestHeader", position=8
        )
    require_served(api, header_versions)
    if header_versions.get(api) == 2:
        return _skip_tagged_fields(buffer[:frame_end], body)
    return body


def require_served(api: int, header_versions: Mapping[int, int]) -> None:
    """Refuse an API version that the listener does not answer.

    An ApiVersions request of an unknown version passes: it is answered without being read.
    """
    if api not in header_versions and api >> 16 != _API_VERSIONS:
        raise DecodeError(f"API key {api >> 16} version {api & 0xFFFF} is not served here")


def _skip_tagged_fields(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise DecodeError("a tagged field ends outside the frame", message="RequestHeader")
    return position
