"""Envelope 0: a request that a broker passes on to the controller for a client.

It carries the client's request with its header, and who the client is. The answer carries the
answer, with its header. An error of the envelope itself, such as NOT_CONTROLLER, is for the broker.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from millstream.controller.decision import RequestContext
from millstream.controller.failures import CONTROLLER_REQUESTS
from millstream.errors import (
    ApiError,
    InvalidRequest,
    PrincipalDeserializationFailure,
    ProtocolError,
    UnsupportedVersion,
)
from millstream.protocol.api import API_BY_KEY
from millstream.protocol.frame import SIZE_BYTES, decode_request, encode_response
from millstream.protocol.messages.envelope import EnvelopeResponse
from millstream.protocol.messages.principal import DefaultPrincipalData

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.protocol.messages.envelope import EnvelopeRequest
    from millstream.server.exchange import Exchange
    from millstream.server.ports import ControllerChannel

_PRINCIPAL_VERSION: Final = struct.Struct(">h")


def handle_envelope(
    request: EnvelopeRequest, exchange: Exchange, controller: ControllerChannel, clock: Clock
) -> None:
    """Let the controller decide about the request inside, in the name of its sender."""
    try:
        header, inner = decode_request(bytes(request.request_data))
    except ProtocolError as error:
        raise InvalidRequest(f"the request in the envelope cannot be read: {error}") from error
    version = header.request_api_version
    api = API_BY_KEY[header.request_api_key]
    if not api.is_forwardable or type(inner) not in CONTROLLER_REQUESTS:
        raise InvalidRequest(f"{api.api_name} does not travel in an envelope")
    if not api.released.covers(version):
        raise UnsupportedVersion(f"{api.api_name} {version} is not served")
    context = RequestContext(
        _principal(request.request_principal),
        clock.monotonic_ms(),
        clock.wall_ms(),
        version,
        header.client_id or "",
    )

    def answered(response: Message) -> None:
        frame = encode_response(response, version, header.correlation_id)
        exchange.answer(EnvelopeResponse(response_data=frame[SIZE_BYTES:]))

    controller.submit(inner, context, answered)


def fail_envelope(request: EnvelopeRequest, error: ApiError, version: int) -> EnvelopeResponse:
    """The answer to the broker: the request inside was not looked at."""
    return EnvelopeResponse(error_code=error.code, response_data=None)


def _principal(raw: bytes | None) -> str:
    """Who asks, as the broker found out: a version, then the principal."""
    try:
        (version,) = _PRINCIPAL_VERSION.unpack_from(raw or b"")
        found = DefaultPrincipalData.decode(raw or b"", version, _PRINCIPAL_VERSION.size)
    except (ProtocolError, struct.error) as error:
        raise PrincipalDeserializationFailure(f"the principal cannot be read: {error}") from error
    return f"{found.type}:{found.name}"
