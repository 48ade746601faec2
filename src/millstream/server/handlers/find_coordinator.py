"""FindCoordinator 0-6: which broker coordinates a group, a transaction or a share group.

There are no coordinators yet. The API is answered all the same, because librdkafka does not use lz4
with a broker that lacks it. Groups get COORDINATOR_NOT_AVAILABLE: consumers that assign their
partitions themselves, but have a group id, go on fetching while they ask again in the background.
Transactions get TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only code after which librdkafka, like
the Java client, gives up instead of asking for ever; share groups get UNSUPPORTED_VERSION.
Version 4 asks for several keys at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidRequest,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from millstream.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
    from millstream.server.exchange import Exchange

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_NO_NODE: Final = -1
_SEVERAL_SINCE: Final = 4


def handle_find_coordinator(
    request: FindCoordinatorRequest, exchange: Exchange
) -> FindCoordinatorResponse:
    """Say for each key that there is no coordinator."""
    return fail_find_coordinator(request, _absence(request.key_type), exchange.version)


def fail_find_coordinator(
    request: FindCoordinatorRequest, error: ApiError, version: int
) -> FindCoordinatorResponse:
    """Every key gets the error."""
    if version < _SEVERAL_SINCE:
        return FindCoordinatorResponse(
            error_code=error.code, error_message=str(error), node_id=_NO_NODE, port=_NO_NODE
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=_NO_NODE,
                port=_NO_NODE,
                error_code=error.code,
                error_message=str(error),
            )
            for key in request.coordinator_keys
        ]
    )


def _absence(key_type: int) -> ApiError:
    if key_type == _GROUP:
        return CoordinatorNotAvailable("this broker does not coordinate groups yet")
    if key_type == _TRANSACTION:
        return TransactionalIdAuthorizationFailed(
            "this broker does not coordinate transactions yet"
        )
    if key_type == _SHARE:
        return UnsupportedVersion("this broker does not coordinate share groups yet")
    return InvalidRequest(f"there are no coordinators of type {key_type}")
