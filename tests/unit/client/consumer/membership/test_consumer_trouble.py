"""A member of a consumer group (KIP-848) when it is put out, cut off, refused, or goes."""

from __future__ import annotations

import pytest

from millstream.client.consumer.membership.consumer_protocol import State
from millstream.client.consumer.membership.events import Lost, Revoked
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
    partitions,
    to,
)


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
    assert world.link.order.first_ms == 205_000


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


def test_leaving_before_the_group_took_us_in_needs_no_request() -> None:
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

    consumer.leave_on_poll_timeout(reason, 1)
    assert asked(world).member_epoch == -1
    world.link.answer(response(-1))
    assert world.acknowledge() == Lost(partitions("t-0 t-1"), reason)
    assert consumer.poll(2) is None

    consumer.return_to_group(3)
    consumer.poll(3)
    assert asked(world).member_epoch == 0
