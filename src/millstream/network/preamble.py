"""What a peer speaks that does not speak the Kafka protocol.

`KafkaChannel` asks about each frame whose rest has yet to come. The answer completes the sentence
"closed the connection from ...: ..." in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.network.header import (
    FRAME_HEADER_BYTES,
    FRAME_SIZE_BYTES,
    REQUEST_BYTES_MIN,
    require_served,
    unpack_header,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def find_fault(
    beginning: memoryview, size_max: int, header_versions: Mapping[int, int]
) -> tuple[str, str] | None:
    """What is wrong with a frame whose beginning, of 4 bytes or more, is there; see `describe`.

    An API version that the listener does not answer is a `DecodeError`.
    """
    size = int.from_bytes(beginning[:FRAME_SIZE_BYTES], "big", signed=True)
    if not REQUEST_BYTES_MIN <= size <= size_max:
        return describe(bytes(beginning[:8]), size, size_max)
    if len(beginning) >= FRAME_HEADER_BYTES:
        require_served(unpack_header(beginning, 0)[1], header_versions)
    return None


def describe(first_bytes: bytes, size: int, size_max: int) -> tuple[str, str]:
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
