"""A member of a classic group when it is put out, cut off or refused."""

from __future__ import annotations

import pytest

from millstream.client.consumer.membership.classic import State
from millstream.client.consumer.membership.events import Lost, Revoked
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    BrokerUnreachable,
    CoordinatorLoadInProgress,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    NotCoordinator,
    PollIntervalExceeded,
    RebalanceInProgress,
    UnknownMemberId,
)
from millstream.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupResponse,
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
    GROUP,
    World,
    names,
    partitions,
    settings,
    to,
)


@pytest.mark.parametrize(
    ("code", "kept_id"), [(UnknownMemberId.code, ""), (IllegalGeneration.code, "m")]
)
def test_a_member_that_was_put_out_loses_its_partitions_and_joins_anew(
    code: int, kept_id: str
) -> None:
    world = World(t=2)
    consumer = joined(world)

    beat(world, code)
    consumer.poll(1)
    assert world.link.sent == []  # The user is to hear of it first.
    assert not consumer.owned
    assert world.host.identity == ConsumerGroupMetadata(GROUP)

    event = world.acknowledge()
    assert isinstance(event, Lost)
    assert event.partitions == partitions("t-0 t-1")
    consumer.poll(2)
    assert world.link.request(JoinGroupRequest).member_id == kept_id


def test_what_is_being_revoked_is_not_lost_a_second_time() -> None:
    world = World(t=2)
    consumer = joined(world, "t-0 t-1", partition_assignment_strategy=STICKY)
    consumer.rejoin("test", 1)
    consumer.poll(1)
    let_in(world, 2, name="cooperative-sticky")
    give(world, "t-0")

    beat(world, UnknownMemberId.code)

    assert world.acknowledge() == Revoked(partitions("t-1"), commits_first=True)
    event = world.acknowledge()
    assert isinstance(event, Lost)
    assert event.partitions == partitions("t-0")
    consumer.poll(2)
    assert world.link.request(JoinGroupRequest).member_id == ""


@pytest.mark.parametrize("code", [CoordinatorLoadInProgress.code, NotCoordinator.code, -1])
def test_joining_is_tried_again_with_backoff(code: int) -> None:
    world = World(t=1)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    world.link.answer(JoinGroupResponse(error_code=code), now_ms=1_000)

    due_ms = consumer.poll(1_000)
    assert due_ms is not None
    assert 1_080 <= due_ms <= 1_120
    assert world.link.sent == []
    consumer.poll(due_ms)
    world.link.request(JoinGroupRequest)
    assert bool(world.link.lost_at) == (code == NotCoordinator.code)


def test_a_broken_connection_while_joining_leads_to_another_try() -> None:
    world = World(t=1)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    world.link.answer(BrokerUnreachable("gone"), now_ms=10)
    consumer.poll(1_000)

    assert world.link.lost_at == [10]
    world.link.request(JoinGroupRequest)


def test_a_rebalance_during_sync_leads_back_to_joining_at_once() -> None:
    world = World(t=1)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)
    let_in(world)

    world.link.answer(SyncGroupResponse(error_code=RebalanceInProgress.code))
    consumer.poll(0)

    assert world.link.request(JoinGroupRequest).member_id == "m"


@pytest.mark.parametrize("error", [GroupAuthorizationFailed, FencedInstanceId])
def test_errors_that_stay_end_the_membership(error: type[GroupAuthorizationFailed]) -> None:
    world = World(t=2)
    consumer = joined(world)

    beat(world, error.code)

    assert [type(each) for each in world.host.errors] == [error]
    assert consumer.state is State.GONE
    assert isinstance(world.acknowledge(), Lost)
    assert consumer.poll(1) is None


def test_heartbeats_go_on_at_the_next_coordinator() -> None:
    world = World(t=2)
    consumer = joined(world)
    world.link.ready = False

    world.link.hang_up(5_000)
    assert consumer.poll(5_000) == 5_050
    assert world.link.lost_at == [5_000]
    world.link.ready = True
    consumer.poll(5_050)

    world.link.request(HeartbeatRequest)  # At once, for the session runs.
    assert world.link.order.first_ms == 5_050 + 3_000
    world.link.answer(HeartbeatResponse())
    assert names(consumer.owned) == "t-0 t-1"


