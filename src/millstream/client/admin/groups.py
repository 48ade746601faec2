"""Groups of both consumer protocols and share groups: list, describe, delete, remove members.

To the user a group is a group: which protocol its members speak is a fact of it, and what only one
protocol has is None or empty in the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from millstream.client.admin.group_descriptions import (
    GroupDescription,
    GroupDescriptions,
)
from millstream.client.admin.operations import Operations, error_or, raise_for
from millstream.client.admin.outcomes import Outcomes
from millstream.client.admin.partitions import require_version
from millstream.client.router import Coordinator, Node
from millstream.errors import GroupIdNotFound, MillstreamError, UnsupportedVersion
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.client.router import Target

GroupType: TypeAlias = Literal["classic", "consumer", "share", "streams"]

_STATES_FROM: Final = 4
_TYPES_FROM: Final = 5
_SEVERAL_LEAVE_FROM: Final = 3


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; what an old broker does not tell is empty."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    """What its members are: "consumer", or "connect" and the like."""
    coordinator: int | None = None
    """The broker that coordinates it."""


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member of a classic group: a static one by its instance id, others by member id."""

    group_instance_id: str | None = None
    member_id: str = ""


class GroupOperations(Operations):
    """Operations on groups."""

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[GroupType] = (),
        protocol_types: Iterable[str] = (),
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """All groups, or those in the given states and of the given types, by name."""
        wanted_states, wanted_types = list(states), [str(each) for each in types]
        wanted_protocols = set(protocol_types)

        def request(_nodes: Sequence[int]) -> VersionedRequest:
            def build(version: int) -> ListGroupsRequest:
                needed = _TYPES_FROM if wanted_types else _STATES_FROM if wanted_states else 0
                require_version("ListGroups", needed, version)
                return ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)

            return VersionedRequest(ApiKey.LIST_GROUPS, build)

        def read(
            answer: ListGroupsResponse, nodes: Sequence[int]
        ) -> dict[int, list[GroupListing] | MillstreamError]:
            raise_for(answer)
            return {
                nodes[0]: [
                    GroupListing(
                        name,
                        each.group_type.lower(),
                        each.group_state,
                        each.protocol_type,
                        nodes[0],
                    )
                    for each in answer.groups
                    if (name := self._names.from_wire(each.group_id)) is not None
                ]
            }

        brokers = await self._brokers(timeout)
        found = await self._each(brokers, Node, request, read, timeout, per_request=1)
        listed = {
            each.group_id: each
            for listings in found.raise_first().results.values()
            for each in listings
            if not wanted_protocols or each.protocol_type in wanted_protocols
        }
        return [listed[name] for name in sorted(listed)]

    async def describe_groups(
        self, groups: Iterable[str], *, timeout: float | None = None
    ) -> Outcomes[str, GroupDescription]:
        """State, members and assignments of groups, whichever protocol they speak."""
        asked = list(dict.fromkeys(groups))
        descriptions = GroupDescriptions(self._names)
        found = await self._describe_consumer_groups(asked, descriptions, timeout)
        for others in (self._describe_classic_groups, self._describe_share_groups):
            rest = [name for name, error in found.errors.items() if _may_be_another(error)]
            if not rest:
                break
            found = _merged(asked, found, await others(rest, descriptions, timeout))
        return Outcomes(
            {
                name: replace(each, coordinator=self._runtime.router.coordinator("group", wire))
                for name, each in found.results.items()
                if (wire := self._names.to_wire(name))
            },
            found.errors,
        )

    async def describe_group(self, group: str, *, timeout: float | None = None) -> GroupDescription:
        """State, members and assignments of a group."""
        return (await self.describe_groups([group], timeout=timeout))[group]

    async def delete_groups(
        self, groups: Iterable[str], *, timeout: float | None = None
    ) -> Outcomes[str, None]:
        """Delete groups that have no members, with their offsets."""

        def request(names: Sequence[str]) -> DeleteGroupsRequest:
            return DeleteGroupsRequest(groups_names=[self._names.to_wire(each) for each in names])

        def read(
            answer: DeleteGroupsResponse, _names: Sequence[str]
        ) -> dict[str, MillstreamError | None]:
            return {
                name: error_or(None, each.error_code, each.error_message)
                for each in answer.results
                if (name := self._names.from_wire(each.group_id)) is not None
            }

        return await self._each(groups, self._group_coordinator, request, read, timeout)

    async def remove_members(
        self,
        group: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> Outcomes[MemberToRemove, None]:
        """Take members out of a classic group; all of them if none are named."""
        if members is None:
            described = await self.describe_group(group, timeout=timeout)
            members = [
                MemberToRemove(each.instance_id, each.member_id) for each in described.members
            ]

        def request(items: Sequence[MemberToRemove]) -> VersionedRequest:
            def build(version: int) -> LeaveGroupRequest:
                name = self._names.to_wire(group)
                if version < _SEVERAL_LEAVE_FROM:
                    return LeaveGroupRequest(group_id=name, member_id=items[0].member_id)
                leaving = [
                    MemberIdentity(
                        member_id=each.member_id,
                        group_instance_id=each.group_instance_id,
                        reason=reason,
                    )
                    for each in items
                ]
                return LeaveGroupRequest(group_id=name, members=leaving)

            return VersionedRequest(ApiKey.LEAVE_GROUP, build)

        def read(
            answer: LeaveGroupResponse, items: Sequence[MemberToRemove]
        ) -> dict[MemberToRemove, MillstreamError | None]:
            raise_for(answer)
            told = {(each.group_instance_id, each.member_id): each for each in answer.members}
            by_instance = {each.group_instance_id: each for each in answer.members}
            found = {
                each: told.get((each.group_instance_id, each.member_id))
                or by_instance.get(each.group_instance_id)
                for each in items
            }
            return {
                each: None if said is None else error_or(None, said.error_code)
                for each, said in found.items()
            }

        return await self._each(
            members,
            lambda _: self._group_coordinator(group),
            request,
            read,
            timeout,
            batched_from=(ApiKey.LEAVE_GROUP, _SEVERAL_LEAVE_FROM),
        )

    def _group_coordinator(self, group: str) -> Target:
        return Coordinator("group", self._names.to_wire(group))

    async def _describe_consumer_groups(
        self, groups: list[str], descriptions: GroupDescriptions, timeout: float | None
    ) -> Outcomes[str, GroupDescription]:
        def request(names: Sequence[str]) -> ConsumerGroupDescribeRequest:
            return ConsumerGroupDescribeRequest(
                group_ids=[self._names.to_wire(each) for each in names]
            )

        def read(
            answer: ConsumerGroupDescribeResponse, _names: Sequence[str]
        ) -> dict[str, GroupDescription | MillstreamError]:
            return descriptions.of_consumer_groups(answer)

        return await self._each(groups, self._group_coordinator, request, read, timeout)

    async def _describe_classic_groups(
        self, groups: list[str], descriptions: GroupDescriptions, timeout: float | None
    ) -> Outcomes[str, GroupDescription]:
        def request(names: Sequence[str]) -> DescribeGroupsRequest:
            return DescribeGroupsRequest(groups=[self._names.to_wire(each) for each in names])

        def read(
            answer: DescribeGroupsResponse, _names: Sequence[str]
        ) -> dict[str, GroupDescription | MillstreamError]:
            return descriptions.of_classic_groups(answer)

        return await self._each(groups, self._group_coordinator, request, read, timeout)

    async def _describe_share_groups(
        self, groups: list[str], descriptions: GroupDescriptions, timeout: float | None
    ) -> Outcomes[str, GroupDescription]:
        def request(names: Sequence[str]) -> ShareGroupDescribeRequest:
            return ShareGroupDescribeRequest(
                group_ids=[self._names.to_wire(each) for each in names]
            )

        def read(
            answer: ShareGroupDescribeResponse, _names: Sequence[str]
        ) -> dict[str, GroupDescription | MillstreamError]:
            return descriptions.of_share_groups(answer)

        return await self._each(groups, self._group_coordinator, request, read, timeout)


def _may_be_another(error: MillstreamError) -> bool:
    """Whether the group may exist and speak another protocol."""
    return isinstance(error, GroupIdNotFound | UnsupportedVersion)


def _merged(
    asked: Sequence[str],
    before: Outcomes[str, GroupDescription],
    after: Outcomes[str, GroupDescription],
) -> Outcomes[str, GroupDescription]:
    """What is known after another question; that it was not understood is no news."""
    results = {**before.results, **after.results}
    errors = {
        name: after.errors[name]
        if name in after.errors and not isinstance(after.errors[name], UnsupportedVersion)
        else before.errors[name]
        for name in before.errors
        if name not in results
    }
    return type(before)(
        {name: results[name] for name in asked if name in results},
        {name: errors[name] for name in asked if name in errors},
    )
