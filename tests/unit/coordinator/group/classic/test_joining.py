"""JoinGroup: who enters a classic group, and when a generation is complete."""

from __future__ import annotations

import pytest

from millstream.coordinator.group.config import GroupConfig
from millstream.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
)
from tests.unit.coordinator.group.members import SESSION_MS, Member, stable
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

DELAY_MS = 3_000


@pytest.fixture
def world() -> World:
    return World()


# Who may enter.


def test_a_group_must_have_a_name(world: World) -> None:
    assert error_of(Member(world, group="").ask_to_join()) is InvalidGroupId


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_outside_the_limits_is_refused(world: World, session_ms: int) -> None:
    member = Member(world, session_ms=session_ms)

    assert error_of(member.ask_to_join()) is InvalidSessionTimeout


def test_nobody_can_rejoin_a_group_that_does_not_exist(world: World) -> None:
    assert error_of(Member(world).ask_to_join("c-1")) is UnknownMemberId
    assert GROUP not in world.shard.groups


def test_a_new_member_is_told_its_id_and_to_join_with_it(world: World) -> None:
    member = Member(world, "app")

    answer = only(member.ask_to_join())

    assert answer.error_code == MemberIdRequired.code
    assert answer.member_id.startswith("app-")
    assert len(answer.member_id) == len("app-") + 36
    assert world.classic().pending_ids == {answer.member_id}


def test_a_client_of_before_member_ids_enters_at_once(world: World) -> None:
    member = Member(world, version=3)

    assert member.ask_to_join() == []
    world.pass_ms(DELAY_MS)
    assert only(member.joins).generation_id == 1


def test_an_id_that_was_given_out_is_void_after_the_session_timeout(world: World) -> None:
    member = Member(world)
    member.ask_to_join()

    world.pass_ms(SESSION_MS)

    assert world.classic().pending_ids == set()
    assert error_of(member.ask_to_join()) is UnknownMemberId


def test_an_id_for_a_dynamic_member_is_not_for_a_static_one(world: World) -> None:
    member = Member(world)
    member.ask_to_join()
    member.instance = "i"

    assert error_of(member.ask_to_join()) is InvalidRequest


def test_an_id_nobody_was_given_is_unknown(world: World) -> None:
    stable(world, Member(world, "a"))

    assert error_of(Member(world).ask_to_join("stranger")) is UnknownMemberId


@pytest.mark.parametrize("case", ["type", "names", "empty type", "no names"])
def test_members_must_have_a_protocol_in_common(world: World, case: str) -> None:
    if case in ("type", "names"):
        stable(world, Member(world, "a"))
    other = Member(world, "b", protocols=("sticky",) if case == "names" else ("range",))
    other.protocol_type = {"type": "connect", "empty type": ""}.get(case, "consumer")
    if case == "no names":
        other.protocols = ()

    assert error_of(other.ask_to_join()) is InconsistentGroupProtocol


def test_a_refused_first_member_leaves_no_group_behind(world: World) -> None:
    Member(world, protocols=()).ask_to_join()

    assert world.shard.groups == {}
    assert world.store.record_count() == 0


def test_version_0_has_one_timeout_for_both(world: World) -> None:
    member = Member(world, version=0, rebalance_ms=-1)
    member.ask_to_join()

    (known,) = world.classic().members.values()
    assert known.rebalance_timeout_ms == SESSION_MS


# The first rebalance.


def test_the_first_rebalance_waits_for_more_members(world: World) -> None:
    member = Member(world)
    member.join()

    world.pass_ms(DELAY_MS - 1)
    assert member.joins == []

    world.pass_ms(1)
    answer = only(member.joins)
    assert (answer.generation_id, answer.leader) == (1, member.member_id)
    assert [each.member_id for each in answer.members] == [member.member_id]


def test_every_new_member_puts_the_first_rebalance_off_again(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    first.join()
    world.pass_ms(DELAY_MS - 1)
    second.join()

    world.pass_ms(1)
    assert first.joins == []

    world.pass_ms(DELAY_MS)
    assert only(first.joins).generation_id == only(second.joins).generation_id == 1


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout(world: World) -> None:
    first = Member(world, "a", rebalance_ms=7_000)
    first.join()

    for turn in range(7):
        world.pass_ms(1_000)
        if not first.joins:
            Member(world, f"b{turn}", rebalance_ms=7_000).join()

    assert only(first.joins).generation_id == 1


def test_without_a_delay_the_first_rebalance_is_over_at_once() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=0))
    member = Member(world)
    member.join()

    world.pass_ms(0)

    assert only(member.joins).generation_id == 1


def test_the_first_generation_does_not_wait_for_an_id_that_is_given_up() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=0))
    first, second = Member(world, "a"), Member(world, "b")
    second.ask_to_join()
    first.join()
    world.pass_ms(0)

    second.leave()

    assert only(first.joins).generation_id == 1


def test_a_new_member_that_waits_for_five_minutes_is_taken_for_dead() -> None:
    world = World(GroupConfig(group_initial_rebalance_delay_ms=400_000))
    member = Member(world, rebalance_ms=500_000)
    member.join()

    world.pass_ms(300_000)

    assert error_of(member.joins) is UnknownMemberId
    assert world.classic().is_empty


