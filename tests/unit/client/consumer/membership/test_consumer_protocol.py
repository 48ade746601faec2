"""A member of a consumer group (KIP-848) heartbeat by heartbeat: joining and rebalancing."""

from __future__ import annotations

from millstream.client.consumer.membership.events import Assigned, Revoked
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.groups import ConsumerGroupMetadata
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from millstream.types import Uuid
from tests.unit.client.consumer.membership.consumer_world import (
    asked,
    beat,
    joined,
    member,
    owned,
    response,
)
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    World,
    names,
    partitions,
    to,
    topic_id,
)


def test_a_member_joins_with_an_id_of_its_own_and_says_everything() -> None:
    world = World(t=2)
    consumer = member(world, client_rack="east", group_remote_assignor="uniform")
    consumer.subscribe(to("t"), 0)

    consumer.poll(0)

    request = asked(world)
    assert Uuid.parse(request.member_id)
    assert request.member_epoch == 0
    assert request.subscribed_topic_names == ["t"]
    assert request.topic_partitions == []
    assert (request.rebalance_timeout_ms, request.rack_id) == (300_000, "east")
    assert request.server_assignor == "uniform"


def test_an_old_coordinator_gives_the_member_its_id() -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    assert asked(world, version=0).member_id == ""
    world.link.answer(response(1, ""))

    assert world.host.identity == ConsumerGroupMetadata(GROUP, 1, "m")


def test_what_is_assigned_is_told_to_the_user_and_then_to_the_coordinator() -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)
    world.link.answer(response(1, "t-0 t-1"))

    consumer.poll(0)
    assert world.link.sent == []
    assert world.acknowledge() == Assigned(partitions("t-0 t-1"))
    consumer.poll(0)

    assert owned(asked(world)) == "t-0 t-1"
    world.link.answer(response(1, "t-0 t-1"))
    assert consumer.is_member
    assert world.link.order.every_ms == 5_000


def test_the_standing_heartbeat_names_what_is_owned_and_nothing_else_that_is_old() -> None:
    world = World(t=2)
    joined(world)

    order = world.link.order.request

    assert owned(order) == "t-0 t-1"
    assert isinstance(order, ConsumerGroupHeartbeatRequest)
    assert order.subscribed_topic_names is None
    assert order.rebalance_timeout_ms == -1
    assert order.member_epoch == 1


def test_partitions_of_topics_without_a_known_name_wait_for_the_metadata() -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(to("t", "u"), 0)
    consumer.poll(0)

    world.link.answer(response(1, "t-0 u-0"))
    assert world.acknowledge() == Assigned(partitions("t-0"))
    assert world.metadata.requests > 0
    world.metadata.change(t=2, u=1)
    consumer.poll(1)

    assert world.acknowledge() == Assigned(partitions("u-0"))


# Subscriptions.


def test_another_subscription_is_told_at_once() -> None:
    world = World(t=2, u=1)
    consumer = joined(world)

    consumer.subscribe(to("t", "u"), 1)
    consumer.poll(1)

    assert asked(world).subscribed_topic_names == ["t", "u"]
    assert asked(world).member_epoch == 1


def test_an_expression_is_matched_by_the_coordinator_and_taken_back_by_an_empty_one() -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(Subscription(regex="t.*"), 0)

    consumer.poll(0)
    first = asked(world)
    world.link.answer(response(1, ""))
    consumer.subscribe(to("t"), 1)
    consumer.poll(1)
    second = asked(world)

    assert (first.subscribed_topic_regex, first.subscribed_topic_names) == ("t.*", [])
    assert (second.subscribed_topic_regex, second.subscribed_topic_names) == ("", ["t"])


def test_an_old_coordinator_is_told_the_names_that_match_an_expression() -> None:
    world = World()
    world.link.version = 0
    consumer = member(world)
    consumer.subscribe(Subscription(regex="t.*"), 0)

    consumer.poll(0)
    assert world.link.sent == []
    world.metadata.change(t1=1, u=1)
    consumer.poll(1)
    assert asked(world, version=0).subscribed_topic_names == ["t1"]

    world.link.answer(response(1, ""))
    world.metadata.change(t1=1, t2=1)
    consumer.poll(2)
    assert asked(world, version=0).subscribed_topic_names == ["t1", "t2"]


