"""Stories of a member of a consumer group (KIP-848), told heartbeat by heartbeat."""

from __future__ import annotations

import pytest

from millstream.client.consumer.membership.consumer_protocol import ConsumerMember, State
from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    BrokerUnreachable,
    CoordinatorLoadInProgress,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    NotCoordinator,
    PollIntervalExceeded,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from millstream.types import Uuid
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    World,
    names,
    partitions,
    settings,
    to,
    topic_id,
)


def member(world: World, **changes: object) -> ConsumerMember:
    return ConsumerMember(
        settings(**changes), world.link, world.handover, world.view, world.host, world.random
    )


def response(
    epoch: int, assigned: str | None = None, code: int = 0
) -> ConsumerGroupHeartbeatResponse:
    found: dict[str, list[int]] = {}
    for each in sorted(partitions(assigned or "")):
        found.setdefault(each.topic, []).append(each.partition)
    topics = [
        ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id(name), partitions=indexes)
        for name, indexes in found.items()
    ]
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=None if assigned is None else Assignment(topic_partitions=topics),
    )


def owned(request: object) -> str:
    """What a heartbeat says that we have."""
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    ids = {topic_id(name): name for name in "tu"}
    return " ".join(
        f"{ids[topic.topic_id]}-{index}"
        for topic in request.topic_partitions or []
        for index in topic.partitions
    )


def asked(world: World, version: int | None = None) -> ConsumerGroupHeartbeatRequest:
    return world.link.request(ConsumerGroupHeartbeatRequest, version)


def joined(world: World, assigned: str = "t-0 t-1", **changes: object) -> ConsumerMember:
    """A stable member at epoch 1 that has told what it owns."""
    found = member(world, **changes)
    found.subscribe(to("t"), 0)
    found.poll(0)
    world.link.answer(response(1, assigned))
    if assigned:
        world.acknowledge()
        found.poll(0)
        world.link.answer(response(1, assigned))
    return found


def beat(world: World, epoch: int, assigned: str | None = None, code: int = 0) -> None:
    """The answer to a heartbeat of the standing order."""
    world.link.order.on_response(response(epoch, assigned, code), 5_000)


# Getting in.


def test_a_member_joins_with_an_id_of_its_own_and_says_everything() -> None:
    world = World(t=2)
    consumer = member(world, client_rack="east", remote_assignor="uniform")
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


def test_an_epoch_that_moves_under_the_standing_order_is_followed_by_a_full_heartbeat() -> None:
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


# Trouble.


@pytest.mark.parametrize("code", [UnknownMemberId.code, FencedMemberEpoch.code])
def test_a_member_that_was_put_out_loses_its_partitions_and_joins_anew(code: int) -> None:
    world = World(t=2)
    consumer = joined(world)

    beat(world, 0, code=code)
    consumer.poll(5_000)
    assert world.link.sent == []  # The user is to hear of it first.
    event = world.acknowledge()
    consumer.poll(5_000)

    assert isinstance(event, Lost)
    assert event.partitions == partitions("t-0 t-1")
    assert (asked(world).member_epoch, asked(world).member_id) == (0, "m")
    assert owned(asked(world)) == ""
    assert world.host.identity == ConsumerGroupMetadata(GROUP)


def test_a_step_that_was_under_way_when_the_member_was_put_out_leads_nowhere() -> None:
    world = World(t=3)
    consumer = joined(world)
    beat(world, 1, "t-0")

    beat(world, 0, code=FencedMemberEpoch.code)
    assert world.acknowledge() == Revoked(partitions("t-1"), commits_first=True)
    event = world.acknowledge()
    assert isinstance(event, Lost)
    assert event.partitions == partitions("t-0")
    consumer.poll(5_000)

    assert consumer.owned == frozenset()
    assert asked(world).member_epoch == 0


@pytest.mark.parametrize("code", [CoordinatorLoadInProgress.code, NotCoordinator.code])
def test_a_coordinator_that_cannot_answer_now_is_asked_again_with_backoff(code: int) -> None:
    world = World(t=2)
    consumer = joined(world)

    beat(world, 0, code=code)
    due_ms = consumer.poll(5_000)

    assert due_ms is not None
    assert 5_080 <= due_ms <= 5_120
    consumer.poll(due_ms)
    assert owned(asked(world)) == "t-0 t-1"
    assert bool(world.link.lost_at) == (code == NotCoordinator.code)


