"""The body of a request, decoded.

Every handler's request comes through here, once the fast path has declined it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from millstream.network.server.request import Request
    from millstream.protocol.message import Message

MessageT = TypeVar("MessageT", bound="Message")


def read_body(message_class: type[MessageT], request: Request) -> MessageT:
    """Read a request; DecodeError if it is none.

    Bytes after the last field are ignored: librdkafka 2.16 sends three of them when it asks for
    the metadata of all topics in version 13.
    """
    body = request.buffer[request.body : request.end]
    # One copy now is cheaper than a view of every field; records are never copied.
    whole = body if message_class.CARRIES_RECORDS else bytes(body)
    message, _ = message_class.decode_from(whole, request.api_version)
    return message
