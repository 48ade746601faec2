"""Classic groups become consumer groups when a member of that protocol joins."""

from __future__ import annotations

import pytest

from millstream.coordinator.group.classic.state import ClassicState
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.group.group import GroupType
from millstream.errors import (
    ApiError,
    FencedInstanceId,
    GroupIdNotFound,
    NotEnoughReplicas,
    RebalanceInProgress,
)
from millstream.protocol.messages import ConsumerProtocolAssignment
from millstream.protocol.records_framing import encode_assignment
from tests.unit.coordinator.group.consumer.company import ALL, classics, run, type_of
from tests.unit.coordinator.group.consumer.members import Consumer, group_of
from tests.unit.coordinator.group.consumer.movers import CooperativeMover, Mover
from tests.unit.coordinator.group.world import World, error_of, only


@pytest.mark.parametrize("kind", [Mover, CooperativeMover])
def test_a_group_rolls_to_the_consumer_protocol_and_back(kind: type[Mover]) -> None:
    world = World()
    one, two = classics(world, "one", "two", kind=kind)
    only(world.commit({("orders", 0): 5}, member=one.member_id, generation=one.generation))

    three = Consumer(world, "three")
    three.join()
    assert type_of(world) is GroupType.CONSUMER
    run(world, one, two, three)
    assert one.owned | two.owned | three.owned == ALL
    assert len(three.owned) == 1

    one.leave()
    four = Consumer(world, "four")
    four.join()
    one.owned = set()
    run(world, two, three, four)
    two.leave()
    two.owned = set()
    run(world, three, four)
    assert three.owned | four.owned == ALL

    back = kind(world, "back")
    run(world, back, three, four)
    four.leave()
    run(world, back, three)
    assert type_of(world) is GroupType.CONSUMER
    three.leave()
    assert type_of(world) is GroupType.CLASSIC
    run(world, back)
    assert back.owned == ALL
    assert world.classic().state is ClassicState.STABLE
    assert world.offset_of("orders", 0) == 5


def test_members_keep_their_assignment_and_generation() -> None:
    world = World()
    one, two = classics(world, "one", "two")
    generation = world.classic().generation
    Consumer(world, "three").join()
    group = group_of(world)
    assert group.epoch == generation + 1
    for member in (one, two):
        found = group.members[member.member_id]
        assert found.epoch == generation
        assert found.subscription.classic is not None
        assert set(found.progress.assignment.values()) == {
            frozenset(partition for _, partition in member.owned)
        }
    assert [error_of(each.heartbeat()) for each in (one, two)] == [RebalanceInProgress] * 2


def test_members_that_wait_in_a_rebalance_are_told_to_join_again() -> None:
    world = World()
    one = Mover(world, "one")
    one.join()
    assert one.joins == [], "the first rebalance takes its time"
    Consumer(world, "two").join()
    assert error_of(one.joins) is RebalanceInProgress
    member_id = one.member_id
    one.step()
    assert error_of(one.joins) is None
    assert one.member_id == member_id


def test_members_that_wait_for_their_assignment_are_told_to_join_again() -> None:
    world = World()
    one, two = Mover(world, "one"), Mover(world, "two")
    one.join()
    two.join()
    world.pass_ms(6_000)
    follower = two if only(one.joins).leader == one.member_id else one
    follower.sync()
    Consumer(world, "three").join()
    assert error_of(follower.syncs) is RebalanceInProgress


def test_what_a_cooperative_member_had_when_it_joined_is_its_own_until_it_joins_again() -> None:
    world = World()
    (one,) = classics(world, "one", kind=CooperativeMover)
    two = CooperativeMover(world, "two")
    two.step()
    one.step()
    one.step()
    two.step()
    assert one.owned == ALL, "it has not read its assignment yet"
    assert only(one.syncs).assignment != b""
    three = Consumer(world, "three")
    three.join()
    assert three.owned == set()
    run(world, one, two, three)
    assert one.owned | two.owned | three.owned == ALL


