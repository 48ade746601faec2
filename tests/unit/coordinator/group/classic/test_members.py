"""Heartbeat, LeaveGroup and sessions of classic groups."""

from __future__ import annotations

import pytest

from millstream.coordinator.decision import Caller
from millstream.errors import (
    IllegalGeneration,
    InvalidGroupId,
    RebalanceInProgress,
    UnknownMemberId,
)
from millstream.protocol.messages import LeaveGroupRequest
from tests.unit.coordinator.group.members import (
    REBALANCE_MS,
    SESSION_MS,
    Member,
    leave,
    stable,
)
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

FIRST_MS = 6_000


@pytest.fixture
def world() -> World:
    return World()


def joined(world: World, *names: str) -> list[Member]:
    """Members of a generation that has no assignments yet; the first leads."""
    members = [Member(world, name) for name in names]
    for member in members:
        member.join()
    world.pass_ms(FIRST_MS)
    return members


# Heartbeat and sessions.


def test_a_member_that_is_silent_for_its_session_timeout_is_removed(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first, second)

    world.pass_ms(SESSION_MS - 1)
    first.heartbeat()
    world.pass_ms(1)

    assert set(world.classic().members) == {first.member_id}
    assert error_of(first.heartbeat()) is RebalanceInProgress
    assert error_of(second.heartbeat()) is UnknownMemberId


def test_the_last_silent_member_leaves_the_group_empty(world: World) -> None:
    member = Member(world)
    stable(world, member)

    world.pass_ms(SESSION_MS)

    assert world.classic().is_empty
    world.restart()
    assert world.classic().is_empty
    assert world.classic().generation == 2


def test_commits_keep_a_session_alive(world: World) -> None:
    member = Member(world)
    stable(world, member)

    for offset in range(5):
        world.pass_ms(SESSION_MS - 1)
        assert member.commit("orders", 0, offset) is None


def test_members_that_wait_for_the_others_need_no_heartbeats(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", session_ms=120_000)
    stable(world, first, second)
    first.topics = ("payments",)
    first.join()

    world.pass_ms(REBALANCE_MS - 1)
    second.join()

    assert only(first.joins).generation_id == 2
    world.pass_ms(SESSION_MS - 1)
    assert first.member_id in world.classic().members
    world.pass_ms(1)
    assert first.member_id not in world.classic().members


def test_heartbeats_during_a_rebalance_keep_a_session_alive(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first, second)
    second.topics = ("payments",)
    second.join()

    for _ in range(4):
        world.pass_ms(SESSION_MS - 1)
        assert error_of(first.heartbeat()) is RebalanceInProgress


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("group", UnknownMemberId),
        ("no group", InvalidGroupId),
        ("member", UnknownMemberId),
        ("generation", IllegalGeneration),
    ],
)
def test_a_heartbeat_must_be_of_the_generation(world: World, fault: str, error: type) -> None:
    member = Member(world)
    stable(world, member)
    if fault == "group":
        member.group = "others"
    elif fault == "no group":
        member.group = ""
    elif fault == "member":
        member.member_id = "stranger"
    else:
        member.generation = 7

    assert error_of(member.heartbeat()) is error


def test_a_member_whose_group_is_being_loaded_stays_calm(world: World) -> None:
    member = Member(world)
    stable(world, member)
    world.runtime.close()
    world.runtime.elected(0, 99)  # Its log is not read yet.

    assert error_of(member.heartbeat()) is None
    assert only(member.heartbeat()).error_code == 0


# LeaveGroup.


def test_members_that_leave_make_the_others_join_again(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first, second)

    assert only(second.leave()).members[0].error_code == 0

    assert error_of(first.heartbeat()) is RebalanceInProgress
    first.join()
    assert only(first.joins).generation_id == 2


def test_several_leave_at_once_and_each_is_told(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    pending = Member(world, "c")
    stable(world, first, second)
    pending.ask_to_join()

    answer = only(
        leave(
            world,
            (first.member_id, None),
            ("", "host-2"),
            (pending.member_id, None),
            ("stranger", None),
            ("", "host-9"),
            ("", None),
            ("x", "host-2"),
        )
    )

    codes = [each.error_code for each in answer.members]
    assert codes == [0, 0, 0, *[UnknownMemberId.code] * 4]
    assert world.classic().is_empty
    assert world.classic().pending_ids == set()


def test_a_member_that_leaves_while_others_wait_completes_the_generation(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first, second)
    first.topics = ("payments",)
    first.join()

    second.leave()

    assert only(first.joins).generation_id == 2


def test_an_operator_can_remove_members_that_wait(world: World) -> None:
    first, second = joined(world, "a", "b")
    second.sync()

    leave(world, (second.member_id, None))

    assert error_of(second.syncs) is UnknownMemberId
    first.topics = ("payments",)
    third = Member(world, "c")
    third.join()
    leave(world, (third.member_id, None))
    assert error_of(third.joins) is UnknownMemberId


def test_members_leave_during_the_first_rebalance(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    first.join()
    second.join()

    first.leave()
    second.leave()
    world.pass_ms(FIRST_MS)

    assert error_of(first.joins) is UnknownMemberId
    assert world.classic().is_empty
    assert world.classic().generation == 1


def test_who_leaves_an_unknown_group_is_an_unknown_member(world: World) -> None:
    assert error_of(leave(world, ("m", None), group="others")) is UnknownMemberId
    assert error_of(leave(world, ("m", None), group="")) is InvalidGroupId


def test_nobody_leaves_if_nobody_is_named(world: World) -> None:
    member = Member(world)
    stable(world, member)
    answers: list[object] = []

    world.groups.leave_group(
        LeaveGroupRequest(group_id=GROUP), Caller("c", "/host", 5), answers.append
    )

    assert error_of(answers) is None
    assert world.classic().state_name == "Stable"
