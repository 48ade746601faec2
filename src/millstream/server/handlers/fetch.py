"""Fetch 4-18: records of many partitions, within limits, now or when there are enough.

Version 7 has sessions, 9 leader epochs, 11 reading from followers, 12 divergence, 13 topic ids, 15
the epoch of a follower, 16 names the leader if it is another broker. Records stay in their files:
the network sends them from there. Ordinary fetches of consumers are answered before they come here,
by `FastFetch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ApiError, KafkaStorageError, NotLeaderOrFollower
from millstream.network.server.request import PENDING
from millstream.protocol.frame import encode_response_parts
from millstream.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from millstream.replica.fetch_partition import FetchPartition
from millstream.replica.fetch_service import CONSUMER, FetchParams
from millstream.replica.fetch_session import NO_SESSION_ID, FetchAnswer
from millstream.replica.fetch_state import UNKNOWN
from millstream.server.bodies import read_body
from millstream.server.isolation import consumer_isolation
from millstream.server.leaders import STALE_LEADER_CODES, find_leader

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.network.server.request import Outcome, Request, Response
    from millstream.replica.fetch_partition import FetchPartitionData
    from millstream.replica.fetch_session import FetchContext
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.leaders import KnownLeader
    from millstream.types import Uuid

_STORAGE_ERROR_SINCE: Final = 6
_RACKS_SINCE: Final = 11
_TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15
_LEADERS_SINCE: Final = 16


class FetchHandler:
    """Answers Fetch."""

    __slots__ = ("_clock", "_metadata", "_replicas", "_sessions")

    def __init__(
        self, replicas: ReplicaManager, metadata: KRaftMetadataCache, clock: Clock
    ) -> None:
        self._replicas = replicas
        self._sessions = replicas.fetch_sessions
        self._metadata = metadata
        self._clock = clock

    def handle(self, request: Request) -> Response | Outcome:
        """Read, and answer now or when there is enough."""

        def complete(late: FetchAnswer) -> None:
            request.complete(self._answer(request, late))

        frame = bytes(request.frame)
        if self._replicas.begin_wait(frame, complete):
            return PENDING
        try:
            context, params = self._open(request)
        except ApiError as error:
            return self._answer(request, FetchAnswer(NO_SESSION_ID, (), error))
        answer = self._replicas.fetch(context, params, complete, frame)
        return PENDING if answer is None else self._answer(request, answer)

    def fail(self, request: Request, error: ApiError) -> Response:
        """The answer that nothing could be read; versions before sessions have no room for it."""
        message = read_body(FetchRequest, request)
        response = FetchResponse(
            error_code=error.code,
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(
                            partition_index=asked.partition,
                            error_code=error.code,
                            high_watermark=UNKNOWN,
                            records=b"",
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in message.topics
            ],
        )
        return encode_response_parts(response, request.api_version, request.correlation_id)

    def _open(self, request: Request) -> tuple[FetchContext, FetchParams]:
        """What a request asks for, and its limits."""
        version = request.api_version
        message = read_body(FetchRequest, request)
        uses_ids = version >= _TOPIC_IDS_SINCE
        replica_id, replica_epoch = message.replica_id, UNKNOWN
        if version >= _REPLICA_STATE_SINCE:
            state = message.replica_state
            replica_id = CONSUMER if state is None else state.replica_id
            replica_epoch = UNKNOWN if state is None else state.replica_epoch
        context = self._sessions.open(
            message.session_id,
            message.session_epoch,
            _asked(message, uses_ids=uses_ids),
            [
                (topic.topic_id if uses_ids else topic.topic, index)
                for topic in message.forgotten_topics_data
                for index in topic.partitions
            ],
            is_follower=replica_id >= 0,
            uses_topic_ids=uses_ids,
            now_ms=self._clock.monotonic_ms(),
        )
        params = FetchParams(
            message.max_wait_ms,
            message.min_bytes,
            message.max_bytes,
            consumer_isolation(message.isolation_level),
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            needs_leader=version < _RACKS_SINCE,
            rack_id=message.rack_id,
        )
        return context, params

    def _answer(self, request: Request, answer: FetchAnswer) -> Response:
        if answer.encoded is not None:
            return answer.encoded
        version = request.api_version
        response = self._response(answer, version, request.connection.listener_name)
        return encode_response_parts(response, version, request.correlation_id)

    def _response(self, answer: FetchAnswer, version: int, listener: str) -> FetchResponse:
        response = FetchResponse(session_id=answer.session_id)
        if answer.error is not None:
            response.error_code = answer.error.code
        leaders: dict[int, KnownLeader] = {}
        last: str | Uuid | None = None
        for asked, found in answer.partitions:
            if asked.topic != last:
                last = asked.topic
                response.responses.append(_topic(last))
            partition = _partition(asked.index, found, version)
            response.responses[-1].partitions.append(partition)
            if partition.error_code in STALE_LEADER_CODES and version >= _LEADERS_SINCE:
                leader = find_leader(self._metadata, asked.topic, asked.index, listener)
                if leader is not None:
                    leaders[leader.leader_id] = leader
                    partition.current_leader = LeaderIdAndEpoch(
                        leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                    )
        response.node_endpoints = [
            NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port, rack=each.rack)
            for each in leaders.values()
        ]
        return response


def _asked(message: FetchRequest, *, uses_ids: bool) -> list[FetchPartition]:
    return [
        FetchPartition(
            topic.topic_id if uses_ids else topic.topic,
            asked.partition,
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        for topic in message.topics
        for asked in topic.partitions
    ]


def _topic(topic: str | Uuid) -> FetchableTopicResponse:
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic)
    return FetchableTopicResponse(topic_id=topic)


def _partition(index: int, found: FetchPartitionData, version: int) -> PartitionData:
    error = found.error
    if isinstance(error, KafkaStorageError) and version < _STORAGE_ERROR_SINCE:
        error = NotLeaderOrFollower(str(error))
    data = PartitionData(
        partition_index=index,
        error_code=0 if error is None else error.code,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=found.preferred_read_replica,
        # A slice of a file: the encoder only asks for its length.
        records=b"" if found.records is None else found.records,  # type: ignore[arg-type]
    )
    if found.aborted_transactions is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in found.aborted_transactions
        ]
    if found.diverging_epoch is not None:
        data.diverging_epoch = EpochEndOffset(
            epoch=found.diverging_epoch.epoch, end_offset=found.diverging_epoch.end_offset
        )
    return data
