"""Groups as values: which there are, how they stand, who their members are.

`groups`, `share-groups` and the completion of the shell ask here. Both protocols of consumers look
the same from outside; what only one of them has is None in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from millstream.cli.coordinators import CoordinatorKind, Peer, ask_brokers, ask_coordinators
from millstream.cli.faults import CommandFailed, nearest
from millstream.errors import (
    DecodeError,
    GroupIdNotFound,
    RetriableError,
    UnsupportedVersion,
    error_for_code,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from millstream.protocol.records_framing import decode_assignment, decode_subscription
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.cli.message_session import Session
    from millstream.errors import ApiError
    from millstream.protocol.messages import consumer_group_describe as consumer
    from millstream.protocol.messages import describe_groups as classic
    from millstream.protocol.messages import share_group_describe as share

CONSUMERS: Final = "consumer"
"""The protocol type of classic groups whose members read topics; Kafka Connect has another."""
DEAD: Final = "Dead"
EMPTY: Final = "Empty"


class GroupType(StrEnum):
    """Which protocol a group's members speak."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


CONSUMER_TYPES: Final = (GroupType.CLASSIC, GroupType.CONSUMER)
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


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a group and what it reads."""

    member_id: str
    client_id: str
    host: str
    subscribed: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    instance_id: str | None = None
    rack: str | None = None
    epoch: int | None = None
    pattern: str | None = None
    """Topics that it reads as well, by a regular expression."""
    target: tuple[TopicPartition, ...] | None = None
    """What it is to have when the group has settled."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its coordinator describes it."""

    group_id: str
    type: GroupType
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[MemberView, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None

    def owners(self) -> dict[TopicPartition, MemberView]:
        """Who has which partition."""
        return {each: member for member in self.members for each in member.assigned}


def list_groups(
    session: Session, states: Sequence[str] = (), types: Sequence[GroupType] = ()
) -> list[ListedGroup]:
    """All groups of the cluster by name, or those in some states and of some types."""
    request = ListGroupsRequest(states_filter=list(states), types_filter=[str(t) for t in types])

    def ask(peer: Peer) -> Iterable[ListedGroup]:
        response = peer.connection.call(request, ListGroupsResponse, session.timeout_ms)
        if response.error_code:
            raise error_for_code(response.error_code)
        return [
            ListedGroup(
                each.group_id,
                each.group_type.lower() or GroupType.CLASSIC,
                each.protocol_type,
                each.group_state,
                peer.node_id,
            )
            for each in response.groups
        ]

    return sorted(ask_brokers(session, ask), key=lambda group: group.group_id)


def find_groups(session: Session, group_ids: Iterable[str]) -> dict[str, GroupView]:
    """Those of the classic or the consumer protocol that are there."""

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, GroupView]:
        found: dict[str, GroupView] = {}
        if peer.connection.offers(ApiKey.CONSUMER_GROUP_DESCRIBE):
            found = _ask_consumer(session, peer, some)
        if rest := [each for each in some if each not in found]:
            found |= _ask_classic(session, peer, rest)
        return found

    return ask_coordinators(session, CoordinatorKind.GROUP, group_ids, ask)


def find_share_groups(session: Session, group_ids: Iterable[str]) -> dict[str, GroupView]:
    """The share groups that are there."""

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, GroupView]:
        request = ShareGroupDescribeRequest(group_ids=list(some))
        response = peer.connection.call(request, ShareGroupDescribeResponse, session.timeout_ms)
        return {
            each.group_id: _share_view(each, peer.node_id)
            for each in response.groups
            if _is_there(each.error_code, each.error_message)
        }

    return ask_coordinators(session, CoordinatorKind.GROUP, group_ids, ask)


def delete_groups(session: Session, group_ids: Iterable[str]) -> dict[str, ApiError | None]:
    """Delete groups with their offsets; for each what its coordinator objects, if anything."""

    def ask(peer: Peer, some: Sequence[str]) -> dict[str, ApiError | None]:
        request = DeleteGroupsRequest(groups_names=list(some))
        response = peer.connection.call(request, DeleteGroupsResponse, session.timeout_ms)
        found: dict[str, ApiError | None] = {}
        for each in response.results:
            error = None
            if each.error_code:
                error = error_for_code(each.error_code, each.error_message)
            if isinstance(error, RetriableError):
                raise error
            found[each.group_id] = error
        return found

    return ask_coordinators(session, CoordinatorKind.GROUP, group_ids, ask)


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


