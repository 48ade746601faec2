"""Envelope 0: a request that a broker passes on to the controller for a client.

It carries the client's request with its header, and who the client is. The answer carries the
answer, with its header. An error of the envelope itself, such as NOT_CONTROLLER, is for the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.controller.decision import RequestContext
from millstream.controller.failures import CONTROLLER_REQUESTS
from millstream.errors import (
    ApiError,
    InvalidRequest,
    NotController,
    ProtocolError,
    UnsupportedVersion,
)
from millstream.protocol.api import API_BY_KEY
from millstream.protocol.frame import SIZE_BYTES, decode_request, encode_response
from millstream.protocol.messages.envelope import EnvelopeResponse
from millstream.server.envelopes import decode_address, decode_principal
from millstream.server.forwarding import RAFT_REQUESTS, says_not_controller

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.protocol.messages.envelope import EnvelopeRequest
    from millstream.server.exchange import Exchange
    from millstream.server.ports import ControllerChannel


def handle_envelope(
    request: EnvelopeRequest, exchange: Exchange, controller: ControllerChannel, clock: Clock
) -> None:
    """Let the controller decide about the request inside, in the name of its sender."""
    principal = decode_principal(request.request_principal)
    try:
        client_host = decode_address(bytes(request.client_host_address))
    except ValueError as error:
        raise InvalidRequest(f"the client's address cannot be read: {error}") from error
    try:
        header, inner = decode_request(bytes(request.request_data))
    except ProtocolError as error:
        raise UnsupportedVersion(f"the request in the envelope cannot be read: {error}") from error
    version = header.request_api_version
    api = API_BY_KEY[header.request_api_key]
    if not api.released.covers(version):
        raise UnsupportedVersion(f"{api.api_name} {version} is not served")
    if not api.is_forwardable or type(inner) not in CONTROLLER_REQUESTS | RAFT_REQUESTS:
        raise InvalidRequest(f"{api.api_name} does not travel in an envelope")
    context = RequestContext(
        principal,
        clock.monotonic_ms(),
        clock.wall_ms(),
        version,
        header.client_id or "",
        client_host,
    )

    def answered(response: Message) -> None:
        if says_not_controller(response):
            # The broker looks for the active controller then; the client hears nothing of it.
            exchange.answer(EnvelopeResponse(error_code=NotController.code))
            return
        frame = encode_response(response, version, header.correlation_id)
        exchange.answer(EnvelopeResponse(response_data=frame[SIZE_BYTES:]))

    controller.submit(inner, context, answered)


def fail_envelope(request: EnvelopeRequest, error: ApiError, version: int) -> EnvelopeResponse:
    """The answer to the broker: the request inside was not looked at."""
    return EnvelopeResponse(error_code=error.code, response_data=None)
