"""Brokers with logs, for consumers under test: Fetch with sessions, ListOffsets, epochs.

They answer through a `ScriptedCluster`. A fetch that finds nothing is answered when time has
passed, as a broker would; the rules of fetch sessions are checked, not just followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from millstream.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
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
    EpochEndOffset as EndOfEpoch,
)
from millstream.protocol.messages.offset_for_leader_epoch import OffsetForLeaderTopicResult
from millstream.records import RecordBatchBuilder
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.protocol.messages.fetch import FetchPartition
    from tests.unit.client.scripted_cluster import ScriptedCluster


@dataclass
class FakeLog:
    """One partition: batches with their first and last offsets and epochs."""

    batches: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    error_code: int = 0
    preferred: int = -1
    aborted: list[tuple[int, int]] = field(default_factory=list)

    def append(self, *values: bytes, epoch: int = 0, timestamp: int = 1000, **how: object) -> None:
        """Add a batch."""
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(timestamp, b"k", value)
        self.append_batch(
            builder.build(base_offset=self.end, leader_epoch=epoch, **how),  # type: ignore[arg-type]
            len(values),
            epoch,
        )

    def append_batch(self, data: bytes, count: int, epoch: int = 0) -> None:
        """Add a batch that was built for this place."""
        self.batches.append((self.end, self.end + count - 1, epoch, data))
        self.end += count

    def truncate(self, end: int) -> None:
        """Lose everything from a batch on."""
        self.batches = [each for each in self.batches if each[1] < end]
        self.end = end

    def read(self, offset: int) -> bytes:
        """The batches from the one with the offset on."""
        return b"".join(data for _, last, _, data in self.batches if last >= offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch not above this one, and the first offset behind it."""
        known = [each for each in self.batches if each[2] <= epoch]
        if not known:
            return -1, -1
        newest = known[-1][2]
        later = [each[0] for each in self.batches if each[2] > newest]
        return newest, later[0] if later else self.end


