"""The offsets of groups: what is committed, how far that is from the end, and changing it.

`groups` and `share-groups` use it. It never looks at members.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.cli.coordinators import CoordinatorKind, Peer, ask_coordinators
from millstream.cli.topic_io import LATEST, list_offsets
from millstream.errors import GroupIdNotFound, error_for_code
from millstream.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.cli.message_session import Session
    from millstream.errors import ApiError
    from millstream.protocol.messages.offset_fetch import OffsetFetchResponseGroup

_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a group has read a partition."""

    offset: int
    metadata: str | None = None


def committed_offsets(
    session: Session, group_ids: Iterable[str]
) -> dict[str, dict[TopicPartition, Committed]]:
    """All that each group has committed, by partition; nothing for a group that is not there."""

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, dict[TopicPartition, Committed]]:
        groups = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in some]
        response = peer.connection.call(
            OffsetFetchRequest(groups=groups), OffsetFetchResponse, session.timeout_ms
        )
        topics = [topic for group in response.groups for topic in group.topics]
        names = {} if all(topic.name for topic in topics) else _names_by_id(session)
        return {each.group_id: _committed(each, names) for each in response.groups}

    return ask_coordinators(session, CoordinatorKind.GROUP, group_ids, ask)


def commit_offsets(session: Session, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit on behalf of a group without members; it comes to be if it is not there."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            topic_id=session.topic(topic).topic_id,
            partitions=[
                OffsetCommitRequestPartition(partition_index=each, committed_offset=offset)
                for each, offset in theirs.items()
            ],
        )
        for topic, theirs in _by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(group_id=group_id, topics=topics)

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, None]:
        response = peer.connection.call(request, OffsetCommitResponse, session.timeout_ms)
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    raise error_for_code(each.error_code)
        return {}

    ask_coordinators(session, CoordinatorKind.GROUP, [group_id], ask)


def delete_offsets(
    session: Session, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ApiError | None]:
    """Forget what was committed; for each partition what the coordinator objects, if anything."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in theirs],
        )
        for topic, theirs in _by_topic(dict.fromkeys(partitions, 0)).items()
    ]
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, dict[TopicPartition, ApiError | None]]:
        response = peer.connection.call(request, OffsetDeleteResponse, session.timeout_ms)
        if response.error_code:
            raise error_for_code(response.error_code)
        return {
            group_id: {
                TopicPartition(topic.name, each.partition_index): error_for_code(each.error_code)
                if each.error_code
                else None
                for topic in response.topics
                for each in topic.partitions
            }
        }

    return ask_coordinators(session, CoordinatorKind.GROUP, [group_id], ask)[group_id]


def known_partitions(
    session: Session, partitions: Iterable[TopicPartition]
) -> dict[str, list[int]]:
    """Those that exist and have a leader now, by topic."""
    topics = session.refresh().topics
    found: dict[str, list[int]] = defaultdict(list)
    for each in sorted(set(partitions)):
        view = topics.get(each.topic)
        leaders = [] if view is None else [part.leader_id for part in view.partitions]
        if each.partition < len(leaders) and leaders[each.partition] >= 0:
            found[each.topic].append(each.partition)
    return dict(found)


def end_offsets(
    session: Session, partitions: Iterable[TopicPartition], timestamp: int = LATEST
) -> dict[TopicPartition, int]:
    """An end of each partition, or the offset of a time; none for one that is gone or leaderless.

    A time after the last record has the offset -1.
    """
    return {
        TopicPartition(topic, index): found.offset
        for topic, indexes in known_partitions(session, partitions).items()
        for index, found in list_offsets(session, topic, indexes, timestamp).items()
    }


def _committed(
    group: OffsetFetchResponseGroup, names: Mapping[Uuid, str]
) -> dict[TopicPartition, Committed]:
    if group.error_code == GroupIdNotFound.code:
        return {}
    if group.error_code:
        raise error_for_code(group.error_code)
    found = {}
    for topic in group.topics:
        name = topic.name or names.get(topic.topic_id)
        for each in topic.partitions if name is not None else ():
            if each.error_code:
                raise error_for_code(each.error_code)
            if each.committed_offset != _NONE:
                place = TopicPartition(str(name), each.partition_index)
                found[place] = Committed(each.committed_offset, each.metadata or None)
    return dict(sorted(found.items()))


def _names_by_id(session: Session) -> dict[Uuid, str]:
    """The newest version of the API has ids only."""
    return {each.topic_id: each.name for each in session.refresh().topics.values()}


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for each, offset in sorted(offsets.items()):
        found[each.topic][each.partition] = offset
    return dict(found)
