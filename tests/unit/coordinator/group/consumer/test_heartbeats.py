"""Consumer groups: joining, following, leaving, and who is refused."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.errors import (
    ApiError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.unit.coordinator.group.consumer.members import (
    CALLER,
    REBALANCE_MS,
    Consumer,
    assert_exclusive,
    group_of,
    settle,
)
from tests.unit.coordinator.group.world import GROUP, World

ALL = {("orders", 0), ("orders", 1), ("orders", 2)}


def test_the_first_member_gets_everything_at_once() -> None:
    world = World()
    one = Consumer(world, "one")
    answer = one.join()
    assert (answer.member_epoch, one.owned) == (1, ALL)
    assert answer.heartbeat_interval_ms == 5_000
    assert group_of(world).state_name == "Stable"


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_says_little() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    written = world.store.record_count()
    answer = one.beat()
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert answer.assignment is None
    assert world.store.record_count() == written


def test_the_second_member_gets_what_the_first_lets_go_of() -> None:
    world = World()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.join()
    two.join()
    assert two.owned == set(), "the other has not let go yet"
    assert two.epoch == 2
    one.beat(says_owned=False)
    assert one.epoch == 1, "it must let go first"
    assert group_of(world).state_name == "Reconciling"
    settle(world, one, two)
    assert {len(one.owned), len(two.owned)} == {1, 2}
    assert one.owned | two.owned == ALL
    assert one.epoch == two.epoch == 2
    assert group_of(world).state_name == "Stable"


def test_a_partition_is_never_with_two_members() -> None:
    world = World()
    world.topics.counts = {"orders": 7, "payments": 5}
    members: list[Consumer] = []
    for number in range(5):
        joined = Consumer(world, f"m{number}", "orders", "payments")
        joined.join()
        members.append(joined)
        for each in members:
            each.beat()
            assert_exclusive(*members)
    settle(world, *members)
    assert sorted(len(each.owned) for each in members) == [2, 2, 2, 3, 3]
    members.pop(0).leave()
    settle(world, *members)
    assert sum(len(each.owned) for each in members) == 12


def test_who_leaves_frees_its_partitions() -> None:
    world = World()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.join()
    two.join()
    settle(world, one, two)
    answer = two.leave()
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert answer.member_epoch == -1
    settle(world, one)
    assert one.owned == ALL
    one.leave()
    group = group_of(world)
    assert group.state_name == "Empty"
    assert group.epoch == group.assignment_epoch
    assert world.runtime.next_deadline_ms() == world.clock.monotonic_ms() + 600_000


def test_who_is_silent_for_a_session_is_fenced() -> None:
    world = World()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.join()
    two.join()
    settle(world, one, two)
    world.pass_ms(30_000)
    one.beat()
    world.pass_ms(15_000)
    assert isinstance(two.beat(), UnknownMemberId)
    settle(world, one)
    assert one.owned == ALL


def test_who_does_not_let_go_in_time_is_fenced() -> None:
    world = World()
    stubborn, two = Consumer(world, "one"), Consumer(world, "two")
    stubborn.obeys = False
    stubborn.join()
    two.join()
    stubborn.beat()
    world.pass_ms(REBALANCE_MS - 1)
    stubborn.beat()
    world.pass_ms(1)
    assert isinstance(stubborn.beat(), UnknownMemberId)
    settle(world, two)
    assert two.owned == ALL


def test_a_member_that_let_go_in_time_is_not_fenced() -> None:
    world = World()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.join()
    two.join()
    settle(world, one, two)
    world.pass_ms(REBALANCE_MS)
    assert not isinstance(one.beat(), ApiError)


def test_everything_is_there_after_a_restart() -> None:
    world = World()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.join()
    two.join()
    one.beat()
    before = group_of(world)
    world.restart()
    after = group_of(world)
    assert after.members == before.members
    assert after.targets == before.targets
    assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
    assert after.metadata_hash == before.metadata_hash
    settle(world, one, two)
    assert one.owned | two.owned == ALL


def test_sessions_begin_anew_with_a_new_coordinator() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    world.clock.advance(44_999)
    world.restart()
    world.pass_ms(44_999)
    assert not isinstance(one.beat(), ApiError)
    world.pass_ms(45_000)
    assert isinstance(one.beat(), UnknownMemberId)


@pytest.mark.parametrize("epoch", [5, 0, -1])
def test_members_in_other_epochs(epoch: int) -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    one.leave()
    one.join()
    assert one.epoch == 3
    if epoch == 5:
        assert isinstance(one.send(member_epoch=5), FencedMemberEpoch)
    elif epoch == 0:
        assert not isinstance(one.try_join(), ApiError)
    else:
        assert not isinstance(one.send(member_epoch=-1), ApiError)


def test_a_lost_answer_is_given_again() -> None:
    world = World()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.join()
    two.join()
    one.beat()
    one.beat()
    assert one.epoch == 2
    one.epoch = 1
    assert not isinstance(one.beat(), ApiError), "what it owns is what it was given"
    one.epoch = 1
    one.owned = set(ALL)
    assert isinstance(one.beat(), FencedMemberEpoch)
    one.epoch = 1
    assert isinstance(one.beat(says_owned=False), FencedMemberEpoch)


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": []},
        {"server_assignor": ""},
    ],
)
def test_heartbeats_that_make_no_sense(fields: dict[str, Any]) -> None:
    assert isinstance(Consumer(World(), "one").try_join(**fields), InvalidRequest)


def test_strangers_are_told_so() -> None:
    world = World()
    one = Consumer(world, "one")
    assert isinstance(one.send(member_epoch=4), GroupIdNotFound)
    assert isinstance(one.leave(), GroupIdNotFound)
    one.join()
    stranger = Consumer(world, "stranger")
    assert isinstance(stranger.send(member_epoch=4), UnknownMemberId)
    assert isinstance(stranger.leave(), UnknownMemberId)
    assert isinstance(one.try_join(server_assignor="best"), UnsupportedAssignor)


def test_a_group_has_a_size() -> None:
    world = World(consumer_config=ConsumerGroupConfig(size_max=1))
    Consumer(world, "one").join()
    assert isinstance(Consumer(world, "two").try_join(), GroupMaxSizeReached)


def test_an_old_client_gets_its_id_from_the_coordinator() -> None:
    one = Consumer(World(), "")
    one.caller = one.caller._replace(version=0)
    assert one.join().member_id


def test_a_group_may_have_timeouts_of_its_own() -> None:
    world = World()
    world.topics.group_configs[GROUP] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    one = Consumer(world, "one")
    assert one.join().heartbeat_interval_ms == 7000
    world.pass_ms(49_999)
    assert not isinstance(one.beat(), ApiError)


# Topics.


def test_new_partitions_are_given_out() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    world.topics.counts = {"orders": 5}
    settle(world, one)
    assert len(one.owned) == 5


def test_a_topic_may_come_later() -> None:
    world = World()
    one = Consumer(world, "one", "later")
    one.join()
    assert one.owned == set()
    world.topics.counts = {**world.topics.counts, "later": 2}
    settle(world, one)
    assert one.owned == {("later", 0), ("later", 1)}


def test_a_deleted_topic_is_taken_away() -> None:
    world = World()
    one = Consumer(world, "one", "orders", "payments")
    one.join()
    payments = world.topics.topic_id("payments")
    world.topics.counts = {"orders": 3}
    one.owned = set(ALL)
    settle(world, one)
    assert group_of(world).members["one"].progress.assigned.keys() == {
        world.topics.topic_id("orders")
    }
    assert payments not in group_of(world).targets["one"]


def test_subscriptions_may_change() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    one.send(subscribed_topic_names=["payments"])
    settle(world, one)
    assert one.owned == {("payments", 0), ("payments", 1)}


def test_an_expression_is_resolved_here() -> None:
    world = World()
    world.topics.counts = {"orders-eu": 1, "orders-us": 1, "__consumer_offsets": 50}
    one = Consumer(world, "one")
    one.join(subscribed_topic_names=[], subscribed_topic_regex="orders-.*|__.*")
    assert one.owned == {("orders-eu", 0), ("orders-us", 0)}
    world.topics.counts = {**world.topics.counts, "orders-jp": 1}
    settle(world, one)
    assert ("orders-jp", 0) in one.owned
    assert group_of(world).is_subscribed_to("orders-jp")
    one.send(subscribed_topic_regex="", subscribed_topic_names=["orders-eu"])
    settle(world, one)
    assert one.owned == {("orders-eu", 0)}
    assert group_of(world).regexes == {}


def test_an_expression_that_is_none_is_refused() -> None:
    answer = Consumer(World(), "one").try_join(
        subscribed_topic_names=[], subscribed_topic_regex="orders-("
    )
    assert isinstance(answer, InvalidRegularExpression)


def test_members_choose_their_assignor() -> None:
    world = World()
    world.topics.counts = {"a": 2, "b": 2}
    members = [Consumer(world, name, "a", "b", server_assignor="range") for name in ("one", "two")]
    for each in members:
        each.join()
    settle(world, *members)
    assert members[0].owned == {("a", 0), ("b", 0)}
    described: list[Any] = []
    world.groups.consumer_group_describe([GROUP, "none"], CALLER, described.append)
    known, unknown = described[0].groups
    assert known.assignor_name == "range"
    assert (known.group_state, known.group_epoch, known.assignment_epoch) == ("Stable", 2, 2)
    assert [each.member_id for each in known.members] == ["one", "two"]
    assert known.members[0].assignment == known.members[0].target_assignment
    assert unknown.error_code == GroupIdNotFound.code


# Static members.


def test_a_static_member_comes_back_to_its_partitions() -> None:
    world = World()
    one = Consumer(world, "one", instance_id="first")
    two = Consumer(world, "two", instance_id="second")
    one.join()
    two.join()
    settle(world, one, two)
    mine, epoch = set(one.owned), group_of(world).epoch
    answer = one.leave(-2)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    assert answer.member_epoch == -2
    two.beat()
    assert two.owned.isdisjoint(mine)
    back = Consumer(world, "one-again", instance_id="first")
    back.join()
    assert back.owned == mine
    assert group_of(world).epoch == epoch, "nobody else notices"
    assert isinstance(one.beat(), FencedInstanceId)
    settle(world, back, two)


def test_a_static_member_that_stays_away_is_fenced() -> None:
    world = World()
    one, two = Consumer(world, "one", instance_id="first"), Consumer(world, "two")
    one.join()
    two.join()
    settle(world, one, two)
    one.leave(-2)
    world.pass_ms(20_000)
    two.beat()
    world.pass_ms(25_000)
    settle(world, two)
    assert two.owned == ALL


def test_a_name_in_use_is_not_given_away() -> None:
    world = World()
    Consumer(world, "one", instance_id="first").join()
    thief = Consumer(world, "two", instance_id="first")
    assert isinstance(thief.try_join(), UnreleasedInstanceId)
    stranger = Consumer(world, "three", instance_id="third")
    stranger.epoch = 3
    assert isinstance(stranger.beat(), UnknownMemberId)
    assert isinstance(stranger.leave(-2), UnknownMemberId)
    thief.epoch = 1
    assert isinstance(thief.leave(-2), FencedInstanceId)
