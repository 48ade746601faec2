"""From a frame to a handler and back: what broker and controller listeners have in common.

`KafkaApis` and `ControllerApis` are an `ApiServer` each, with their own table of handlers. Here a
request is decoded, its version checked, and whatever goes wrong in a handler becomes an error that
the asker can read. Only bytes that are no request end in a `ProtocolError`, on which the network
closes the connection.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.errors import ApiError, DecodeError, RequestTimedOut, UnknownServerError
from millstream.network.log_limiter import LogLimiter
from millstream.network.server.request import CLOSE, PENDING
from millstream.protocol.api import API_BY_KEY, ApiKey, unsupported_api_versions
from millstream.protocol.frame import encode_response
from millstream.server.bodies import read_body
from millstream.server.exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.clock import Clock
    from millstream.network.server.request import Outcome, Request, Response
    from millstream.protocol.message import Message

    Handle: TypeAlias = Callable[[Any, Exchange], Message | None]
    Fail: TypeAlias = Callable[[Any, ApiError, int], Message]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handler:
    """How an API is answered."""

    handle: Handle
    """Gives the response; None if it comes, or came, through `Exchange.answer`."""
    fail: Fail
    """The response, in a version, that says that all of a request failed, and why."""


class ApiServer:
    """The handlers of one kind of listener."""

    def __init__(self, handlers: Mapping[ApiKey, Handler], clock: Clock) -> None:
        self._log = LogLimiter(clock, _logger)
        self._handlers = {int(api): handler for api, handler in handlers.items()}
        self._request_classes = {int(api): api.request for api in handlers}
        # Requests whose handler has returned without a response.
        self._pending: dict[Exchange, None] = {}

    def handle(self, request: Request) -> Response | Outcome:
        """Answer a request, now or later."""
        api_key, version = request.api_key, request.api_version
        handler = self._handlers.get(api_key)
        if handler is None:
            raise DecodeError(f"API key {api_key} is not served here")
        if not API_BY_KEY[api_key].released.covers(version):
            return _refuse_version(request)
        message = read_body(self._request_classes[api_key], request)
        exchange = Exchange(request, message, self._complete)
        try:
            response = handler.handle(message, exchange) or exchange.early_response
        except Exception as error:
            response = self._failed(exchange, error)
        exchange.is_returned = True
        if response is None:
            self._pending[exchange] = None
            return PENDING
        return self._encode(exchange, response)

    def refuse(self, request: Request, error: ApiError) -> Response | Outcome:
        """Answer that all of a request failed, without doing anything of it."""
        api_key, version = request.api_key, request.api_version
        handler = self._handlers.get(api_key)
        if handler is None or not API_BY_KEY[api_key].released.covers(version):
            return self.handle(request)
        message = read_body(self._request_classes[api_key], request)
        failure = handler.fail(message, error, version)
        return encode_response(failure, version, request.correlation_id)

    def close(self) -> None:
        """Answer everything that still waits: the node stops, and whether it was done is open."""
        for exchange in list(self._pending):
            error = RequestTimedOut("the node is shutting down; the request may still be done")
            exchange.answer(self._failed(exchange, error))

    def _complete(self, exchange: Exchange, response: Message) -> None:
        # Whatever comes after `close` comes too late.
        if exchange in self._pending:
            del self._pending[exchange]
            exchange.request.complete(self._encode(exchange, response))

    def _encode(self, exchange: Exchange, response: Message) -> Response | Outcome:
        request = exchange.request
        try:
            return encode_response(response, request.api_version, request.correlation_id)
        except Exception as error:
            try:
                failure = self._failed(exchange, error)
                return encode_response(failure, request.api_version, request.correlation_id)
            except Exception as again:
                self._note_failure(request, again, "at all")
                return CLOSE

    def _failed(self, exchange: Exchange, error: Exception) -> Message:
        handler = self._handlers[exchange.request.api_key]
        if not isinstance(error, ApiError):
            self._note_failure(exchange.request, error)
            error = UnknownServerError(f"the node failed to answer: {error!r}")
        return handler.fail(exchange.message, error, exchange.version)

    def _note_failure(self, request: Request, error: Exception, how: str = "") -> None:
        """A client that asks again and again must not fill the log with tracebacks."""
        note_failure(self._log, request, error, how)


def note_failure(log: LogLimiter, request: Request, error: Exception, how: str = "") -> None:
    """Write that a handler failed, at a rate that clients cannot raise."""
    api = API_BY_KEY[request.api_key].api_name
    log.failure(
        f"{api} {type(error).__name__} {how}",
        f"{api} could not be answered {how}".rstrip(),
        error=error,
        api=api,
        api_version=request.api_version,
        client_id=request.client_id,
        peer=request.connection.peer_host,
    )


def _refuse_version(request: Request) -> Response:
    """Only ApiVersions is answered in a version nobody knows: without being read."""
    if request.api_key == ApiKey.API_VERSIONS:
        return encode_response(unsupported_api_versions(), 0, request.correlation_id)
    name = API_BY_KEY[request.api_key].api_name
    raise DecodeError(
        f"{name} version {request.api_version} is not served", version=request.api_version
    )