def test_a_pattern_of_python_is_matched_by_the_client() -> None:
    world = World()
    consumer = member(world)
    consumer.subscribe(Subscription(matches=lambda name: name.endswith("!")), 0)

    world.metadata.change(**{"a!": 1, "b": 1})
    consumer.poll(1)

    assert asked(world).subscribed_topic_names == ["a!"]
    assert asked(world).subscribed_topic_regex is None


# Rebalances.


def test_what_is_taken_away_is_given_up_before_anything_new_is_taken() -> None:
    world = World(t=3)
    consumer = joined(world)

    beat(world, 1, "t-0")
    assert world.acknowledge() == Revoked(partitions("t-1"), commits_first=True)
    consumer.poll(5_000)
    assert owned(asked(world)) == "t-0"

    world.link.answer(response(2, "t-0 t-2"))
    assert world.acknowledge() == Assigned(partitions("t-2"))
    consumer.poll(5_000)
    assert (owned(asked(world)), asked(world).member_epoch) == ("t-0 t-2", 2)
    world.link.answer(response(2, "t-0 t-2"))
    assert world.host.identity.generation_id == 2


def test_revoked_partitions_are_ours_until_the_users_listener_ran() -> None:
    world = World(t=3)
    consumer = joined(world, enable_auto_commit=False)

    beat(world, 1, "t-0")
    consumer.poll(5_000)

    assert names(consumer.owned) == "t-0 t-1"
    assert owned(world.link.order.request) == "t-0 t-1"
    assert world.acknowledge() == Revoked(partitions("t-1"), commits_first=False)
    assert names(consumer.owned) == "t-0"


def test_a_target_that_changes_meanwhile_is_reached_in_the_next_round() -> None:
    world = World(t=3)
    consumer = joined(world)

    beat(world, 1, "t-0")
    beat(world, 1, "t-0 t-1")
    beat(world, 1, "t-1")
    assert world.acknowledge() == Revoked(partitions("t-1"), commits_first=True)
    assert world.acknowledge() == Revoked(partitions("t-0"), commits_first=True)
    assert world.acknowledge() == Assigned(partitions("t-1"))

    consumer.poll(5_000)
    assert owned(asked(world)) == "t-1"


def test_an_epoch_that_moves_under_the_periodic_request_is_followed_by_a_full_heartbeat() -> None:
    world = World(t=2)
    consumer = joined(world)

    beat(world, 2)
    consumer.poll(5_000)

    assert asked(world).member_epoch == 2
    assert asked(world).subscribed_topic_names == ["t"]
    world.link.answer(response(2, "t-0 t-1"), 5_001)
    order = world.link.order.request
    assert isinstance(order, ConsumerGroupHeartbeatRequest)
    assert order.member_epoch == 2


def test_a_topic_that_was_made_anew_is_given_up_and_taken() -> None:
    world = World(t=1)
    consumer = joined(world, "t-0")
    again = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id("u"), partitions=[0])
    answer = response(2, "")
    assert answer.assignment is not None
    answer.assignment.topic_partitions = [again]

    world.link.order.on_response(answer, 5_000)
    assert world.acknowledge() == Revoked(partitions("t-0"), commits_first=True)
    world.metadata.change(u=1)
    consumer.poll(5_001)

    assert world.acknowledge() == Assigned(partitions("u-0"))


def test_the_group_hears_of_a_member_also_while_it_waits_for_an_answer() -> None:
    world = World(t=3)
    consumer = joined(world)
    beat(world, 1, "t-0")
    world.acknowledge()

    consumer.poll(5_000)
    assert owned(asked(world)) == owned(world.link.order.request) == "t-0"
    world.link.order.on_response(response(1), 10_000)  # The process could not run meanwhile.
    world.link.answer(response(2, "t-0"), 10_000)
    consumer.poll(10_000)

    assert asked(world).member_epoch == 2  # What the order has missed is asked for.
