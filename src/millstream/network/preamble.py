"""What a peer speaks that does not speak the Kafka protocol.

`KafkaChannel` asks when the first bytes of a frame cannot be its size. The answer completes the
sentence "closed the connection from ...: ..." in the log.
"""

from __future__ import annotations

from typing import Final

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
