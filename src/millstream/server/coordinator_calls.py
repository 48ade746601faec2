"""Between a handler and a coordinator: who asks, and the way of the outcome back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from millstream.coordinator.decision import Caller
from millstream.errors import ApiError
from millstream.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.server.exchange import Exchange

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def caller_of(exchange: Exchange) -> Caller:
    """Who asks, with the host as Kafka writes it into its records."""
    request = exchange.request
    fields = (request.client_id or "", "/" + request.connection.peer_host, request.api_version)
    return tuple.__new__(Caller, fields)  # The generated constructor costs three times as much.


def answering(
    exchange: Exchange, request: Q, fail: Callable[[Q, ApiError, int], R]
) -> Callable[[R | ApiError], None]:
    """Answers with a coordinator's response, or with the one that says why there is none."""

    def done(outcome: R | ApiError) -> None:
        if isinstance(outcome, ApiError):
            outcome = fail(request, outcome, exchange.version)
        exchange.answer(outcome)

    return done
