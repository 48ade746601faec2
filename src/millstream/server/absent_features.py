"""What a broker without an authorizer, SASL and delegation tokens answers about them.

Apache Kafka lists these APIs whether or not it has what they are about, and its tools ask before
they know. `KafkaApis` serves each of them by the one error that Apache Kafka gives then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.controller.failures import CONTROLLER_REQUESTS, error_response
from millstream.errors import DelegationTokenRequestNotAllowed, IllegalSaslState, SecurityDisabled
from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.server.api_server import Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

    from millstream.errors import ApiError
    from millstream.protocol.message import Message
    from millstream.server.exchange import Exchange

_NO_AUTHORIZER: Final = "this broker has no authorizer: everybody may do everything"
_NO_SASL: Final = "connections of this listener are not authenticated"
_NO_TOKENS: Final = "delegation tokens need an authenticated connection"

ANSWERS: Final[Mapping[ApiKey, tuple[type[ApiError], str]]] = {
    ApiKey.SASL_HANDSHAKE: (IllegalSaslState, _NO_SASL),
    ApiKey.SASL_AUTHENTICATE: (IllegalSaslState, _NO_SASL),
    ApiKey.DESCRIBE_ACLS: (SecurityDisabled, _NO_AUTHORIZER),
    ApiKey.CREATE_ACLS: (SecurityDisabled, _NO_AUTHORIZER),
    ApiKey.DELETE_ACLS: (SecurityDisabled, _NO_AUTHORIZER),
    ApiKey.CREATE_DELEGATION_TOKEN: (DelegationTokenRequestNotAllowed, _NO_TOKENS),
    ApiKey.RENEW_DELEGATION_TOKEN: (DelegationTokenRequestNotAllowed, _NO_TOKENS),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (DelegationTokenRequestNotAllowed, _NO_TOKENS),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (DelegationTokenRequestNotAllowed, _NO_TOKENS),
}
"""The error of each API, and what is said with it."""

_TIMESTAMPS: Final = ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")
"""What the answers about a token would tell of it."""
_REQUESTERS_SINCE: Final = 3
"""From this version on CreateDelegationToken tells who asked, and for whom."""


def absent_feature_handlers() -> dict[ApiKey, Handler]:
    """A handler for each, which does nothing but refuse."""
    return {
        api: Handler(_refusing(error_class, reason), fail_absent_feature)
        for api, (error_class, reason) in ANSWERS.items()
    }


def fail_absent_feature(request: Message, error: ApiError, version: int) -> Message:
    """The answer that says why nothing was done."""
    if type(request) in CONTROLLER_REQUESTS:
        response = error_response(request, error)
    else:
        response = API_BY_KEY[request.KEY].response()
        response.error_code = error.code  # type: ignore[attr-defined]  # All of them have one.
        if hasattr(response, "error_message"):
            response.error_message = str(error)
    if isinstance(response, CreateDelegationTokenResponse):
        response.principal_type, response.principal_name = "User", "ANONYMOUS"
        if version >= _REQUESTERS_SINCE:
            _tell_owner(request, response)
    for name in _TIMESTAMPS:
        if hasattr(response, name):
            setattr(response, name, -1)
    return response


def _tell_owner(request: Message, response: CreateDelegationTokenResponse) -> None:
    """Whom the token would have been for, and who asked."""
    assert isinstance(request, CreateDelegationTokenRequest)
    response.token_requester_principal_type = response.principal_type
    response.token_requester_principal_name = response.principal_name
    if request.owner_principal_name:
        response.principal_type = request.owner_principal_type or ""
        response.principal_name = request.owner_principal_name


def _refusing(error_class: type[ApiError], reason: str) -> Callable[[Message, Exchange], NoReturn]:
    def refuse(request: Message, exchange: Exchange) -> NoReturn:
        raise error_class(reason)

    return refuse
