"""Requests of clients in envelopes (KIP-590): from a broker to the active controller and back.

Inside is the client's request with its header, and the answer with its header; outside, who the
client is and where. The principal travels as Apache Kafka's default builder writes it.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    NO_ERROR,
    ApiError,
    PrincipalDeserializationFailure,
    ProtocolError,
    UnknownServerError,
    error_for_code,
)
from millstream.protocol.frame import SIZE_BYTES, decode_response, encode_request
from millstream.protocol.messages.envelope import EnvelopeRequest
from millstream.protocol.messages.principal import DefaultPrincipalData

if TYPE_CHECKING:
    from millstream.controller.decision import RequestContext
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message
    from millstream.protocol.messages.envelope import EnvelopeResponse

_VERSION: Final = struct.Struct(">h")


def put_in_envelope(request: Message, context: RequestContext) -> EnvelopeRequest:
    """A client's request, to be decided in its name."""
    frame = encode_request(request, context.version, 0, context.client_id)
    return EnvelopeRequest(
        request_data=frame[SIZE_BYTES:],
        request_principal=encode_principal(context.principal),
        client_host_address=encode_address(context.client_host),
    )


def open_envelope(response: EnvelopeResponse, api: ApiKey, version: int) -> Message | ApiError:
    """The answer inside, or why there is none."""
    if response.error_code != NO_ERROR:
        error = error_for_code(response.error_code)
        return UnknownServerError(f"the controller refused to be asked for a client: {error}")
    try:
        return decode_response(bytes(response.response_data or b""), api, version)[1]
    except ProtocolError as error:
        return UnknownServerError(f"the controller's answer cannot be read: {error}")


def encode_principal(principal: str) -> bytes:
    """`User:alice` as a broker writes it."""
    kind, _, name = principal.partition(":")
    version = DefaultPrincipalData.VERSIONS.highest
    data = DefaultPrincipalData(type=kind, name=name)
    return _VERSION.pack(version) + data.encode(version)


def decode_principal(raw: bytes | None) -> str:
    """Who asks, as the broker found out: a version, then the principal."""
    try:
        (version,) = _VERSION.unpack_from(raw or b"")
        found = DefaultPrincipalData.decode(raw or b"", version, _VERSION.size)
    except (ProtocolError, struct.error) as error:
        raise PrincipalDeserializationFailure(f"the principal cannot be read: {error}") from error
    return f"{found.type}:{found.name}"


def encode_address(host: str) -> bytes:
    """An address as four or sixteen bytes; a host that is no address stands for this machine."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address("127.0.0.1").packed


def decode_address(raw: bytes) -> str:
    """The address as text; ValueError if it is none."""
    return str(ipaddress.ip_address(raw))
