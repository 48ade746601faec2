"""DescribeGroups, ListGroups, counts, and groups of kinds that are not classic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from millstream.coordinator.decision import Caller
from millstream.coordinator.group.classic.state import PREDECESSORS, ClassicState
from millstream.coordinator.group.group import GroupType
from millstream.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    NotCoordinator,
    UnknownMemberId,
)
from millstream.protocol.messages import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.unit.coordinator.group.members import Member, leave, stable
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.fixture
def world() -> World:
    return World()


def listed(world: World, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[str]:
    answers: list[ListGroupsResponse | ApiError] = []
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    world.groups.list_groups(request, Caller("c", "/host", 5), answers.append)
    return sorted(f"{each.group_id} {each.group_state}" for each in only(answers).groups)


def test_a_stable_group_is_described_with_all_its_members(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    stable(world, first, second)

    (group,) = world.describe().groups

    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    found = {each.member_id: each for each in group.members}
    assert set(found) == {first.member_id, second.member_id}
    told = found[second.member_id]
    assert (told.group_instance_id, told.client_id, told.client_host) == ("host-2", "b", "/host")
    assert (told.member_metadata, told.member_assignment) == (second.metadata(), b"b")


def test_a_rebalancing_group_is_described_without_what_may_change(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first)
    second.join()

    (group,) = world.describe().groups

    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_metadata for each in group.members} == {b""}


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, GroupIdNotFound.code)])
def test_an_unknown_group_is_dead(world: World, version: int, code: int) -> None:
    (group,) = world.describe("nobody", version).groups

    assert (group.group_state, group.error_code) == ("Dead", code)


def test_a_group_of_another_broker_is_described_as_such(world: World) -> None:
    world.runtime.close()

    (group,) = world.describe().groups

    assert group.error_code == NotCoordinator.code


def test_groups_are_listed_by_state_and_type(world: World) -> None:
    stable(world, Member(world, group="readers"))
    world.commit({("orders", 0): 5}, group="simple")

    assert listed(world) == ["readers Stable", "simple Empty"]
    assert listed(world, states=["stable", "Dead"]) == ["readers Stable"]
    assert listed(world, types=["Classic"]) == ["readers Stable", "simple Empty"]
    assert listed(world, types=["consumer"]) == []
    assert listed(world, ["nonsense"], ["nonsense"]) == []


def test_groups_are_listed_with_their_type_as_kafka_spells_it(world: World) -> None:
    world.commit({("orders", 0): 5})
    answers: list[ListGroupsResponse | ApiError] = []

    world.groups.list_groups(ListGroupsRequest(), Caller("c", "/host", 5), answers.append)

    (group,) = only(answers).groups
    assert (group.group_type, group.protocol_type) == ("classic", "")


def test_groups_are_not_listed_while_some_are_being_loaded(world: World) -> None:
    world.commit({("orders", 0): 5})
    world.runtime.close()
    world.runtime.elected(0, 99)
    answers: list[ListGroupsResponse | ApiError] = []

    world.groups.list_groups(ListGroupsRequest(), Caller("c", "/host", 5), answers.append)

    assert error_of(answers) is CoordinatorLoadInProgress


def test_groups_and_offsets_are_counted(world: World) -> None:
    stable(world, Member(world, group="readers"))
    world.commit({("orders", 0): 5, ("orders", 1): 5}, group="simple")
    world.commit({("orders", 0): 6}, group="simple")

    counts = world.groups.counts()

    assert counts.groups == {("classic", "Stable"): 1, ("classic", "Empty"): 1}
    assert counts.offsets == 2


# Groups of other kinds.


def test_classic_members_are_refused_by_a_group_of_another_kind(world: World) -> None:
    other = SimpleNamespace(type=GroupType.SHARE)
    world.shard.groups[GROUP] = other
    member = Member(world)
    member.member_id = "m"

    assert error_of(member.ask_to_join()) is InconsistentGroupProtocol
    assert error_of(member.sync()) is UnknownMemberId
    assert error_of(member.heartbeat()) is UnknownMemberId
    assert error_of(leave(world, ("m", None))) is UnknownMemberId


def test_records_of_unknown_kinds_are_passed_over(world: World) -> None:
    world.shard.replay(ConsumerGroupMetadataKey(group_id="g"), None, None)

    assert world.shard.groups == {}


def test_a_tombstone_of_a_classic_group_is_not_for_its_successor(world: World) -> None:
    """A group that changed its kind: the old records go, the group does not."""
    other = SimpleNamespace(type=GroupType.CONSUMER)
    world.shard.groups[GROUP] = other

    world.shard.replay(GroupMetadataKey(group=GROUP), None, None)

    assert GROUP in world.shard.groups
    world.shard.classic.loaded(0)


# Whatever is gone.


def test_a_group_that_is_gone_takes_no_calls(world: World) -> None:
    member = Member(world)
    stable(world, member)
    group = world.classic()
    group.state = ClassicState.DEAD

    errors = [
        error_of(member.ask_to_join()),
        error_of(member.sync()),
        error_of(member.heartbeat()),
        member.commit("orders", 0, 5),
        error_of(world.delete_offsets(("orders", 0))),
    ]

    names = [error.__name__ for error in errors if error is not None]
    assert names == [*["CoordinatorNotAvailable"] * 4, "GroupIdNotFound"]
    assert world.delete_groups(GROUP).results[0].error_code == GroupIdNotFound.code
    assert world.fetch(("orders", 0))[("orders", 0)].committed_offset == -1
    assert world.describe().groups[0].error_code == GroupIdNotFound.code


def test_every_state_says_what_it_may_follow() -> None:
    assert set(PREDECESSORS) == set(ClassicState)
    assert ClassicState.STABLE not in PREDECESSORS[ClassicState.EMPTY]
