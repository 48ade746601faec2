"""Which groups there are and how they stand, of the kinds that a command is about.

`groups`, `share-groups` and the completion of the shell ask here. What a group is comes from the
client library.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from millstream.cli.faults import CommandFailed, nearest
from millstream.errors import GroupIdNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.cli.session import Session
    from millstream.client.admin.group_descriptions import GroupDescription, MemberDescription
    from millstream.client.admin.groups import GroupListing
    from millstream.types import TopicPartition

_MARKER_GROUP: Final = re.compile(r".+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]+")
"""A prefix, the id of the query, and the number of the task (`spark.markers`)."""
DEAD: Final = "Dead"
EMPTY: Final = "Empty"


class GroupType(StrEnum):
    """Which protocol a group's members speak."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


CONSUMER_TYPES: Final = (GroupType.CLASSIC, GroupType.CONSUMER)
SHARE_TYPES: Final = (GroupType.SHARE,)
GROUP_STATES: Final = (
    EMPTY,
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "NotReady",
    DEAD,
)


def list_groups(
    session: Session, states: Sequence[str] = (), types: Sequence[GroupType] = ()
) -> list[GroupListing]:
    """All groups of the cluster by name, or those in some states and of some types."""
    found = session.admin.list_groups(states=states, types=[each.value for each in types])
    # Brokers before Kafka 4 have one type and no name for it.
    return [replace(each, type=each.type or GroupType.CLASSIC) for each in found]


def is_internal(group: GroupListing) -> bool:
    """Whether a group is no reader's: Spark's exactly-once sink has one for each of its tasks."""
    return group.state == EMPTY and _MARKER_GROUP.fullmatch(group.group_id) is not None


def find_groups(
    session: Session, group_ids: Iterable[str], types: Sequence[GroupType]
) -> dict[str, GroupDescription]:
    """Those that are there and of one of these types."""
    found = session.admin.describe_groups(group_ids)
    for error in found.errors.values():
        if not isinstance(error, GroupIdNotFound):
            raise error
    return {name: each for name, each in found.results.items() if each.type in types}


def owners(group: GroupDescription) -> dict[TopicPartition, MemberDescription]:
    """Who has which partition."""
    return {each: member for member in group.members for each in member.assignment}


class NoSuchGroup(CommandFailed):
    """A group is not there, or is of another kind."""

    def __init__(self, message: str, *, is_of_another_kind: bool = False, near: str = "") -> None:
        super().__init__(message)
        self.is_of_another_kind = is_of_another_kind
        self.near = near
        """Which one may have been meant, as `nearest` says it."""


def no_such_group(session: Session, group_id: str, wanted: Sequence[GroupType]) -> NoSuchGroup:
    """What to say about a group that is not there, or is of another kind."""
    listed = {each.group_id: each.type for each in list_groups(session)}
    if found := listed.get(group_id):
        family = "share-groups" if found == GroupType.SHARE else "groups"
        hint = "" if found == GroupType.STREAMS else f"; see `millstream {family} --help`"
        return NoSuchGroup(f"{group_id!r} is a {found} group{hint}", is_of_another_kind=True)
    of_kind = [each for each, kind in listed.items() if kind in wanted]
    is_share = GroupType.SHARE in wanted
    noun, family = ("share group", "share-groups") if is_share else ("group", "groups")
    near = nearest(group_id, of_kind)
    hint = near or f"; `millstream {family} list` shows all"
    return NoSuchGroup(f"there is no {noun} {group_id!r}{hint}", near=near)
