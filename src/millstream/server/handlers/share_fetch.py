"""ShareFetch 1-2: records of a member's share session, now or when there are some.

It carries acknowledgements of records that came before; they count first. Version 2 has the strict
limit of records and can renew locks, which fetches nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from millstream.errors import InvalidRequest, ShareSessionLimitReached
from millstream.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from millstream.server.leaders import STALE_LEADER_CODES, find_leader
from millstream.server.share_acknowledging import acknowledgements_of, check_renewal, session_of
from millstream.server.share_fetch_service import ShareFetched, ShareFetchParams

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.coordinator.share.sessions import Place, ShareSession
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.share_fetch import ShareFetchRequest
    from millstream.server.exchange import Exchange
    from millstream.server.leaders import KnownLeader
    from millstream.server.share_acknowledging import ShareAcknowledging
    from millstream.server.share_fetch_service import ShareFetchService

_STRICT: Final = 1
"""The acquire mode in which no more records come than asked for."""


def handle_share_fetch(
    request: ShareFetchRequest,
    exchange: Exchange,
    acknowledging: ShareAcknowledging,
    fetching: ShareFetchService,
    metadata: KRaftMetadataCache,
) -> None:
    """Take what the member says, then give it records."""
    key = session_of(request.group_id, request.member_id)
    epoch = request.share_session_epoch
    said = acknowledgements_of(request)
    settings = acknowledging.settings(key.group_id)
    _check(request, has_acknowledgements=bool(said))
    check_renewal(said, settings, is_renewal=request.is_renew_ack)
    try:
        session = acknowledging.sessions.open(key, epoch, exchange.connection)
    except ShareSessionLimitReached as error:
        failure = fail_share_fetch(request, error, exchange.version)
        fetching.pause(request.max_wait_ms, lambda: exchange.answer(failure))
        return
    session.update(
        (
            (topic.topic_id, asked.partition_index)
            for topic in request.topics
            for asked in topic.partitions
        ),
        (
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ),
    )
    places = session.in_turn()

    def answer(
        errors: Mapping[Place, ApiError | None], fetched: Sequence[ShareFetched] = ()
    ) -> None:
        response = _response(errors, fetched, metadata, exchange.listener)
        response.acquisition_lock_timeout_ms = settings.record_lock_duration_ms
        exchange.answer(response)

    def acknowledged(errors: Mapping[Place, ApiError | None]) -> None:
        if epoch == FINAL_EPOCH:
            acknowledging.close(key, lambda: answer(errors))
        elif request.is_renew_ack or not places or request.max_records <= 0:
            answer(errors)
        else:
            params = _params(request, session, places)
            fetching.fetch(params, lambda found: answer(errors, found))

    acknowledging.acknowledge(key, said, acknowledged)


def fail_share_fetch(
    request: ShareFetchRequest, error: ApiError, version: int
) -> ShareFetchResponse:
    """The error alone."""
    return ShareFetchResponse(error_code=error.code, error_message=str(error))


def _check(request: ShareFetchRequest, *, has_acknowledgements: bool) -> None:
    if request.share_session_epoch == INITIAL_EPOCH and has_acknowledgements:
        raise InvalidRequest("nothing can be acknowledged before a share session begins")
    if request.is_renew_ack and (
        request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    ):
        raise InvalidRequest("a request that renews locks fetches nothing: its limits must be 0")


def _params(
    request: ShareFetchRequest, session: ShareSession, places: Sequence[Place]
) -> ShareFetchParams:
    return ShareFetchParams(
        session,
        places,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.max_records,
        request.batch_size,
        request.share_acquire_mode == _STRICT,
    )


def _response(
    errors: Mapping[Place, ApiError | None],
    fetched: Sequence[ShareFetched],
    metadata: KRaftMetadataCache,
    listener: str,
) -> ShareFetchResponse:
    """Only partitions that have something to say: records, or what became of acknowledgements."""
    partitions = {place: PartitionData(partition_index=place[1], records=b"") for place in errors}
    for place, error in errors.items():
        if error is not None:
            partitions[place].acknowledge_error_code = error.code
            partitions[place].acknowledge_error_message = str(error)
    leaders: dict[int, KnownLeader] = {}
    for each in fetched:
        partition = partitions.setdefault(
            each.place, PartitionData(partition_index=each.place[1], records=b"")
        )
        _fill(partition, each)
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for (topic_id, index), partition in partitions.items():
        topic = topics.setdefault(topic_id, ShareFetchableTopicResponse(topic_id=topic_id))
        topic.partitions.append(partition)
        if {partition.error_code, partition.acknowledge_error_code} & STALE_LEADER_CODES:
            leader = find_leader(metadata, topic_id, index, listener)
            if leader is not None:
                leaders[leader.leader_id] = leader
                partition.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                )
    return ShareFetchResponse(
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port, rack=each.rack)
            for each in leaders.values()
        ],
    )


def _fill(partition: PartitionData, fetched: ShareFetched) -> None:
    if fetched.error is not None:
        partition.error_code, partition.error_message = fetched.error.code, str(fetched.error)
        return
    partition.records = fetched.records
    partition.acquired_records = [
        AcquiredRecords(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_count=each.delivery_count,
        )
        for each in fetched.acquired
    ]
