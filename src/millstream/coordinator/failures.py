"""What a failed write of a coordinator means for the caller: clients know only a few codes."""

from __future__ import annotations

from typing import Final

from millstream.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidFetchSize,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)

_NOT_NOW: Final = (
    UnknownTopicOrPartition,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    RequestTimedOut,
)
_NOT_HERE: Final = (NotLeaderOrFollower, KafkaStorageError)
_NEVER: Final = (MessageTooLarge, RecordListTooLarge, InvalidFetchSize)


def coordinator_error(error: ApiError) -> ApiError:
    """An error of the log, as the clients of a coordinator understand it."""
    if isinstance(error, _NOT_NOW):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, _NOT_HERE):
        return NotCoordinator(str(error))
    if isinstance(error, _NEVER):
        return UnknownServerError(str(error))
    return error