def test_an_upgrade_that_is_not_written_changes_nothing() -> None:
    world = World()
    (one,) = classics(world, "one")
    world.store.failure = NotEnoughReplicas()
    assert isinstance(Consumer(world, "two").try_join(), ApiError)
    world.store.failure = None
    assert type_of(world) is GroupType.CLASSIC
    run(world, one, ms=15_000)
    assert one.errors == []


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_forbid_an_upgrade(policy: str) -> None:
    world = World(consumer_config=ConsumerGroupConfig(migration_policy=policy))
    classics(world, "one")
    assert isinstance(Consumer(world, "two").try_join(), GroupIdNotFound)
    assert type_of(world) is GroupType.CLASSIC


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    world = World(consumer_config=ConsumerGroupConfig(size_max=1))
    classics(world, "one", "two")
    assert isinstance(Consumer(world, "three").try_join(), GroupIdNotFound)


def test_a_group_of_another_protocol_type_is_not_upgraded() -> None:
    world = World()
    one = Mover(world, "one")
    one.protocol_type = "connect"
    one.join()
    assert isinstance(Consumer(world, "two").try_join(), GroupIdNotFound)


@pytest.mark.parametrize(
    "assignment",
    [
        b"\xff",
        encode_assignment(ConsumerProtocolAssignment(user_data=b"sticky"), 1),
    ],
    ids=["damaged", "custom"],
)
def test_an_assignment_that_would_be_lost_refuses_the_upgrade(assignment: bytes) -> None:
    world = World()
    one = Mover(world, "one", protocols=("homemade",))
    one.join()
    world.pass_ms(3_000)
    one.sync({one.member_id: assignment})
    assert isinstance(Consumer(world, "two").try_join(), GroupIdNotFound)
    assert type_of(world) is GroupType.CLASSIC


def test_what_the_usual_assignors_add_is_no_loss() -> None:
    world = World()
    one = Mover(world, "one", protocols=("cooperative-sticky",))
    one.join()
    world.pass_ms(3_000)
    said = ConsumerProtocolAssignment(user_data=b"who had what")
    one.sync({one.member_id: encode_assignment(said, 1)})
    Consumer(world, "two").join()
    assert type_of(world) is GroupType.CONSUMER


def test_a_subscription_that_cannot_be_read_refuses_the_upgrade() -> None:
    world = World()
    one = Mover(world, "one")
    one.metadata = lambda: b"\x00"  # type: ignore[method-assign]
    one.join()
    assert isinstance(Consumer(world, "two").try_join(), GroupIdNotFound)


def test_only_who_joins_upgrades() -> None:
    world = World()
    classics(world, "one")
    assert isinstance(Consumer(world, "two").send(member_epoch=3), GroupIdNotFound)
    assert isinstance(Consumer(world, "two").leave(), GroupIdNotFound)


def test_an_upgraded_group_is_the_same_after_a_restart() -> None:
    world = World()
    one, two = classics(world, "one", "two")
    three = Consumer(world, "three")
    three.join()
    before = group_of(world)
    world.restart()
    after = group_of(world)
    assert after.members == before.members
    assert after.targets == before.targets
    assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
    run(world, one, two, three)
    assert one.owned | two.owned | three.owned == ALL


def test_a_static_member_changes_its_protocol_in_its_place() -> None:
    world = World()
    one = Mover(world, "one", instance="first")
    two = Mover(world, "two", instance="second")
    run(world, one, two)
    mine, one.owned = one.owned, set()
    new = Consumer(world, "new", instance_id="first")
    new.join()
    run(world, two, new)
    assert new.owned == mine
    assert error_of(one.heartbeat()) is FencedInstanceId
    two.owned = set()
    again = Consumer(world, "again", instance_id="second")
    again.join()
    run(world, new, again)
    assert new.owned | again.owned == ALL
