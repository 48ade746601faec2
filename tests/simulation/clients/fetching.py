"""The reading half of simulated brokers: Fetch with sessions, ListOffsets, ends of epochs.

Sessions are a broker's own and are lost with it. Their rules are checked, not just followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from millstream.protocol.messages import (
    FetchResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
)
from millstream.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from millstream.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderTopicResult,
)
from millstream.types import Uuid
from tests.simulation.producer.cluster import TOPIC, TOPIC_ID
from tests.simulation.producer.network import Delayed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from millstream.protocol.messages import (
        FetchRequest,
        ListOffsetsRequest,
        OffsetForLeaderEpochRequest,
    )
    from millstream.protocol.messages.fetch import FetchPartition
    from tests.simulation.clients.log import LoggedPartition


class _Session:
    def __init__(self, asked: dict[int, FetchPartition]) -> None:
        self.asked = asked
        self.epoch = 1


class Reading:
    """What consumers ask of brokers."""

    def __init__(self, partitions: Sequence[LoggedPartition], random: Random) -> None:
        self._partitions = partitions
        self._random = random
        self._sessions: dict[tuple[int, int], _Session] = {}
        self._next_session = 1
        self.hints = True

    def lose_sessions(self, node: int) -> None:
        """A broker forgets its sessions: it was restarted, or has too many."""
        for key in [each for each in self._sessions if each[0] == node]:
            del self._sessions[key]

    def fetch(self, node: int, request: FetchRequest) -> FetchResponse | Delayed:
        """Read; an answer with nothing in it comes late."""
        session_id, asked, error = self._session(node, request)
        if error:
            return FetchResponse(error_code=error)
        by_id = any(each.topic_id != Uuid.ZERO for each in request.topics) or not request.topics
        room = request.max_bytes
        answers: list[PartitionData] = []
        for each in self._random.sample(list(asked.values()), len(asked)):
            data = self._read(node, each, room, bool(request.isolation_level))
            if data is None:
                continue
            room = max(0, room - len(data.records or b""))
            answers.append(data)
        response = FetchResponse(session_id=session_id, node_endpoints=self._endpoints(answers))
        if answers:
            response.responses = [
                FetchableTopicResponse(
                    topic="" if by_id else TOPIC, topic_id=TOPIC_ID, partitions=answers
                )
            ]
            return response
        return Delayed(response, request.max_wait_ms)

    def _session(
        self, node: int, request: FetchRequest
    ) -> tuple[int, dict[int, FetchPartition], int]:
        asked = {part.partition: part for topic in request.topics for part in topic.partitions}
        if request.session_epoch <= 0:
            self._sessions.pop((node, request.session_id), None)
            if request.session_epoch < 0 or self._random.random() < 0.1:
                return 0, asked, 0
            self._next_session += 1
            self._sessions[node, self._next_session] = _Session(asked)
            return self._next_session, asked, 0
        session = self._sessions.get((node, request.session_id))
        if session is None:
            return 0, {}, FetchSessionIdNotFound.code
        if request.session_epoch != session.epoch:
            return 0, {}, InvalidFetchSessionEpoch.code
        session.epoch += 1
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                del session.asked[index]
        session.asked.update(asked)
        return request.session_id, session.asked, 0

    def _read(
        self, node: int, asked: FetchPartition, room: int, is_committed: bool
    ) -> PartitionData | None:
        log = self._partitions[asked.partition]
        data = PartitionData(
            partition_index=log.index,
            high_watermark=log.end,
            last_stable_offset=log.stable_end,
            log_start_offset=0,
        )
        data.error_code = self._refusal(node, log, asked.current_leader_epoch)
        if data.error_code:
            if self.hints and log.leader != node:
                data.current_leader = LeaderIdAndEpoch(leader_id=log.leader, leader_epoch=log.epoch)
            return data
        if not 0 <= asked.fetch_offset <= log.end:
            data.error_code = OffsetOutOfRange.code
            return data
        end = log.stable_end if is_committed else log.end
        limit = min(room, asked.partition_max_bytes)
        if asked.fetch_offset >= end or limit <= 0:
            return None
        data.records = log.read(asked.fetch_offset, limit, end)
        if is_committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first)
                for each in log.aborted_within(asked.fetch_offset, end)
            ]
        return data

    def _refusal(self, node: int, log: LoggedPartition, epoch: int) -> int:
        if log.leader != node:
            return NotLeaderOrFollower.code
        if 0 <= epoch < log.epoch:
            return FencedLeaderEpoch.code
        return UnknownLeaderEpoch.code if epoch > log.epoch else 0

    def _endpoints(self, answers: list[PartitionData]) -> list[NodeEndpoint]:
        hinted = {
            each.current_leader.leader_id
            for each in answers
            if each.current_leader is not None and each.current_leader.leader_id >= 0
        }
        return [
            NodeEndpoint(node_id=each, host=f"broker-{each}", port=9092) for each in sorted(hinted)
        ]

    def list_offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """The ends of logs."""
        topics = []
        for topic in request.topics:
            found = []
            for each in topic.partitions:
                log = self._partitions[each.partition_index]
                code = self._refusal(node, log, each.current_leader_epoch)
                end = log.stable_end if request.isolation_level else log.end
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=log.index,
                        error_code=code,
                        offset=-1 if code else 0 if each.timestamp == -2 else end,
                        leader_epoch=-1 if code else log.epoch,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    def epoch_ends(
        self, node: int, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        """Where epochs end."""
        topics = []
        for topic in request.topics:
            ends = []
            for each in topic.partitions:
                log = self._partitions[each.partition]
                epoch, end = log.end_of_epoch(each.leader_epoch)
                ends.append(
                    EpochEndOffset(
                        partition=log.index,
                        error_code=self._refusal(node, log, each.current_leader_epoch),
                        leader_epoch=epoch,
                        end_offset=end,
                    )
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        return OffsetForLeaderEpochResponse(topics=topics)
