"""Members of the classic protocol in a consumer group."""

from __future__ import annotations

import pytest

from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.group.group import GroupType
from millstream.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from tests.unit.coordinator.group.consumer.company import ALL, mixed, run, type_of
from tests.unit.coordinator.group.consumer.members import Consumer, group_of
from tests.unit.coordinator.group.consumer.movers import CooperativeMover, Mover
from tests.unit.coordinator.group.members import leave
from tests.unit.coordinator.group.world import World, error_of, only


@pytest.mark.parametrize("kind", [Mover, CooperativeMover])
def test_a_classic_member_joins_a_consumer_group(kind: type[Mover]) -> None:
    world = World()
    mixed(world, kind)
    assert type_of(world) is GroupType.CONSUMER
    assert group_of(world).state_name == "Stable"


def test_a_classic_member_gets_its_id_first() -> None:
    world = World()
    Consumer(world, "one").join()
    two = Mover(world, "two")
    assert error_of(two.ask_to_join()) is MemberIdRequired
    assert len(group_of(world).members) == 1
    assert error_of(two.ask_to_join()) is None
    old = Mover(world, "old", version=3)
    assert error_of(old.ask_to_join()) is None


def test_a_classic_member_learns_of_each_step() -> None:
    world = World()
    one, two = mixed(world, CooperativeMover)
    three = Consumer(world, "three")
    three.join()
    assert error_of(two.heartbeat()) is RebalanceInProgress, "there is a new epoch"
    run(world, one, two, three)
    three.leave()
    two.errors.clear()
    run(world, one, two)
    assert two.errors[0] == "REBALANCE_IN_PROGRESS"
    assert error_of(two.heartbeat()) is None
    assert one.owned | two.owned == ALL


def test_a_classic_member_waits_for_what_others_must_let_go_of() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    two = Mover(world, "two")
    two.step()
    two.step()
    two.step()
    assert two.owned == set()
    assert error_of(two.heartbeat()) is None, "there is nothing for it yet"
    one.beat()
    one.beat()
    assert error_of(two.heartbeat()) is RebalanceInProgress
    two.step()
    two.step()
    two.step()
    assert len(two.owned) == 1


def test_a_sync_is_refused_after_the_next_rebalance_began() -> None:
    world = World()
    _, two = mixed(world)
    two.joins.clear()
    two.join()
    Consumer(world, "three").join()
    assert error_of(two.sync()) is RebalanceInProgress


def test_what_a_classic_member_says_must_be_right() -> None:
    world = World()
    _, two = mixed(world)
    assert error_of(two.heartbeat(generation=17)) is IllegalGeneration
    two.generation += 1
    assert error_of(two.sync()) is IllegalGeneration
    assert two.commit("orders", 0, 1) is IllegalGeneration
    two.generation -= 1
    assert two.commit("orders", 0, 1) is None
    two.protocol_type = "connect"
    assert error_of(two.sync()) is InconsistentGroupProtocol
    stranger = Mover(world, "stranger")
    stranger.member_id = "nobody"
    assert error_of(stranger.heartbeat()) is UnknownMemberId
    impostor = Mover(world, "impostor")
    impostor.member_id, impostor.generation = "one", 1
    assert error_of(impostor.heartbeat()) is UnknownMemberId
    assert error_of(impostor.ask_to_join()) is UnknownMemberId


def test_a_classic_member_that_does_not_fit_is_refused() -> None:
    world = World(consumer_config=ConsumerGroupConfig(size_max=3))
    mixed(world)
    other = Mover(world, "other", protocols=("sticky",))
    assert error_of(other.ask_to_join()) is InconsistentGroupProtocol
    other = Mover(world, "other")
    other.protocol_type = "connect"
    assert error_of(other.ask_to_join()) is InconsistentGroupProtocol
    other = Mover(world, "other", version=3)
    other.metadata = lambda: b"\x00"  # type: ignore[method-assign]
    assert error_of(other.ask_to_join()) is InconsistentGroupProtocol
    Consumer(world, "third").join()
    assert error_of(Mover(world, "fourth").ask_to_join()) is GroupMaxSizeReached


def test_classic_members_are_watched_by_their_own_session() -> None:
    world = World()
    one, _ = mixed(world)
    world.pass_ms(8_999)
    assert len(group_of(world).members) == 2
    world.pass_ms(1)
    assert list(group_of(world).members) == ["one"]
    run(world, one)
    assert one.owned == ALL


def test_who_does_not_join_again_in_time_is_fenced() -> None:
    world = World()
    one, two = mixed(world)
    three = Consumer(world, "three")
    three.join()
    for _ in range(61):
        world.pass_ms(1_000)
        one.beat()
        three.beat()
        answer = error_of(two.heartbeat())
    assert answer is UnknownMemberId


def test_who_joins_and_does_not_sync_in_time_is_fenced() -> None:
    world = World()
    one, two = mixed(world)
    two.joins.clear()
    two.join()
    for _ in range(61):
        world.pass_ms(1_000)
        one.beat()
        answer = error_of(two.heartbeat())
    assert answer is UnknownMemberId


def test_who_was_fenced_and_still_has_partitions_learns_that_it_lost_them() -> None:
    world = World()
    one, two = mixed(world, CooperativeMover)
    world.pass_ms(9_000)
    run(world, one)
    assert one.owned == ALL
    assert error_of(two.ask_to_join()) is UnknownMemberId
    two.owned = set()
    assert error_of(two.ask_to_join()) is None, "with nothing in hand it is welcome"


def test_classic_members_leave() -> None:
    world = World()
    one, two = mixed(world)
    answer = only(leave(world, ("nobody", None), ("one", None), (two.member_id, None)))
    assert [each.error_code for each in answer.members] == [25, 25, 0]
    run(world, one)
    assert one.owned == ALL
    epoch = group_of(world).epoch
    leave(world, ("nobody", None))
    assert group_of(world).epoch == epoch


def test_an_operator_sends_static_members_away() -> None:
    world = World()
    Consumer(world, "one", instance_id="first").join()
    Consumer(world, "two").join()
    Mover(world, "three", instance="third").ask_to_join()
    answer = only(leave(world, ("", "first"), ("", "third"), ("", "none"), ("x", "first")))
    assert [each.error_code for each in answer.members] == [0, 0, 25, 82]
    assert list(group_of(world).members) == ["two"]


def test_a_static_classic_member_comes_back() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    two = Mover(world, "two", instance="second")
    run(world, one, two)
    mine, old_id = set(two.owned), two.member_id
    epoch = group_of(world).epoch
    again = Mover(world, "again", instance="second")
    again.step()
    again.step()
    again.step()
    assert again.owned == mine
    assert group_of(world).epoch == epoch
    assert again.member_id != old_id
    assert error_of(two.heartbeat()) is FencedInstanceId
    assert error_of(two.ask_to_join()) is FencedInstanceId