# Later rebalances.


def test_a_new_member_makes_everybody_join_again(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first)

    second.join()

    assert second.joins == []
    assert error_of(first.heartbeat()) is RebalanceInProgress
    first.join()
    assert only(first.joins).generation_id == only(second.joins).generation_id == 2


def test_the_leader_stays_the_leader_and_alone_is_told_the_members(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first)
    second.join()
    first.join()

    told, untold = only(first.joins), only(second.joins)

    assert told.leader == untold.leader == first.member_id
    assert {each.member_id for each in told.members} == {first.member_id, second.member_id}
    assert untold.members == []


def test_members_that_do_not_rejoin_in_time_are_removed(world: World) -> None:
    first, second, third = (Member(world, name, session_ms=120_000) for name in "abc")
    stable(world, first, second)
    third.join()

    second.join()
    world.pass_ms(60_000)

    assert only(second.joins).leader == second.member_id
    assert set(world.classic().members) == {second.member_id, third.member_id}
    assert error_of(first.heartbeat()) is UnknownMemberId


def test_an_id_that_was_given_out_keeps_the_others_waiting(world: World) -> None:
    first, second, third = (Member(world, name) for name in "abc")
    stable(world, first)
    second.join()
    third.ask_to_join()

    first.join()
    assert first.joins == []

    world.pass_ms(SESSION_MS)
    assert only(first.joins).generation_id == 2


def test_a_member_that_joins_again_while_it_waits_is_counted_once(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first)
    second.join()
    given_up = second.joins

    second.ask_to_join()

    assert error_of(given_up) is RebalanceInProgress
    assert world.classic().awaiting_count == 1


def test_a_follower_that_rejoins_unchanged_is_told_the_generation(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first, second)

    answer = only(second.ask_to_join())

    assert (answer.generation_id, answer.members) == (1, [])
    assert world.classic().state_name == "Stable"


@pytest.mark.parametrize("who", ["leader", "follower with other topics"])
def test_a_leader_or_a_change_begins_a_rebalance(world: World, who: str) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first, second)
    member = first if who == "leader" else second
    if member is second:
        second.topics = ("payments",)

    assert member.ask_to_join() == []
    assert world.classic().state_name == "PreparingRebalance"


def test_before_assignments_are_there_everybody_may_ask_again(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    first.join()
    second.join()
    world.pass_ms(2 * DELAY_MS)

    assert len(only(first.ask_to_join()).members) == 2
    assert only(second.ask_to_join()).members == []
    second.topics = ("payments",)
    assert second.ask_to_join() == []


def test_the_protocol_is_what_most_prefer_among_what_all_support(world: World) -> None:
    stable(
        world,
        Member(world, "a", protocols=("sticky", "range", "own")),
        Member(world, "b", protocols=("range", "sticky")),
        Member(world, "c", protocols=("range", "sticky")),
    )

    assert world.classic().protocol == "range"


def test_a_member_may_change_to_a_protocol_that_all_have(world: World) -> None:
    """As a rolling change of the assignor does it: both, then the new one alone."""
    first, second = (Member(world, name, protocols=("new", "old")) for name in "ab")
    second.protocols = ("old",)
    stable(world, first, second)
    assert world.classic().protocol == "old"

    second.protocols = ("new", "old")
    second.join()
    first.join()

    assert only(first.joins).protocol_name == "new"


# How many.


def test_a_full_group_takes_no_more_members() -> None:
    world = World(GroupConfig(group_max_size=2))
    first, second, third = (Member(world, name) for name in "abc")
    stable(world, first, second)

    assert error_of(third.ask_to_join()) is GroupMaxSizeReached
    assert world.classic().state_name == "Stable"


def test_who_comes_last_to_a_group_that_got_too_large_is_refused() -> None:
    world = World()
    members = [Member(world, name) for name in "abc"]
    stable(world, *members)
    world.config = GroupConfig(group_max_size=2)

    world.restart()
    world.pass_ms(0)
    assert world.classic().state_name == "PreparingRebalance"
    first, second, third = members
    assert first.ask_to_join() == second.ask_to_join() == []
    assert error_of(third.ask_to_join()) is GroupMaxSizeReached

    assert only(first.joins).generation_id == only(second.joins).generation_id == 2


def test_during_a_rebalance_only_so_many_may_wait() -> None:
    world = World(GroupConfig(group_max_size=1))
    first, second = Member(world, "a"), Member(world, "b", version=3)
    first.join()

    assert error_of(second.ask_to_join()) is GroupMaxSizeReached
    assert first.ask_to_join() == []


# Late records.


def test_a_rebalance_ends_once_even_if_records_before_it_are_late(world: World) -> None:
    world.store.holds_commits = True
    member = Member(world, "a", version=3)
    member.ask_to_join()
    world.store.commit(RequestTimedOut())

    world.pass_ms(10_000)

    assert world.classic().state_name == "CompletingRebalance"
    assert len(world.classic().members) == 1
