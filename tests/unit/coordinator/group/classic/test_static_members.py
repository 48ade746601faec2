"""Static members of classic groups keep their place while they are away."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedInstanceId,
    UnknownMemberId,
)
from tests.unit.coordinator.group.members import Member, leave, stable, synced
from tests.unit.coordinator.group.world import World, error_of, only

DELAY_MS = 3_000


@pytest.fixture
def world() -> World:
    return World()


# Static members.


def test_a_static_member_needs_no_second_join(world: World) -> None:
    member = Member(world, instance="host-1")

    assert member.ask_to_join() == []
    world.pass_ms(DELAY_MS)
    assert only(member.joins).member_id.startswith("host-1-")


def test_a_static_member_that_was_away_returns_without_a_rebalance(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    stable(world, first, second)
    old_id = second.member_id

    answer = only(second.ask_to_join(""))

    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.member_id == second.member_id != old_id
    assert world.classic().state_name == "Stable"
    assert only(second.sync()).assignment == b"b"


def test_who_still_uses_the_old_id_of_a_static_member_is_fenced(world: World) -> None:
    member, old = (Member(world, "a", instance="host-1") for _ in range(2))
    stable(world, member)
    old.member_id, old.generation = member.member_id, member.generation
    member.ask_to_join("")

    assert error_of(old.heartbeat()) is FencedInstanceId
    assert error_of(old.ask_to_join()) is FencedInstanceId
    assert error_of(old.sync()) is FencedInstanceId
    assert old.commit("orders", 0, 5) is FencedInstanceId
    assert error_of(member.heartbeat()) is None


@pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
def test_a_static_leader_that_returns_does_not_assign_anew(
    world: World, version: int, skips: bool
) -> None:
    first, second = Member(world, "a", instance="host-1"), Member(world, "b")
    stable(world, first, second)
    old_id, first.version = first.member_id, version

    answer = only(first.ask_to_join(""))

    assert answer.skip_assignment is skips
    assert answer.leader == (answer.member_id if skips else old_id)
    assert len(answer.members) == (2 if skips else 0)
    assert world.classic().leader_id == answer.member_id


def test_a_static_member_that_returns_with_another_protocol_begins_a_rebalance(
    world: World,
) -> None:
    first = Member(world, "a", protocols=("old", "new"))
    second = Member(world, "b", instance="host-2", protocols=("old", "new"))
    stable(world, first, second)

    second.protocols = ("new",)

    assert second.ask_to_join("") == []
    assert world.classic().state_name == "PreparingRebalance"


def test_a_static_member_that_returns_before_assignments_begins_a_rebalance(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    first.join()
    second.join()
    world.pass_ms(2 * DELAY_MS)
    old_syncs = second.sync()

    assert second.ask_to_join("") == []

    assert error_of(old_syncs) is FencedInstanceId
    assert world.classic().state_name == "PreparingRebalance"


def test_a_static_member_that_returns_while_it_is_awaited_takes_its_place(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    stable(world, first, second)
    first.topics = ("payments",)
    first.join()
    second.member_id = ""

    second.join()

    assert only(first.joins).generation_id == only(second.joins).generation_id == 2


def test_a_waiting_static_member_is_fenced_by_its_successor(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    stable(world, first, second)
    second.topics = ("payments",)
    waiting = second.ask_to_join()

    second.ask_to_join("")

    assert error_of(waiting) is FencedInstanceId
    assert second.joins == []


def test_an_instance_id_nobody_has_is_unknown_with_a_member_id(world: World) -> None:
    member = Member(world)
    stable(world, member)
    member.instance = "host-9"

    assert error_of(member.ask_to_join()) is UnknownMemberId


def test_static_members_that_are_away_keep_their_place_in_a_rebalance(world: World) -> None:
    away = Member(world, "a", instance="host-1", session_ms=120_000)
    second, third = (Member(world, name, session_ms=120_000) for name in "bc")
    stable(world, away, second)
    third.join()
    second.join()

    world.pass_ms(60_000)

    answer = only(second.joins)
    assert answer.leader == second.member_id
    assert away.member_id in {each.member_id for each in answer.members}


def test_a_generation_needs_somebody_who_leads_it(world: World) -> None:
    """Of static members only, and all of them away: it waits on until one comes."""
    away = Member(world, "a", instance="host-1", session_ms=600_000)
    other = Member(world, "b", session_ms=600_000)
    stable(world, away, other)
    other.leave()

    world.pass_ms(90_000)
    assert world.classic().state_name == "PreparingRebalance"

    away.join()
    assert only(away.joins).generation_id == 2


def test_an_operator_removes_a_static_member_without_its_id(world: World) -> None:
    member = Member(world, instance="host-1")
    stable(world, member)

    (answer,) = only(leave(world, ("", "host-1"))).members

    assert answer.error_code == 0
    assert world.classic().is_empty


def test_a_synced_group_goes_on_after_members_came_and_went(world: World) -> None:
    first, second, third = (Member(world, name) for name in "abc")
    stable(world, first, second)
    third.join()
    first.join()
    second.leave()

    synced(first, third)

    assert only(third.syncs).assignment == b"c"
    assert world.classic().generation == 2


def test_a_static_member_that_returns_unsynced_still_has_to_sync(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    first.join()
    second.join()
    world.pass_ms(2 * DELAY_MS)
    first.sync({first.member_id: b"1", second.member_id: b"2"})

    second.ask_to_join("")

    assert world.classic().pending_sync_ids == {second.member_id}
    assert only(second.sync()).assignment == b"2"
    assert world.classic().pending_sync_ids == set()
