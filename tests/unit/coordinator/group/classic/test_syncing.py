"""SyncGroup: the leader says who reads what, and everybody is told."""

from __future__ import annotations

import pytest

from millstream.errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
)
from tests.unit.coordinator.group.members import (
    REBALANCE_MS,
    SESSION_MS,
    Member,
    stable,
    synced,
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


# SyncGroup.


def test_followers_wait_for_the_leaders_assignments(world: World) -> None:
    leader, follower = joined(world, "a", "b")

    assert follower.sync() == []
    leader.sync({leader.member_id: b"1", follower.member_id: b"2"})

    assert only(leader.syncs).assignment == b"1"
    assert only(follower.syncs).assignment == b"2"
    assert only(follower.syncs).protocol_name == "range"
    assert world.classic().state_name == "Stable"


def test_a_member_without_an_assignment_gets_an_empty_one(world: World) -> None:
    leader, follower = joined(world, "a", "b")
    leader.sync({leader.member_id: b"1"})

    assert only(follower.sync()).assignment == b""


def test_assignments_wait_until_they_are_written(world: World) -> None:
    leader, follower = joined(world, "a", "b")
    follower.sync()
    world.store.holds_commits = True

    leader.sync({leader.member_id: b"1", follower.member_id: b"2"})
    assert leader.syncs == follower.syncs == []
    assert world.classic().state_name == "CompletingRebalance"

    world.store.commit()
    assert only(follower.syncs).assignment == b"2"


@pytest.mark.parametrize("when", ["at once", "later"])
def test_assignments_that_cannot_be_written_begin_it_again(world: World, when: str) -> None:
    leader, follower = joined(world, "a", "b")
    follower.sync()
    if when == "at once":
        world.store.failure = NotEnoughReplicas()
    else:
        world.store.holds_commits = True

    leader.sync({leader.member_id: b"1"})
    if when == "later":
        world.store.commit(RequestTimedOut())

    assert error_of(leader.syncs) is error_of(follower.syncs) is CoordinatorNotAvailable
    assert world.classic().state_name == "PreparingRebalance"


def test_assignments_of_a_generation_that_is_over_are_forgotten(world: World) -> None:
    leader, follower = joined(world, "a", "b")
    world.store.holds_commits = True
    leader.sync({leader.member_id: b"1"})
    follower.topics = ("payments",)
    follower.ask_to_join()

    world.store.commit()

    assert error_of(leader.syncs) is RebalanceInProgress
    assert world.classic().members[leader.member_id].assignment == b""


def test_who_asks_again_for_its_assignment_is_answered_once_more(world: World) -> None:
    leader, follower = joined(world, "a", "b")
    given_up = follower.sync()

    follower.sync()
    synced_by = {leader.member_id: b"1", follower.member_id: b"2"}
    leader.sync(synced_by)

    assert error_of(given_up) is RebalanceInProgress
    assert only(follower.syncs).assignment == b"2"
    assert only(follower.sync()).assignment == b"2"


def test_a_rebalance_sends_those_away_who_wait_for_assignments(world: World) -> None:
    _, follower = joined(world, "a", "b")
    follower.sync()

    Member(world, "c").join()

    assert error_of(follower.syncs) is RebalanceInProgress
    assert error_of(follower.sync()) is RebalanceInProgress


def test_members_that_never_ask_for_their_assignment_are_removed(world: World) -> None:
    leader, follower = joined(world, "a", "b")
    leader.session_ms = follower.session_ms = 120_000
    for known in world.classic().members.values():
        known.session_timeout_ms = 120_000
    leader.sync({leader.member_id: b"1"})
    leader.heartbeat()
    follower.heartbeat()

    world.pass_ms(REBALANCE_MS)

    assert set(world.classic().members) == {leader.member_id}
    assert error_of(leader.heartbeat()) is RebalanceInProgress


def test_all_that_asked_in_time_stay(world: World) -> None:
    members = joined(world, "a", "b")
    synced(*members)

    for _ in range(10):
        world.pass_ms(SESSION_MS - 1)
        assert [error_of(member.heartbeat()) for member in members] == [None, None]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("group", UnknownMemberId),
        ("no group", InvalidGroupId),
        ("member", UnknownMemberId),
        ("generation", IllegalGeneration),
        ("protocol type", InconsistentGroupProtocol),
        ("protocol name", InconsistentGroupProtocol),
    ],
)
def test_a_sync_must_be_of_the_generation(world: World, fault: str, error: type) -> None:
    (member,) = joined(world, "a")
    if fault == "group":
        member.group = "others"
    elif fault == "no group":
        member.group = ""
    elif fault == "member":
        member.member_id = "stranger"
    elif fault == "generation":
        member.generation += 1
    elif fault == "protocol type":
        member.protocol_type = "connect"
    else:
        only(member.joins).protocol_name = "sticky"

    assert error_of(member.sync()) is error


def test_an_empty_group_has_nothing_to_sync(world: World) -> None:
    member = Member(world)
    stable(world, member)
    member.leave()

    assert error_of(member.sync()) is UnknownMemberId