def test_heartbeats_end_with_the_users_patience_and_are_renewed_while_he_polls() -> None:
    world = World(t=2)
    consumer = joined(world)
    assert world.link.order.until_ms == 300_000

    world.host.until_ms = 400_000
    consumer.poll(100_000)
    assert world.link.order.until_ms == 300_000
    world.host.until_ms = 500_000
    consumer.poll(200_000)

    assert world.link.order.until_ms == 500_000


def test_renewed_heartbeats_keep_the_beat_of_those_before() -> None:
    world = World(t=2)
    consumer = joined(world)
    first_ms = world.link.order.first_ms
    interval_ms = world.link.order.every_ms

    world.host.until_ms = 500_000
    consumer.poll(first_ms + 60 * interval_ms + 1)

    assert world.link.order.until_ms == 500_000
    assert world.link.order.first_ms == first_ms + 61 * interval_ms


def test_heartbeats_renewed_as_one_is_due_do_not_leave_it_out() -> None:
    world = World(t=2)
    consumer = joined(world)
    due_ms = world.link.order.first_ms + 60 * world.link.order.every_ms

    world.host.until_ms = 500_000
    consumer.poll(due_ms)

    assert world.link.order.first_ms == due_ms


def test_a_refused_commit_tells_as_much_as_a_heartbeat() -> None:
    world = World(t=2)
    consumer = joined(world)

    consumer.refused(UnknownMemberId.code, 1)

    assert isinstance(world.acknowledge(), Lost)


# Going.


def test_leaving_gives_everything_back_first() -> None:
    world = World(t=2)
    consumer = joined(world)
    done: list[bool] = []

    consumer.leave(1, lambda: done.append(True), keeps_slot=True)
    assert world.acknowledge() == Revoked(partitions("t-0 t-1"), commits_first=True)

    asked = world.link.request(LeaveGroupRequest)
    assert [each.member_id for each in asked.members] == ["m"]
    assert world.link.request(LeaveGroupRequest, version=0).member_id == "m"
    assert not done
    world.link.answer(LeaveGroupResponse())
    assert done == [True]
    assert not consumer.is_member


def test_a_static_member_leaves_without_a_word() -> None:
    world = World(t=2)
    consumer = joined(world, group_instance_id="one")
    done: list[bool] = []

    consumer.leave(1, lambda: done.append(True), keeps_slot=True)
    world.acknowledge()

    assert done == [True]
    assert world.link.sent == []
    assert not world.link.orders


def test_leaving_a_second_time_does_not_wait() -> None:
    world = World(t=2)
    consumer = joined(world)
    done: list[str] = []

    consumer.leave(1, lambda: done.append("first"), keeps_slot=True)
    world.acknowledge()
    consumer.leave(1, lambda: done.append("second"), keeps_slot=True)

    assert done == ["second"]


def test_a_member_whose_user_does_not_poll_goes_and_comes_back_as_a_new_one() -> None:
    world = World(t=2)
    consumer = joined(world)
    reason = PollIntervalExceeded("too slow")

    consumer.leave_on_poll_timeout(reason, 1)

    assert world.link.request(LeaveGroupRequest).members[0].member_id == "m"
    world.link.answer(LeaveGroupResponse())
    assert world.acknowledge() == Lost(partitions("t-0 t-1"), reason)
    assert consumer.poll(2) is None

    consumer.return_to_group(3)
    consumer.poll(3)
    assert world.link.request(JoinGroupRequest).member_id == ""


def test_an_answer_that_comes_after_the_member_left_changes_nothing() -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    consumer.leave(1, lambda: None, keeps_slot=True)
    let_in(world)

    assert consumer.state is State.GONE
    assert world.link.sent == []


def test_range_and_cooperative_sticky_together_are_eager() -> None:
    assert not settings().is_cooperative
    assert settings(partition_assignment_strategy=STICKY).is_cooperative
    assert not settings(partition_assignment_strategy=["range"]).is_cooperative
