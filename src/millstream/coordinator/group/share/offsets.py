"""`ShareGroupOffsets`: where share groups stand in their topics, shown, set and forgotten.

The handlers of DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets call
it. Only a group without members can be changed: its members' leaders would not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.decision import Decision
from millstream.coordinator.gathering import gather
from millstream.coordinator.group.share.records import TopicShare
from millstream.coordinator.group.share.states import ToInitialize
from millstream.coordinator.share.state import (
    UNINITIALIZED_OFFSET,
    UNKNOWN_EPOCH,
    ShareKey,
    StateSummary,
)
from millstream.errors import ApiError, InvalidRequest, UnknownTopicOrPartition
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.coordinator.group.ports import TopicsView
    from millstream.coordinator.group.shard import GroupShard
    from millstream.coordinator.group.share.coordinator import ShareGroupCoordinator
    from millstream.coordinator.group.share.ports import PartitionEnds
    from millstream.coordinator.runtime import CoordinatorRuntime
    from millstream.coordinator.share.ports import ShareStateStore
    from millstream.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
    )
    from millstream.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
    )
    from millstream.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequestGroup,
    )

_NO_LAG: Final = -1


class _Place(NamedTuple):
    """A partition that is asked about."""

    topic: str
    topic_id: Uuid
    partition: int
    is_begun: bool


class ShareGroupOffsets:
    """The administration of share groups' offsets."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        groups: ShareGroupCoordinator,
        states: ShareStateStore,
        topics: TopicsView,
        ends: PartitionEnds,
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._states = states
        self._topics = topics
        self._ends = ends

    # Describing.

    def describe(
        self,
        asked: DescribeShareGroupOffsetsRequestGroup,
        done: Callable[[DescribeShareGroupOffsetsResponseGroup], None],
    ) -> None:
        """Where a group stands in the topics that are asked for, or in all it has state of."""

        def ask(
            place: _Place, answered: Callable[[DescribeShareGroupOffsetsResponsePartition], None]
        ) -> None:
            self._describe_place(asked.group_id, place, answered)

        def found(places: list[_Place] | ApiError) -> None:
            if isinstance(places, ApiError):
                done(failed_offsets(asked, places))
            else:
                gather(places, ask, lambda parts: done(_described(asked.group_id, places, parts)))

        self._runtime.read(asked.group_id, lambda shard, _: self._places(shard, asked), found)

    def _places(
        self, shard: GroupShard, asked: DescribeShareGroupOffsetsRequestGroup
    ) -> list[_Place]:
        begun = shard.shares.group(asked.group_id).state.initialized
        if asked.topics is None:
            return [
                _Place(share.name, topic_id, partition, is_begun=True)
                for topic_id, share in begun.items()
                for partition in sorted(share.partitions)
            ]
        places = []
        for topic in asked.topics:
            topic_id = self._topics.topic_id(topic.topic_name) or Uuid.ZERO
            known = begun.get(topic_id)
            for partition in topic.partitions:
                is_begun = known is not None and partition in known.partitions
                places.append(_Place(topic.topic_name, topic_id, partition, is_begun))
        return places

    def _describe_place(
        self,
        group_id: str,
        place: _Place,
        done: Callable[[DescribeShareGroupOffsetsResponsePartition], None],
    ) -> None:
        if not place.is_begun:
            count = self._topics.partition_count(place.topic)
            exists = count is not None and 0 <= place.partition < count
            done(
                _partition(place, StateSummary(0, 0, UNINITIALIZED_OFFSET, 0), _NO_LAG)
                if exists
                else _failed(place, UnknownTopicOrPartition(f"{place.topic} is not known"))
            )
            return

        def summarized(summary: StateSummary | ApiError) -> None:
            if isinstance(summary, ApiError):
                done(_failed(place, summary))
            elif summary.start_offset == UNINITIALIZED_OFFSET:
                done(_partition(place, summary, _NO_LAG))
            else:
                self._ends.end_offset(
                    place.topic,
                    place.partition,
                    lambda end: done(_partition(place, summary, _lag(summary, end))),
                )

        key = ShareKey(group_id, place.topic_id, place.partition)
        self._states.summarize(key, UNKNOWN_EPOCH, summarized)

    # Altering.

    def alter(
        self,
        request: AlterShareGroupOffsetsRequest,
        done: Callable[[AlterShareGroupOffsetsResponse | ApiError], None],
    ) -> None:
        """Let a group without members begin elsewhere; one that is not there yet, too."""
        group_id = request.group_id
        offsets: dict[ShareKey, int] = {}
        topics: dict[Uuid, TopicShare] = {}
        problems: dict[tuple[str, int], ApiError] = {}
        for topic in request.topics:
            topic_id, count = (
                self._topics.topic_id(topic.topic_name),
                self._topics.partition_count(topic.topic_name),
            )
            for asked in topic.partitions:
                if topic_id is None or count is None or not 0 <= asked.partition_index < count:
                    problem: ApiError = UnknownTopicOrPartition("there is no such partition")
                    problems[topic.topic_name, asked.partition_index] = problem
                elif asked.start_offset < 0:
                    problem = InvalidRequest(f"{asked.start_offset} is no offset")
                    problems[topic.topic_name, asked.partition_index] = problem
                else:
                    offsets[ShareKey(group_id, topic_id, asked.partition_index)] = (
                        asked.start_offset
                    )
                    known = topics.get(topic_id, TopicShare(topic.topic_name, frozenset()))
                    partitions = known.partitions | {asked.partition_index}
                    topics[topic_id] = TopicShare(topic.topic_name, partitions)

        def decide(shard: GroupShard) -> Decision[ToInitialize]:
            shard.shares.group_or_new(group_id).validate_delete()
            if not topics:
                return Decision(ToInitialize(UNKNOWN_EPOCH, topics))
            return shard.share_states.begin(group_id, topics, in_new_epoch=True)

        def noted(begun: ToInitialize | ApiError) -> None:
            if isinstance(begun, ApiError):
                done(begun)
            else:
                self._groups.initialize(group_id, begun, offsets, altered)

        def altered(errors: Mapping[ShareKey, ApiError | None]) -> None:
            for key, error in errors.items():
                if error is not None:
                    problems[topics[key.topic_id].name, key.partition] = error
            done(self._altered(request, problems))

        self._runtime.write(group_id, lambda shard, _: decide(shard), noted)

    def _altered(
        self,
        request: AlterShareGroupOffsetsRequest,
        problems: Mapping[tuple[str, int], ApiError],
    ) -> AlterShareGroupOffsetsResponse:
        def partition(topic: str, index: int) -> AlterShareGroupOffsetsResponsePartition:
            problem = problems.get((topic, index))
            return AlterShareGroupOffsetsResponsePartition(
                partition_index=index,
                error_code=0 if problem is None else problem.code,
                error_message=None if problem is None else str(problem),
            )

        return AlterShareGroupOffsetsResponse(
            responses=[
                AlterShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    topic_id=self._topics.topic_id(topic.topic_name) or Uuid.ZERO,
                    partitions=[
                        partition(topic.topic_name, each.partition_index)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    # Deleting.

    def delete(
        self,
        request: DeleteShareGroupOffsetsRequest,
        done: Callable[[DeleteShareGroupOffsetsResponse | ApiError], None],
    ) -> None:
        """Let a group without members forget topics."""
        names = [topic.topic_name for topic in request.topics]

        def ask(shard: GroupShard) -> dict[str, Uuid]:
            group = shard.shares.group(request.group_id)
            group.validate_delete()
            known = {**group.state.initializing, **group.state.initialized}
            return {share.name: topic_id for topic_id, share in known.items()}

        def found(known: Mapping[str, Uuid] | ApiError) -> None:
            if isinstance(known, ApiError):
                done(known)
                return
            ids = [known[name] for name in names if name in known]
            self._groups.delete_state(
                request.group_id, ids, lambda outcome: deleted(known, outcome)
            )

        def deleted(
            known: Mapping[str, Uuid], outcome: Mapping[ShareKey, ApiError | None] | ApiError
        ) -> None:
            if isinstance(outcome, ApiError):
                done(outcome)
                return
            failed = {key.topic_id: each for key, each in outcome.items() if each is not None}
            done(
                DeleteShareGroupOffsetsResponse(
                    responses=[self._deleted(name, known, failed) for name in names]
                )
            )

        self._runtime.read(request.group_id, lambda shard, _: ask(shard), found)

    def _deleted(
        self, name: str, known: Mapping[str, Uuid], failed: Mapping[Uuid, ApiError]
    ) -> DeleteShareGroupOffsetsResponseTopic:
        topic_id = known.get(name)
        problem: ApiError | None = None
        if topic_id is None:
            problem = UnknownTopicOrPartition("there is no offset information to delete")
        else:
            problem = failed.get(topic_id)
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=topic_id or self._topics.topic_id(name) or Uuid.ZERO,
            error_code=0 if problem is None else problem.code,
            error_message=None if problem is None else str(problem),
        )


def failed_offsets(
    asked: DescribeShareGroupOffsetsRequestGroup, error: ApiError
) -> DescribeShareGroupOffsetsResponseGroup:
    """A group whose offsets cannot be shown."""
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, error_code=error.code, error_message=str(error)
    )


def _described(
    group_id: str, places: list[_Place], parts: list[DescribeShareGroupOffsetsResponsePartition]
) -> DescribeShareGroupOffsetsResponseGroup:
    topics: dict[str, DescribeShareGroupOffsetsResponseTopic] = {}
    for place, part in zip(places, parts, strict=True):
        topic = topics.setdefault(
            place.topic,
            DescribeShareGroupOffsetsResponseTopic(topic_name=place.topic, topic_id=place.topic_id),
        )
        topic.partitions.append(part)
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=list(topics.values()))


def _partition(
    place: _Place, summary: StateSummary, lag: int
) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=place.partition,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=lag,
    )


def _failed(place: _Place, error: ApiError) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=place.partition,
        start_offset=UNINITIALIZED_OFFSET,
        lag=_NO_LAG,
        error_code=error.code,
        error_message=str(error),
    )


def _lag(summary: StateSummary, end: int | ApiError) -> int:
    """How many records are still to be delivered to the end."""
    if isinstance(end, ApiError):
        return _NO_LAG
    return max(end - summary.start_offset - max(summary.complete_count, 0), 0)
