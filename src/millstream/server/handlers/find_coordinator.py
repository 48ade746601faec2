"""FindCoordinator 0-6: which broker coordinates a group, a transaction or a share partition.

It is the leader of the partition of an internal topic that the key belongs to. The topic is made if
it does not exist, and the answer waits for that. Version 4 asks for several keys at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from millstream.coordinator.routing import partition_for
from millstream.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidRequest,
)
from millstream.metadata.topic_names import (
    GROUP_OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from millstream.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
    from millstream.server.exchange import Exchange
    from millstream.server.internal_topics import InternalTopics

_SHARE: Final = 2
_TOPICS: Final = {
    0: GROUP_OFFSETS_TOPIC,
    1: TRANSACTION_STATE_TOPIC,
    _SHARE: SHARE_STATE_TOPIC,
}
_NO_NODE: Final = -1
_SEVERAL_SINCE: Final = 4
_SHARE_SINCE: Final = 6
_SHARE_KEY: Final = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+", re.DOTALL)


def handle_find_coordinator(
    request: FindCoordinatorRequest,
    exchange: Exchange,
    topics: InternalTopics,
    metadata: KRaftMetadataCache,
) -> None:
    """Say for each key which broker it is."""
    topic = _TOPICS.get(request.key_type)
    if topic is None or (request.key_type == _SHARE and exchange.version < _SHARE_SINCE):
        raise InvalidRequest(f"there are no coordinators of type {request.key_type}")

    def ensured(error: ApiError | None) -> None:
        if error is not None:
            exchange.answer(fail_find_coordinator(request, error, exchange.version))
            return
        found = [
            _find(key, request.key_type, topic, exchange.listener, metadata)
            for key in _keys(request, exchange.version)
        ]
        exchange.answer(_response(found, exchange.version))

    topics.ensure(topic, ensured)


def fail_find_coordinator(
    request: FindCoordinatorRequest, error: ApiError, version: int
) -> FindCoordinatorResponse:
    """Every key gets the error."""
    return _response([_failed(key, error) for key in _keys(request, version)], version)


def _keys(request: FindCoordinatorRequest, version: int) -> list[str]:
    return [request.key] if version < _SEVERAL_SINCE else request.coordinator_keys


def _response(found: list[Coordinator], version: int) -> FindCoordinatorResponse:
    if version >= _SEVERAL_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(
    key: str, key_type: int, topic: str, listener: str, metadata: KRaftMetadataCache
) -> Coordinator:
    if key_type == _SHARE and not _SHARE_KEY.fullmatch(key):
        return _failed(key, InvalidRequest(f"{key!r} is not group:topic-id:partition"))
    count = metadata.partition_count(topic)
    if not count:
        return _failed(key, CoordinatorNotAvailable(f"{topic} does not exist yet"))
    partition = partition_for(key, count)
    endpoint = metadata.leader_endpoint(topic, partition, listener)
    leader = metadata.leader_of(topic, partition)
    if endpoint is None or leader is None:
        return _failed(key, CoordinatorNotAvailable(f"{topic}-{partition} has no leader now"))
    return Coordinator(
        key=key, node_id=leader, host=endpoint.host, port=endpoint.port, error_message=None
    )


def _failed(key: str, error: ApiError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NO_NODE,
        host="",
        port=_NO_NODE,
        error_code=error.code,
        error_message=str(error),
    )