def _is_there(error_code: int, message: str | None) -> bool:
    if error_code in (0, GroupIdNotFound.code):
        return not error_code
    raise error_for_code(error_code, message)


def _ask_consumer(session: Session, peer: Peer, some: Sequence[str]) -> dict[str, GroupView]:
    request = ConsumerGroupDescribeRequest(group_ids=list(some))
    response = peer.connection.call(request, ConsumerGroupDescribeResponse, session.timeout_ms)
    return {
        each.group_id: _consumer_view(each, peer.node_id)
        for each in response.groups
        # That is the answer where the protocol is switched off: then all groups are classic.
        if each.error_code != UnsupportedVersion.code
        and _is_there(each.error_code, each.error_message)
    }


def _ask_classic(session: Session, peer: Peer, some: Sequence[str]) -> dict[str, GroupView]:
    request = DescribeGroupsRequest(groups=list(some))
    response = peer.connection.call(request, DescribeGroupsResponse, session.timeout_ms)
    return {
        each.group_id: _classic_view(each, peer.node_id)
        for each in response.groups
        # Before version 6 a group that is not there is dead.
        if _is_there(each.error_code, each.error_message) and each.group_state != DEAD
    }


def _classic_view(group: classic.DescribedGroup, coordinator: int) -> GroupView:
    is_readable = group.protocol_type == CONSUMERS
    return GroupView(
        group.group_id,
        GroupType.CLASSIC,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        tuple(
            MemberView(
                each.member_id,
                each.client_id,
                each.client_host.lstrip("/"),
                _classic_topics(each.member_metadata) if is_readable else (),
                _classic_partitions(each.member_assignment) if is_readable else (),
                instance_id=each.group_instance_id,
            )
            for each in group.members
        ),
    )


def _classic_topics(metadata: bytes) -> tuple[str, ...]:
    try:
        return tuple(sorted(decode_subscription(metadata).topics)) if metadata else ()
    except DecodeError:
        return ()  # What clients put there is theirs; the rest of the group is still to be seen.


def _classic_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        topics = decode_assignment(assignment).assigned_partitions if assignment else ()
    except DecodeError:
        return ()
    return _sorted((each.topic, each.partitions) for each in topics)


def _consumer_view(group: consumer.DescribedGroup, coordinator: int) -> GroupView:
    return GroupView(
        group.group_id,
        GroupType.CONSUMER,
        group.group_state,
        CONSUMERS,
        group.assignor_name,
        coordinator,
        tuple(
            MemberView(
                each.member_id,
                each.client_id,
                each.client_host.lstrip("/"),
                tuple(sorted(each.subscribed_topic_names)),
                _partitions(each.assignment),
                instance_id=each.instance_id,
                rack=each.rack_id,
                epoch=each.member_epoch,
                pattern=each.subscribed_topic_regex or None,
                target=_partitions(each.target_assignment),
            )
            for each in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _share_view(group: share.DescribedGroup, coordinator: int) -> GroupView:
    return GroupView(
        group.group_id,
        GroupType.SHARE,
        group.group_state,
        GroupType.SHARE,
        group.assignor_name,
        coordinator,
        tuple(
            MemberView(
                each.member_id,
                each.client_id,
                each.client_host.lstrip("/"),
                tuple(sorted(each.subscribed_topic_names)),
                _partitions(each.assignment),
                rack=each.rack_id,
                epoch=each.member_epoch,
            )
            for each in group.members
        ),
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions(
    assignment: consumer.Assignment | share.Assignment,
) -> tuple[TopicPartition, ...]:
    return _sorted((each.topic_name, each.partitions) for each in assignment.topic_partitions)


def _sorted(topics: Iterable[tuple[str, Iterable[int]]]) -> tuple[TopicPartition, ...]:
    found = (TopicPartition(topic, index) for topic, indexes in topics for index in indexes)
    return tuple(sorted(found))