class FakeBrokers:
    """All logs of a cluster, and the sessions of each broker."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.sessions: dict[tuple[int, int], dict[TopicPartition, FetchPartition]] = {}
        self.epochs: dict[tuple[int, int], int] = {}
        self.offers_sessions = True
        self.session_error = 0
        self.hints_at_leaders = False
        self.broken: set[int] = set()
        self._next_session = 100
        cluster.on(ApiKey.FETCH, self._fetch)
        cluster.on(ApiKey.LIST_OFFSETS, self._list_offsets)
        cluster.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._epoch_ends)

    def add_topic(self, name: str, leaders: list[int] | None = None) -> list[TopicPartition]:
        """A topic with empty logs."""
        chosen = leaders or [1]
        self.cluster.add_topic(name, chosen)
        partitions = [TopicPartition(name, each) for each in range(len(chosen))]
        self.logs.update((each, FakeLog()) for each in partitions)
        return partitions

    def fetches(self) -> list[FetchRequest]:
        """The fetches that were asked for, in order."""
        return [
            each.message for each in self.cluster.asked if isinstance(each.message, FetchRequest)
        ]

    # ---- Fetch ----

    def _fetch(self, node_id: int, request: Message) -> FetchResponse | None:
        assert isinstance(request, FetchRequest)
        if node_id in self.broken:
            return None
        if self.session_error:
            error, self.session_error = self.session_error, 0
            return FetchResponse(error_code=error)
        by_id = any(each.topic_id != Uuid.ZERO for each in request.topics)
        session_id, wanted = self._session(node_id, request)
        answers = [
            data
            for partition, asked in wanted.items()
            if (data := self._read(node_id, partition, asked, request.rack_id)) is not None
        ]
        if not answers:
            # Nobody has anything: the broker waits. Time is what the test has enough of.
            self.cluster.clock.advance(max(1, request.max_wait_ms))
        endpoints = [
            NodeEndpoint(node_id=each, host=f"broker{each}", port=9092)
            for each in range(1, self.cluster.broker_count + 1)
        ]
        return FetchResponse(
            session_id=session_id,
            node_endpoints=endpoints if self.hints_at_leaders else [],
            responses=[
                FetchableTopicResponse(
                    topic="" if by_id else partition.topic,
                    topic_id=self.cluster.topics[partition.topic].topic_id,
                    partitions=[data],
                )
                for partition, data in answers
            ],
        )

    def _session(
        self, node_id: int, request: FetchRequest
    ) -> tuple[int, dict[TopicPartition, FetchPartition]]:
        asked = {
            TopicPartition(self._name(each.topic, each.topic_id), part.partition): part
            for each in request.topics
            for part in each.partitions
        }
        if request.session_epoch <= 0:
            self.sessions.pop((node_id, request.session_id), None)
            if not self.offers_sessions or request.session_epoch < 0:
                return 0, asked
            self._next_session += 1
            key = (node_id, self._next_session)
            self.sessions[key], self.epochs[key] = dict(asked), 1
            return self._next_session, asked
        key = (node_id, request.session_id)
        assert request.session_epoch == self.epochs[key], "the session's epoch"
        self.epochs[key] += 1
        for each in request.forgotten_topics_data:
            for number in each.partitions:
                del self.sessions[key][
                    TopicPartition(self._name(each.topic, each.topic_id), number)
                ]
        self.sessions[key].update(asked)
        return request.session_id, self.sessions[key]

    def _name(self, name: str, topic_id: Uuid) -> str:
        if name:
            return name
        return next(key for key, each in self.cluster.topics.items() if each.topic_id == topic_id)

    def _read(
        self, node_id: int, partition: TopicPartition, asked: FetchPartition, rack: str
    ) -> tuple[TopicPartition, PartitionData] | None:
        log = self.logs[partition]
        topic = self.cluster.topics[partition.topic]
        leader = topic.leaders[partition.partition]
        data = PartitionData(
            partition_index=partition.partition,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
        )
        if log.error_code:
            data.error_code = log.error_code
        elif node_id not in (leader, log.preferred):
            data.error_code = 6
            if self.hints_at_leaders:
                epoch = topic.epochs[partition.partition]
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        elif asked.fetch_offset < log.start:
            data.error_code = 1
        elif node_id == leader and rack and log.preferred not in (-1, leader):
            data.preferred_read_replica = log.preferred
        elif self._has_diverged(log, asked):
            epoch, end = log.end_of_epoch(asked.last_fetched_epoch)
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
        elif asked.fetch_offset > log.end:
            data.error_code = 1
        else:
            data.records = log.read(asked.fetch_offset)
            data.aborted_transactions = [
                AbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first in log.aborted
            ]
            if not data.records:
                return None
        return partition, data

    def _has_diverged(self, log: FakeLog, asked: FetchPartition) -> bool:
        if asked.last_fetched_epoch < 0:
            return False
        epoch, end = log.end_of_epoch(asked.last_fetched_epoch)
        return epoch >= 0 and (epoch < asked.last_fetched_epoch or end < asked.fetch_offset)

    # ---- lookups ----

    def _list_offsets(self, node_id: int, request: Message) -> ListOffsetsResponse | None:
        assert isinstance(request, ListOffsetsRequest)
        if node_id in self.broken:
            return None
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._found(
                            node_id,
                            TopicPartition(topic.name, each.partition_index),
                            each.timestamp,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _found(
        self, node_id: int, partition: TopicPartition, timestamp: int
    ) -> ListOffsetsPartitionResponse:
        log = self.logs[partition]
        found = ListOffsetsPartitionResponse(partition_index=partition.partition)
        if self.cluster.topics[partition.topic].leaders[partition.partition] != node_id:
            found.error_code = 6
        elif log.error_code:
            found.error_code = log.error_code
        elif timestamp == -2:
            found.offset = log.start
        elif timestamp == -1:
            found.offset = log.end
        else:
            later = [each for each in log.batches if _timestamp(each[3]) >= timestamp]
            if later:
                found.offset, found.timestamp = later[0][0], _timestamp(later[0][3])
        return found

    def _epoch_ends(self, node_id: int, request: Message) -> OffsetForLeaderEpochResponse:
        assert isinstance(request, OffsetForLeaderEpochRequest)
        topics = []
        for topic in request.topics:
            ends = []
            for each in topic.partitions:
                log = self.logs[TopicPartition(topic.topic, each.partition)]
                epoch, end = log.end_of_epoch(each.leader_epoch)
                ends.append(
                    EndOfEpoch(
                        partition=each.partition,
                        error_code=log.error_code,
                        leader_epoch=epoch,
                        end_offset=end,
                    )
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=ends))
        return OffsetForLeaderEpochResponse(topics=topics)


def _timestamp(batch: bytes) -> int:
    return int.from_bytes(batch[35:43], "big")
