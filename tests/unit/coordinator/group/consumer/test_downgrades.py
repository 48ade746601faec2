"""Groups become classic again, and empty ones whatever comes next."""

from __future__ import annotations

import pytest

from millstream.coordinator.group.config import GroupConfig
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.group.group import GroupType
from millstream.errors import (
    ApiError,
    GroupIdNotFound,
    NotEnoughReplicas,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
)
from tests.unit.coordinator.group.consumer.company import ALL, classics, mixed, run, type_of
from tests.unit.coordinator.group.consumer.members import Consumer, group_of
from tests.unit.coordinator.group.consumer.movers import CooperativeMover, Mover
from tests.unit.coordinator.group.world import World, error_of, only


def test_a_group_is_classic_again_when_its_last_consumer_member_is_fenced() -> None:
    world = World()
    _, two = mixed(world)
    generation = group_of(world).epoch
    for _ in range(45):
        world.pass_ms(1_000)
        two.step()
    assert type_of(world) is GroupType.CLASSIC
    assert "ILLEGAL_GENERATION" not in two.errors
    run(world, two)
    assert two.owned == ALL
    assert world.classic().generation > generation


def test_a_group_is_classic_again_when_its_last_consumer_member_is_replaced() -> None:
    world = World()
    one, two = Consumer(world, "one", instance_id="first"), Mover(world, "two")
    one.join()
    run(world, one, two)
    one.owned = set()
    back = Mover(world, "back", instance="first")
    run(world, two, back)
    assert type_of(world) is GroupType.CLASSIC
    assert two.owned | back.owned == ALL
    assert isinstance(one.beat(), GroupIdNotFound)


def test_a_downgraded_group_rebalances_after_a_restart() -> None:
    world = World()
    one, two = mixed(world)
    one.leave()
    one.owned = set()
    world.restart()
    assert type_of(world) is GroupType.CLASSIC
    world.pass_ms(0)
    assert error_of(two.heartbeat()) is RebalanceInProgress
    run(world, two)
    assert two.owned == ALL


def test_a_downgrade_that_is_not_committed_in_time_is_true_all_the_same() -> None:
    world = World()
    one, two = mixed(world)
    world.store.holds_commits = True
    answers: list[object] = []
    world.groups.consumer_group_heartbeat(one.request(member_epoch=-1), one.caller, answers.append)
    assert type_of(world) is GroupType.CLASSIC
    world.store.commit(RequestTimedOut())
    assert error_of(answers) is not None
    world.store.holds_commits = False
    world.store.committed[0] = world.store.bounds(0, 0).end_offset
    world.pass_ms(0)
    assert error_of(two.heartbeat()) is RebalanceInProgress


def test_a_downgrade_that_is_not_written_changes_nothing() -> None:
    world = World()
    one, two = mixed(world)
    world.store.failure = NotEnoughReplicas()
    assert isinstance(one.leave(), ApiError)
    world.store.failure = None
    assert type_of(world) is GroupType.CONSUMER
    assert error_of(two.heartbeat()) is None
    for _ in range(45):
        world.pass_ms(1_000)
        two.step()
    assert type_of(world) is GroupType.CLASSIC, "the member that wanted to leave is watched still"


def test_what_a_member_has_not_let_go_of_is_nobody_elses_after_a_downgrade() -> None:
    world = World()
    two = CooperativeMover(world, "two")
    run(world, two)
    one = Consumer(world, "one")
    one.join()
    two.step()
    assert only(two.joins).generation_id < group_of(world).epoch
    one.leave()
    assert type_of(world) is GroupType.CLASSIC
    again = Consumer(world, "again")
    again.join()
    assert again.owned == set(), "the classic member was never heard to let go"
    run(world, two, again)
    assert two.owned | again.owned == ALL


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_may_forbid_a_downgrade(policy: str) -> None:
    world = World(consumer_config=ConsumerGroupConfig(migration_policy=policy))
    one, two = mixed(world)
    one.leave()
    run(world, two)
    assert type_of(world) is GroupType.CONSUMER
    assert two.owned == ALL


def test_a_group_that_is_too_large_is_not_downgraded() -> None:
    world = World(GroupConfig(group_max_size=1))
    one, two = mixed(world)
    three = Mover(world, "three")
    run(world, one, two, three)
    one.leave()
    run(world, two, three)
    assert type_of(world) is GroupType.CONSUMER
    assert two.owned | three.owned == ALL


# Empty groups.


@pytest.mark.parametrize("policy", ["disabled", "bidirectional"])
def test_an_empty_group_is_whatever_comes_next(policy: str) -> None:
    world = World(consumer_config=ConsumerGroupConfig(migration_policy=policy))
    (one,) = classics(world, "one")
    one.commit("orders", 1, 7)
    one.leave()
    two = Consumer(world, "two")
    two.join()
    assert type_of(world) is GroupType.CONSUMER
    assert two.owned == ALL
    two.leave()
    three = Mover(world, "three")
    run(world, three)
    assert type_of(world) is GroupType.CLASSIC
    assert three.owned == ALL
    world.restart()
    assert type_of(world) is GroupType.CLASSIC
    assert world.offset_of("orders", 1) == 7


def test_an_empty_consumer_group_stays_one_if_the_join_is_refused_or_not_written() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    one.leave()
    stranger = Mover(world, "two")
    assert error_of(stranger.ask_to_join("unknown")) is UnknownMemberId
    assert type_of(world) is GroupType.CONSUMER
    world.store.failure = NotEnoughReplicas()
    two = Mover(world, "two", version=3)
    assert error_of(two.ask_to_join()) is not None
    assert type_of(world) is GroupType.CONSUMER
    world.store.failure = None
    run(world, two)
    assert two.owned == ALL