def test_a_broken_connection_costs_no_partition() -> None:
    world = World(t=2)
    consumer = joined(world)

    world.link.hang_up(5_000)
    world.link.ready = False
    assert consumer.poll(6_000) == 6_050
    world.link.ready = True
    consumer.poll(6_050)

    assert (asked(world).member_epoch, owned(asked(world))) == (1, "t-0 t-1")
    world.link.answer(BrokerUnreachable("gone again"), 6_060)
    consumer.poll(60_000)
    assert asked(world).member_epoch == 1
    assert world.link.lost_at == [5_000, 6_060]


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedAssignor,
        FencedInstanceId,
        GroupMaxSizeReached,
        InvalidRegularExpression,
        UnsupportedVersion,
    ],
)
def test_errors_that_stay_end_the_membership(error: type[UnsupportedAssignor]) -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    world.link.answer(response(0, code=error.code))

    assert [type(each) for each in world.host.errors] == [error]
    assert consumer.state is State.GONE
    assert consumer.poll(1) is None


def test_an_answer_that_cannot_be_used_ends_the_membership() -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    world.link.answer(UnsupportedVersion("not offered"))

    assert len(world.host.errors) == 1


def test_a_static_member_waits_for_the_session_of_its_crashed_predecessor() -> None:
    world = World(t=2)
    consumer = member(world, group_instance_id="one", default_api_timeout_ms=60_000)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)
    assert asked(world).instance_id == "one"

    world.link.answer(response(0, code=UnreleasedInstanceId.code), 0)
    consumer.poll(45_000)
    world.link.answer(response(1, ""), 45_000)

    assert world.host.errors == []
    assert consumer.is_member


def test_a_static_member_gives_up_when_its_instance_id_is_not_released() -> None:
    world = World(t=2)
    consumer = member(world, group_instance_id="one", default_api_timeout_ms=60_000)
    consumer.subscribe(to("t"), 0)
    for now_ms in (0, 30_000, 60_000):
        consumer.poll(now_ms)
        world.link.answer(response(0, code=UnreleasedInstanceId.code), now_ms)

    assert [type(each) for each in world.host.errors] == [UnreleasedInstanceId]


def test_heartbeats_end_with_the_users_patience_and_are_renewed_while_he_polls() -> None:
    world = World(t=2)
    consumer = joined(world)

    consumer.poll(200_000)
    assert world.link.sent == []
    world.host.until_ms = 500_000
    consumer.poll(200_000)
    assert asked(world).member_epoch == 1
    world.link.answer(response(1, "t-0 t-1"), 200_001)

    assert world.link.order.until_ms == 500_000
    assert world.link.order.first_ms == 205_001


def test_a_refused_commit_has_the_coordinator_asked_at_once() -> None:
    world = World(t=2)
    consumer = joined(world)

    consumer.refused(UnknownMemberId.code, 1)
    consumer.poll(1)

    assert asked(world).member_epoch == 1


# Going.


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
def test_leaving_gives_everything_back_first(instance_id: str | None, epoch: int) -> None:
    world = World(t=2)
    consumer = joined(world, group_instance_id=instance_id)
    done: list[bool] = []

    consumer.leave(1, lambda: done.append(True), keeps_slot=True)
    assert world.acknowledge() == Revoked(partitions("t-0 t-1"), commits_first=True)

    assert asked(world).member_epoch == epoch
    assert not done
    world.link.answer(response(epoch))
    assert done == [True]
    assert not world.link.orders


def test_leaving_before_the_group_took_us_in_needs_no_goodbye() -> None:
    world = World(t=2)
    consumer = member(world)
    done: list[bool] = []
    consumer.leave(0, lambda: done.append(True), keeps_slot=True)
    consumer.subscribe(to("t"), 0)
    consumer.leave(0, lambda: done.append(True), keeps_slot=True)

    assert done == [True, True]
    assert world.link.sent == []


def test_a_member_whose_user_does_not_poll_goes_and_comes_back() -> None:
    world = World(t=2)
    consumer = joined(world)
    reason = PollIntervalExceeded("too slow")

    consumer.desert(reason, 1)
    assert asked(world).member_epoch == -1
    world.link.answer(response(-1))
    assert world.acknowledge() == Lost(partitions("t-0 t-1"), reason)
    assert consumer.poll(2) is None

    consumer.return_to_group(3)
    consumer.poll(3)
    assert asked(world).member_epoch == 0
