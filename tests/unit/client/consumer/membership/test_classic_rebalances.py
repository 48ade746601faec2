"""What a member of a classic group gives up and takes when the group changes, and how it goes."""

from __future__ import annotations

from millstream.client.consumer.membership.events import Assigned, Revoked
from millstream.errors import (
    RebalanceInProgress,
)
from millstream.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
)
from millstream.protocol.records_framing import (
    decode_subscription,
)
from tests.unit.client.consumer.membership.classic_world import (
    STICKY,
    beat,
    give,
    joined,
    let_in,
    member,
)
from tests.unit.client.consumer.membership.group_world import (
    World,
    names,
    partitions,
    to,
)


def test_with_eager_assignors_everything_is_given_back_before_joining_again() -> None:
    world = World(t=2)
    consumer = joined(world)

    beat(world, RebalanceInProgress.code)
    consumer.poll(1)
    assert world.link.sent == []
    assert world.link.orders  # Heartbeats go on while the user's listener runs.
    assert names(consumer.owned) == "t-0 t-1"  # ... who may still commit.

    assert world.acknowledge() == Revoked(partitions("t-0 t-1"), commits_first=True)
    asked = world.link.request(JoinGroupRequest)
    assert decode_subscription(asked.protocols[0].metadata).owned_partitions == []
    assert (asked.member_id, asked.reason) == ("m", "the group is rebalancing")
    assert not world.link.orders

    let_in(world, 2)
    give(world, "t-1")
    assert world.acknowledge() == Assigned(partitions("t-1"))
    order = world.link.order.request
    assert isinstance(order, HeartbeatRequest)
    assert order.generation_id == 2


def test_with_cooperative_assignors_only_what_moves_is_given_up_and_then_joined_again() -> None:
    world = World(t=3)
    consumer = joined(world, partition_assignment_strategy=STICKY)

    beat(world, RebalanceInProgress.code)
    consumer.poll(1)
    asked = world.link.request(JoinGroupRequest)
    said = decode_subscription(asked.protocols[0].metadata)
    assert [(each.topic, each.partitions) for each in said.owned_partitions] == [("t", [0, 1])]

    let_in(world, 2, name="cooperative-sticky")
    give(world, "t-0 t-2")
    assert world.acknowledge() == Revoked(partitions("t-1"), commits_first=True)
    assert world.acknowledge() == Assigned(partitions("t-2"))
    consumer.poll(2)

    again = world.link.request(JoinGroupRequest)
    assert again.reason == "others can have what this member gave up"
    assert names(consumer.owned) == "t-0 t-2"


def test_cooperative_members_give_back_topics_that_they_no_longer_want() -> None:
    world = World(t=1, u=1)
    consumer = member(world, partition_assignment_strategy=STICKY)
    consumer.subscribe(to("t", "u"), 0)
    consumer.poll(0)
    let_in(world, name="cooperative-sticky")
    give(world, "t-0 u-0")
    world.acknowledge()

    consumer.subscribe(to("t"), 1)
    consumer.poll(1)

    assert world.acknowledge() == Revoked(partitions("u-0"), commits_first=True)
    said = decode_subscription(world.link.request(JoinGroupRequest).protocols[0].metadata)
    assert [(each.topic, each.partitions) for each in said.owned_partitions] == [("t", [0])]
    assert said.topics == ["t"]


def test_without_auto_commit_nothing_is_committed_before_partitions_are_revoked() -> None:
    world = World(t=2)
    consumer = joined(world, enable_auto_commit=False)

    consumer.rejoin("test", 1)
    consumer.poll(1)

    assert world.acknowledge() == Revoked(partitions("t-0 t-1"), commits_first=False)


def test_a_rebalance_that_changes_nothing_is_told_all_the_same() -> None:
    world = World(t=2)
    consumer = joined(world, partition_assignment_strategy=STICKY)
    consumer.rejoin("test", 1)
    consumer.poll(1)

    let_in(world, 2, name="cooperative-sticky")
    give(world, "t-0 t-1")

    assert world.acknowledge() == Assigned(frozenset())


def test_an_assignment_of_topics_that_are_no_longer_wanted_is_not_taken() -> None:
    world = World(t=1, u=1)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)
    let_in(world)
    consumer.subscribe(to("u"), 1)
    consumer.poll(1)

    give(world, "t-0")
    consumer.poll(2)

    assert consumer.owned == frozenset()
    asked = world.link.request(JoinGroupRequest)
    assert decode_subscription(asked.protocols[0].metadata).topics == ["u"]
