"""Another broker coordinates the group, or its records cannot be written."""

from __future__ import annotations

import pytest

from millstream.errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    UnknownMemberId,
)
from tests.unit.coordinator.group.members import (
    SESSION_MS,
    Member,
    stable,
)
from tests.unit.coordinator.group.world import World, error_of, only

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


# Another coordinator.


def test_everybody_who_waits_is_told_when_another_broker_takes_over(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    other = Member(world, "c", group="others")
    first.join()
    second.join()
    other.join()
    world.pass_ms(FIRST_MS)
    second.sync()
    other.ask_to_join()
    third = Member(world, "d", group="others")
    third.join()

    world.runtime.close()

    assert error_of(second.syncs) is error_of(third.joins) is NotCoordinator
    assert error_of(first.heartbeat()) is NotCoordinator
    assert error_of(first.ask_to_join()) is NotCoordinator


def test_a_stable_group_goes_on_with_another_coordinator(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b", instance="host-2")
    stable(world, first, second)

    world.restart()

    assert world.classic().state_name == "Stable"
    assert error_of(first.heartbeat()) is error_of(second.heartbeat()) is None
    assert only(second.sync()).assignment == b"b"
    world.pass_ms(SESSION_MS)
    assert world.classic().is_empty


def test_a_group_that_was_rebalancing_is_back_in_its_last_generation(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first)
    second.join()

    world.restart()

    assert world.classic().generation == 1
    assert set(world.classic().members) == {first.member_id}
    assert error_of(second.ask_to_join()) is UnknownMemberId


def test_a_static_member_keeps_its_old_id_if_its_return_cannot_be_written(world: World) -> None:
    member = Member(world, instance="host-1")
    stable(world, member)
    old_id = member.member_id
    world.store.failure = NotEnoughReplicas()

    answers = member.ask_to_join("")

    assert error_of(answers) is CoordinatorNotAvailable
    assert world.classic().static_ids == {"host-1": old_id}
    assert world.classic().leader_id == old_id
    world.store.failure = None
    assert error_of(member.heartbeat()) is None


@pytest.mark.parametrize("version", [3, 9])
def test_a_first_member_that_cannot_be_written_is_told_so(world: World, version: int) -> None:
    world.store.failure = NotEnoughReplicas()

    answers = Member(world, version=version).ask_to_join()
    world.pass_ms(FIRST_MS)

    assert error_of(answers) is CoordinatorNotAvailable


def test_sessions_are_watched_again_after_a_late_commit(world: World) -> None:
    """The session timer of a member that waits may have gone by: the commit sets a new one."""
    leader, follower = joined(world, "a", "b")
    follower.sync()
    world.pass_ms(SESSION_MS - 1)
    leader.heartbeat()
    world.pass_ms(1)
    world.store.holds_commits = True
    leader.sync({leader.member_id: b"1"})
    world.armed.clear()

    world.store.commit()

    assert min(world.armed) <= world.clock.monotonic_ms() + SESSION_MS
    world.pass_ms(2 * SESSION_MS)
    assert world.classic().is_empty
