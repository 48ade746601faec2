"""The offsets of share groups: from where on records are still to be delivered, and changing it.

`share-groups` uses it.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.coordinators import CoordinatorKind, Peer, ask_coordinators
from millstream.errors import GroupIdNotFound, error_for_code
from millstream.protocol.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequestTopic,
)
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.cli.message_session import Session
    from millstream.errors import ApiError
    from millstream.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsResponseGroup,
    )

_NONE: Final = -1


class ShareOffset(NamedTuple):
    """Where a share group stands in a partition."""

    start: int | None
    """The first record that may still be delivered; None before anybody has read."""
    lag: int | None
    """Records still to be delivered, where the broker counts them."""


def share_offsets(
    session: Session, group_ids: Iterable[str]
) -> dict[str, dict[TopicPartition, ShareOffset]]:
    """All that each group has, by partition; nothing for a group that is not there."""

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, dict[TopicPartition, ShareOffset]]:
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=g, topics=None) for g in some]
        request = DescribeShareGroupOffsetsRequest(groups=groups)
        response = peer.connection.call(
            request, DescribeShareGroupOffsetsResponse, session.timeout_ms
        )
        return {each.group_id: _offsets(each) for each in response.groups}

    return ask_coordinators(session, CoordinatorKind.GROUP, group_ids, ask)


def set_share_offsets(
    session: Session, group_id: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Let a group without members go on elsewhere."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=place.partition, start_offset=offsets[place]
                )
                for place in places
            ],
        )
        for topic, places in groupby(sorted(offsets), key=lambda place: place.topic)
    ]
    request = AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, None]:
        response = peer.connection.call(request, AlterShareGroupOffsetsResponse, session.timeout_ms)
        if response.error_code:
            raise error_for_code(response.error_code, response.error_message)
        for topic in response.responses:
            for each in topic.partitions:
                if each.error_code:
                    raise error_for_code(each.error_code, each.error_message)
        return {}

    ask_coordinators(session, CoordinatorKind.GROUP, [group_id], ask)


def delete_share_offsets(
    session: Session, group_id: str, topics: Iterable[str]
) -> dict[str, ApiError | None]:
    """Forget where a group stands in topics; for each what the coordinator objects, if anything."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics],
    )

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, dict[str, ApiError | None]]:
        response = peer.connection.call(
            request, DeleteShareGroupOffsetsResponse, session.timeout_ms
        )
        if response.error_code:
            raise error_for_code(response.error_code, response.error_message)
        return {
            group_id: {
                each.topic_name: error_for_code(each.error_code, each.error_message)
                if each.error_code
                else None
                for each in response.responses
            }
        }

    return ask_coordinators(session, CoordinatorKind.GROUP, [group_id], ask)[group_id]


def _offsets(
    group: DescribeShareGroupOffsetsResponseGroup,
) -> dict[TopicPartition, ShareOffset]:
    if group.error_code == GroupIdNotFound.code:
        return {}
    if group.error_code:
        raise error_for_code(group.error_code, group.error_message)
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            if each.error_code:
                raise error_for_code(each.error_code, each.error_message)
            place = TopicPartition(topic.topic_name, each.partition_index)
            found[place] = ShareOffset(
                None if each.start_offset == _NONE else each.start_offset,
                None if each.lag == _NONE else each.lag,
            )
    return dict(sorted(found.items()))
