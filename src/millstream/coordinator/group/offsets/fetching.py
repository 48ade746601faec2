"""OffsetFetch: what groups have committed, in the words of the response. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ApiError, GroupIdNotFound, UnknownTopicId, UnstableOffsetCommit
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.coordinator.group.group import Group
    from millstream.coordinator.group.offsets.manager import OffsetManager
    from millstream.coordinator.group.ports import TopicsView
    from millstream.protocol.messages.classic_group_records import OffsetCommitValue
    from millstream.protocol.messages.offset_fetch import (
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
    )

FETCH_TOPIC_IDS_SINCE: Final = 10
NO_OFFSET: Final = -1


class OffsetFetcher:
    """Answers for the groups of one shard."""

    def __init__(
        self, offsets: OffsetManager, topics: TopicsView, groups: Mapping[str, Group]
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups

    def fetch(
        self, request: OffsetFetchRequestGroup, version: int, *, requires_stable: bool
    ) -> OffsetFetchResponseGroup:
        """The offsets of some partitions of a group, or of all."""
        group = self._groups.get(request.group_id)
        is_known = group is not None
        if group is not None:
            try:
                group.validate_offset_fetch(request.member_id, request.member_epoch)
            except GroupIdNotFound:
                is_known = False
        look = _Look(self._offsets, request.group_id, requires_stable, is_known)
        if request.topics is None:
            topics = self._fetch_all(look, version)
        else:
            topics = [self._fetch_topic(look, topic, version) for topic in request.topics]
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def _fetch_topic(
        self, look: _Look, topic: OffsetFetchRequestTopics, version: int
    ) -> OffsetFetchResponseTopics:
        name, topic_id = topic.name, topic.topic_id
        if version >= FETCH_TOPIC_IDS_SINCE:
            found = self._topics.topic_name(topic_id)
            if found is None:
                return OffsetFetchResponseTopics(
                    topic_id=topic_id,
                    partitions=[
                        _failed(index, UnknownTopicId()) for index in topic.partition_indexes
                    ],
                )
            name = found
        else:
            topic_id = self._topics.topic_id(name) or Uuid.ZERO
        return OffsetFetchResponseTopics(
            name=name,
            topic_id=topic_id,
            partitions=[look.at(name, topic_id, index) for index in topic.partition_indexes],
        )

    def _fetch_all(self, look: _Look, version: int) -> list[OffsetFetchResponseTopics]:
        answers = []
        for name in look.topics():
            topic_id = self._topics.topic_id(name)
            if topic_id is None and version >= FETCH_TOPIC_IDS_SINCE:
                continue  # It was deleted: there is no id to name it by.
            found = [look.at(name, topic_id or Uuid.ZERO, index) for index in look.partitions(name)]
            answers.append(
                OffsetFetchResponseTopics(
                    name=name, topic_id=topic_id or Uuid.ZERO, partitions=found
                )
            )
        return answers


class _Look:
    """One group while its offsets are read."""

    __slots__ = ("_by_topic", "_group_id", "_offsets", "_requires_stable")

    def __init__(
        self, offsets: OffsetManager, group_id: str, requires_stable: bool, is_known: bool
    ) -> None:
        self._offsets = offsets
        self._group_id = group_id
        self._requires_stable = requires_stable and offsets.pending.has_group(group_id)
        self._by_topic: Mapping[str, Mapping[int, OffsetCommitValue]] = (
            offsets.committed.of_group(group_id) if is_known else {}
        )

    def topics(self) -> list[str]:
        """The topics with offsets."""
        return list(self._by_topic)

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic with offsets."""
        return list(self._by_topic[topic])

    def at(self, topic: str, topic_id: Uuid, partition: int) -> OffsetFetchResponsePartitions:
        """The answer for a partition."""
        if self._requires_stable and self._offsets.pending.has(self._group_id, topic, partition):
            return _failed(partition, UnstableOffsetCommit())
        by_partition = self._by_topic.get(topic)
        value = None if by_partition is None else by_partition.get(partition)
        if value is None or _is_of_another(value.topic_id, topic_id):
            return OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=NO_OFFSET
            )
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
        )


def _is_of_another(stored: Uuid, asked: Uuid) -> bool:
    """Whether an offset is of a topic that was deleted and had the same name."""
    return Uuid.ZERO not in (stored, asked) and stored != asked


def _failed(partition: int, error: ApiError) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, error_code=error.code
    )
