"""The first bytes of a request frame, read where they lie.

`KafkaChannel` unpacks every header with `unpack_header` and handles the common ones itself; the
others, and everything malformed, come here. Bad bytes end in a `ProtocolError`, or in the sentence
about a peer that does not speak the Kafka protocol.
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
_HTTP_METHODS: Final = (
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"DELE",
    b"OPTI",
    b"PATC",
    b"CONN",
    b"TRAC",
    b"PRI ",
)
_TLS_HANDSHAKE: Final = b"\x16\x03"


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


def find_fault(
    beginning: memoryview, size_max: int, header_versions: Mapping[int, int]
) -> tuple[str, str] | None:
    """What is wrong with a frame whose beginning, of 4 bytes or more, is there: kind and sentence.

    An API version that the listener does not answer is a `DecodeError`.
    """
    size = int.from_bytes(beginning[:FRAME_SIZE_BYTES], "big", signed=True)
    if not REQUEST_BYTES_MIN <= size <= size_max:
        return _describe(bytes(beginning[:8]), size, size_max)
    if len(beginning) >= FRAME_HEADER_BYTES:
        require_served(unpack_header(beginning, 0)[1], header_versions)
    return None


def _describe(first_bytes: bytes, size: int, size_max: int) -> tuple[str, str]:
    """The kind of mistake, for rate limits, and the sentence about it."""
    if first_bytes.startswith(_HTTP_METHODS):
        return "http", "it sent an HTTP request; this port speaks the Kafka protocol"
    if first_bytes.startswith(_TLS_HANDSHAKE):
        return "tls", (
            "it began a TLS handshake, but this listener is not encrypted; "
            "the client needs security.protocol=PLAINTEXT or another port"
        )
    if first_bytes.startswith(b"SSH-"):
        return "ssh", "it sent an SSH greeting; this port speaks the Kafka protocol"
    if size > size_max:
        return "too large", (
            f"it announced a request of {size} bytes, socket.request.max.bytes is {size_max}"
        )
    if size < 0:
        return "negative size", f"it announced a request of {size} bytes"
    return "short frame", f"it sent a request of {size} bytes, too short for a header"
