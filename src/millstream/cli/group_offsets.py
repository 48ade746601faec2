"""The offsets of groups: what is committed, and how far that is from the end.

`groups` and `share-groups` use it. It never looks at members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import GroupIdNotFound
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.cli.session import Session
    from millstream.client.admin.group_offsets import ShareOffset
    from millstream.client.admin.partitions import OffsetSpec
    from millstream.client.groups import OffsetAndMetadata
    from millstream.errors import MillstreamError


def committed_offsets(
    session: Session, group_ids: Iterable[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """All that each group has committed, by partition; nothing for a group that is not there."""
    found = session.admin.list_group_offsets(list(group_ids))
    _raise_unless_missing(found.errors)
    return {name: dict(sorted(theirs.items())) for name, theirs in found.results.items()}


def share_offsets(
    session: Session, group_ids: Iterable[str]
) -> dict[str, dict[TopicPartition, ShareOffset]]:
    """Where each share group stands, by partition; nothing for a group that is not there."""
    found = session.admin.list_share_group_offsets(group_ids)
    _raise_unless_missing(found.errors)
    return {name: dict(sorted(theirs.items())) for name, theirs in found.results.items()}


def end_offsets(
    session: Session, partitions: Iterable[TopicPartition], spec: OffsetSpec = "latest"
) -> dict[TopicPartition, int | None]:
    """An end of each partition, or the offset of a time; none for one that is gone or leaderless.

    A time after the last record has the offset None.
    """
    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    topics = session.topics()
    led = {
        TopicPartition(topic.name, each.index)
        for topic in topics.values()
        for each in topic.partitions
        if each.leader is not None
    }
    specs = {each: spec for each in wanted if each in led}
    found = session.admin.list_offsets(specs).raise_first()
    return {each: at.offset for each, at in found.items()}


def _raise_unless_missing(errors: Mapping[str, MillstreamError]) -> None:
    for error in errors.values():
        if not isinstance(error, GroupIdNotFound):
            raise error
