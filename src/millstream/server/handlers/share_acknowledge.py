"""ShareAcknowledge 1-2: what became of records. Version 2 can renew locks.

With the last epoch of a share session the session ends, and what is left with the member goes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from millstream.errors import InvalidShareSessionEpoch
from millstream.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from millstream.server.leaders import STALE_LEADER_CODES, find_leader
from millstream.server.share_acknowledging import acknowledgements_of, check_renewal, session_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.coordinator.share.sessions import Place
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
    from millstream.server.exchange import Exchange
    from millstream.server.leaders import KnownLeader
    from millstream.server.share_acknowledging import ShareAcknowledging


def handle_share_acknowledge(
    request: ShareAcknowledgeRequest,
    exchange: Exchange,
    acknowledging: ShareAcknowledging,
    metadata: KRaftMetadataCache,
) -> None:
    """Take what the member says; each partition succeeds or fails for itself."""
    key = session_of(request.group_id, request.member_id)
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise InvalidShareSessionEpoch("a share session begins with ShareFetch")
    said = acknowledgements_of(request)
    settings = acknowledging.settings(key.group_id)
    check_renewal(said, settings, is_renewal=request.is_renew_ack)
    acknowledging.sessions.open(key, epoch, exchange.connection)

    def acknowledged(errors: Mapping[Place, ApiError | None]) -> None:
        response = _response(errors, metadata, exchange.listener)
        response.acquisition_lock_timeout_ms = settings.record_lock_duration_ms
        if epoch == FINAL_EPOCH:
            acknowledging.close(key, lambda: exchange.answer(response))
        else:
            exchange.answer(response)

    acknowledging.acknowledge(key, said, acknowledged)


def fail_share_acknowledge(
    request: ShareAcknowledgeRequest, error: ApiError, version: int
) -> ShareAcknowledgeResponse:
    """The error alone."""
    return ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))


def _response(
    errors: Mapping[Place, ApiError | None], metadata: KRaftMetadataCache, listener: str
) -> ShareAcknowledgeResponse:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    leaders: dict[int, KnownLeader] = {}
    for (topic_id, index), error in errors.items():
        topic = topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id=topic_id))
        partition = PartitionData(partition_index=index)
        if error is not None:
            partition.error_code, partition.error_message = error.code, str(error)
        if partition.error_code in STALE_LEADER_CODES:
            leader = find_leader(metadata, topic_id, index, listener)
            if leader is not None:
                leaders[leader.leader_id] = leader
                partition.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                )
        topic.partitions.append(partition)
    return ShareAcknowledgeResponse(
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port, rack=each.rack)
            for each in leaders.values()
        ],
    )
