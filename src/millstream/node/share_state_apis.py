"""The questions of share groups to other brokers: the five of the states, and where partitions end.

Each is a `PeerApi` of `node.peer_calls`: which broker answers, how this one does itself, and the
request and response on the wire. The requests about states of one group go together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from millstream.coordinator.share.state import (
    UNKNOWN_EPOCH,
    ShareKey,
    ShareState,
    StateChange,
    StateSummary,
    read_batches,
)
from millstream.errors import (
    NO_ERROR,
    ApiError,
    LeaderNotAvailable,
    UnknownServerError,
    UnknownTopicOrPartition,
    error_for_code,
)
from millstream.metadata.topic_names import SHARE_STATE_TOPIC
from millstream.node.peer_calls import coordinator_of
from millstream.protocol.messages import delete_share_group_state as deleting
from millstream.protocol.messages import initialize_share_group_state as initializing
from millstream.protocol.messages import read_share_group_state as reading
from millstream.protocol.messages import read_share_group_state_summary as summarizing
from millstream.protocol.messages import write_share_group_state as writing
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.storage.log.log_results import LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.message import Message
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.types import Uuid

_CONSUMER = -1
"""The replica id of those who are no replica."""


class Initial(NamedTuple):
    """Where a share partition begins."""

    key: ShareKey
    state_epoch: int
    start_offset: int


class Reading(NamedTuple):
    """A share partition, and the epoch of the leader that asks."""

    key: ShareKey
    leader_epoch: int = UNKNOWN_EPOCH


class Change(NamedTuple):
    """What a leader writes about a share partition."""

    key: ShareKey
    change: StateChange


class End(NamedTuple):
    """A partition whose end is asked for."""

    topic: str
    partition: int


class _Asked(Protocol):
    @property
    def key(self) -> ShareKey: ...


class _StateApi:
    """What the five have in common."""

    def __init__(self, shares: ShareCoordinator, metadata: KRaftMetadataCache) -> None:
        self._shares = shares
        self._metadata = metadata

    def broker_of(self, asked: _Asked) -> int | ApiError:
        """The coordinator of the share partition."""
        return coordinator_of(self._metadata, SHARE_STATE_TOPIC, asked.key.text)

    def group_of(self, asked: _Asked) -> Hashable:
        """A request is about one group."""
        return asked.key.group_id

    def key_of(self, asked: _Asked) -> Hashable:
        """A request has each partition once, and changes stay in order."""
        return asked.key


class Initializations(_StateApi):
    """InitializeShareGroupState."""

    def ask_here(self, asked: Initial, done: Callable[[ApiError | None], None]) -> None:
        """The coordinator is in this process."""
        self._shares.initialize(asked.key, asked.state_epoch, asked.start_offset, done)

    def request(self, asked: Sequence[Initial]) -> Message:
        """Where they begin."""
        return initializing.InitializeShareGroupStateRequest(
            group_id=asked[0].key.group_id,
            topics=_by_topic(
                [
                    (
                        each.key,
                        initializing.PartitionData(
                            partition=each.key.partition,
                            state_epoch=each.state_epoch,
                            start_offset=each.start_offset,
                        ),
                    )
                    for each in asked
                ],
                initializing.InitializeStateData,
            ),
        )

    def outcomes(self, asked: Sequence[Initial], response: Any) -> list[ApiError | None]:
        """Whether they have begun."""
        return [_error(each) for each in _results(asked, response)]


class Readings(_StateApi):
    """ReadShareGroupState."""

    def ask_here(self, asked: Reading, done: Callable[[ShareState | ApiError], None]) -> None:
        """The coordinator is in this process."""
        self._shares.read(asked.key, asked.leader_epoch, done)

    def request(self, asked: Sequence[Reading]) -> Message:
        """For whom to read."""
        return reading.ReadShareGroupStateRequest(
            group_id=asked[0].key.group_id,
            topics=_by_topic(
                [
                    (
                        each.key,
                        reading.PartitionData(
                            partition=each.key.partition, leader_epoch=each.leader_epoch
                        ),
                    )
                    for each in asked
                ],
                reading.ReadStateData,
            ),
        )

    def outcomes(self, asked: Sequence[Reading], response: Any) -> list[ShareState | ApiError]:
        """As much of the states as leaders need."""
        return [
            _error(each)
            or ShareState(
                state_epoch=each.state_epoch,
                start_offset=each.start_offset,
                batches=read_batches(each.state_batches),
            )
            for each in _results(asked, response)
        ]


class Writings(_StateApi):
    """WriteShareGroupState."""

    def ask_here(self, asked: Change, done: Callable[[ApiError | None], None]) -> None:
        """The coordinator is in this process."""
        self._shares.write(asked.key, asked.change, done)

    def request(self, asked: Sequence[Change]) -> Message:
        """What has changed."""
        return writing.WriteShareGroupStateRequest(
            group_id=asked[0].key.group_id,
            topics=_by_topic(
                [(each.key, _written(each)) for each in asked], writing.WriteStateData
            ),
        )

    def outcomes(self, asked: Sequence[Change], response: Any) -> list[ApiError | None]:
        """Whether it is kept."""
        return [_error(each) for each in _results(asked, response)]


class Deletions(_StateApi):
    """DeleteShareGroupState."""

    def ask_here(self, asked: Reading, done: Callable[[ApiError | None], None]) -> None:
        """The coordinator is in this process."""
        self._shares.delete(asked.key, done)

    def request(self, asked: Sequence[Reading]) -> Message:
        """What to forget."""
        return deleting.DeleteShareGroupStateRequest(
            group_id=asked[0].key.group_id,
            topics=_by_topic(
                [
                    (each.key, deleting.PartitionData(partition=each.key.partition))
                    for each in asked
                ],
                deleting.DeleteStateData,
            ),
        )

    def outcomes(self, asked: Sequence[Reading], response: Any) -> list[ApiError | None]:
        """Whether it is forgotten."""
        return [_error(each) for each in _results(asked, response)]


class Summaries(_StateApi):
    """ReadShareGroupStateSummary."""

    def ask_here(self, asked: Reading, done: Callable[[StateSummary | ApiError], None]) -> None:
        """The coordinator is in this process."""
        self._shares.summarize(asked.key, asked.leader_epoch, done)

    def request(self, asked: Sequence[Reading]) -> Message:
        """Of which partitions."""
        return summarizing.ReadShareGroupStateSummaryRequest(
            group_id=asked[0].key.group_id,
            topics=_by_topic(
                [
                    (
                        each.key,
                        summarizing.PartitionData(
                            partition=each.key.partition, leader_epoch=each.leader_epoch
                        ),
                    )
                    for each in asked
                ],
                summarizing.ReadStateSummaryData,
            ),
        )

    def outcomes(self, asked: Sequence[Reading], response: Any) -> list[StateSummary | ApiError]:
        """How far each has come."""
        return [
            _error(each)
            or StateSummary(
                each.state_epoch,
                each.leader_epoch,
                each.start_offset,
                each.delivery_complete_count,
            )
            for each in _results(asked, response)
        ]


class Ends:
    """ListOffsets: where partitions end, for the lag of groups."""

    def __init__(self, replicas: ReplicaManager, metadata: KRaftMetadataCache) -> None:
        self._replicas = replicas
        self._metadata = metadata

    def broker_of(self, asked: End) -> int | ApiError:
        """The leader of the partition."""
        if self._metadata.partition(asked.topic, asked.partition) is None:
            return UnknownTopicOrPartition(f"there is no {asked.topic}-{asked.partition}")
        leader_id = self._metadata.leader_of(asked.topic, asked.partition)
        if leader_id is None:
            return LeaderNotAvailable(f"{asked.topic}-{asked.partition} has no leader now")
        return leader_id

    def group_of(self, asked: End) -> Hashable:
        """All go together."""
        return None

    def key_of(self, asked: End) -> Hashable:
        """A request has each partition once."""
        return asked

    def ask_here(self, asked: End, done: Callable[[int | ApiError], None]) -> None:
        """The high watermark of a partition that this broker leads."""
        try:
            found = self._replicas.list_offset(asked.topic, asked.partition, LATEST_TIMESTAMP)
        except ApiError as error:
            done(error)
        else:
            done(found.offset)

    def request(self, asked: Sequence[End]) -> ListOffsetsRequest:
        """As a consumer asks."""
        topics: dict[str, ListOffsetsTopic] = {}
        for each in asked:
            topic = topics.setdefault(each.topic, ListOffsetsTopic(name=each.topic))
            topic.partitions.append(
                ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST_TIMESTAMP)
            )
        return ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))

    def outcomes(self, asked: Sequence[End], response: Message) -> list[int | ApiError]:
        """The ends."""
        assert isinstance(response, ListOffsetsResponse)
        found = {
            End(topic.name, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }
        return [_error(found.get(each)) or found[each].offset for each in asked]


def _written(asked: Change) -> writing.PartitionData:
    change = asked.change
    return writing.PartitionData(
        partition=asked.key.partition,
        state_epoch=change.state_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.complete_count,
        state_batches=[
            writing.StateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.state,
                delivery_count=each.delivery_count,
            )
            for each in change.batches
        ],
    )


def _by_topic(
    partitions: Sequence[tuple[ShareKey, Any]], make_topic: Callable[..., Any]
) -> list[Any]:
    """The partitions of a request, in their topics."""
    topics: dict[Uuid, list[Any]] = {}
    for key, data in partitions:
        topics.setdefault(key.topic_id, []).append(data)
    return [make_topic(topic_id=each, partitions=found) for each, found in topics.items()]


def _results(asked: Sequence[Any], response: Any) -> list[Any]:
    """The result of each partition; None where there is none."""
    found = {
        (topic.topic_id, each.partition): each
        for topic in response.results
        for each in topic.partitions
    }
    return [found.get((each.key.topic_id, each.key.partition)) for each in asked]


def _error(result: Any) -> ApiError | None:
    if result is None:
        return UnknownServerError("the broker did not answer for the partition")
    if result.error_code == NO_ERROR:
        return None
    return error_for_code(result.error_code, getattr(result, "error_message", None))
