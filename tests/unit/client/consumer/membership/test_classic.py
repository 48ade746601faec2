"""Stories of a member of a classic group, told request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.membership.assignors import ASSIGNORS, resolve
from millstream.client.consumer.membership.classic import ClassicMember
from millstream.client.consumer.membership.classic_state import State
from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    BrokerUnreachable,
    ClientError,
    CoordinatorLoadInProgress,
    FencedInstanceId,
    GroupAuthorizationFailed,
    IllegalGeneration,
    MemberIdRequired,
    NotCoordinator,
    PollIntervalExceeded,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedVersion,
)
from millstream.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from millstream.protocol.messages.join_group import JoinGroupResponseMember
from millstream.protocol.records_framing import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    World,
    names,
    partitions,
    settings,
    to,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.consumer.membership.assignors import GroupMember, GroupTopics

STICKY = resolve(["cooperative-sticky"])


def member(world: World, **changes: object) -> ClassicMember:
    return ClassicMember(
        settings(**changes), world.link, world.handover, world.view, world.host, world.random
    )


def assignment(text: str) -> bytes:
    found: dict[str, list[int]] = {}
    for each in sorted(partitions(text)):
        found.setdefault(each.topic, []).append(each.partition)
    return encode_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in found.items()
            ]
        ),
        3,
    )


def let_in(
    world: World, generation: int = 1, *, me: str = "m", leader: str = "other", name: str = "range"
) -> None:
    """Answer JoinGroup: we are in."""
    world.link.answer(
        JoinGroupResponse(generation_id=generation, protocol_name=name, leader=leader, member_id=me)
    )


def let_lead(
    world: World, generation: int = 1, *, name: str = "range", skips: bool = False
) -> None:
    """Answer JoinGroup: we lead, and are alone."""
    asked = world.link.request(JoinGroupRequest)
    (chosen,) = (each for each in asked.protocols if each.name == name)
    world.link.answer(
        JoinGroupResponse(
            generation_id=generation,
            protocol_name=name,
            leader="m",
            member_id="m",
            skip_assignment=skips,
            members=[JoinGroupResponseMember(member_id="m", metadata=chosen.metadata)],
        )
    )


def give(world: World, text: str) -> None:
    """Answer SyncGroup."""
    world.link.answer(SyncGroupResponse(assignment=assignment(text)))


def joined(world: World, owned: str = "t-0 t-1", **changes: object) -> ClassicMember:
    """A member in generation 1."""
    found = member(world, **changes)
    found.subscribe(to("t"), 0)
    found.poll(0)
    cooperative = "assignors" in changes
    let_in(world, name="cooperative-sticky" if cooperative else "range")
    give(world, owned)
    world.acknowledge()
    return found


def beat(world: World, code: int = 0) -> None:
    """The answer to a heartbeat of the standing order."""
    world.link.order.on_response(HeartbeatResponse(error_code=code), 5_000)


# Getting in.


def test_a_new_member_asks_for_an_id_joins_and_gets_its_partitions() -> None:
    world = World(t=2)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)

    consumer.poll(0)
    first = world.link.request(JoinGroupRequest)
    world.link.answer(JoinGroupResponse(error_code=MemberIdRequired.code, member_id="m"))
    second = world.link.request(JoinGroupRequest)
    let_in(world)
    sync = world.link.request(SyncGroupRequest)
    give(world, "t-0 t-1")

    assert (first.member_id, second.member_id) == ("", "m")
    assert [each.name for each in first.protocols] == ["range", "cooperative-sticky"]
    assert (sync.generation_id, sync.member_id, sync.assignments) == (1, "m", [])
    assert world.acknowledge() == Assigned(partitions("t-0 t-1"))
    assert names(consumer.owned) == "t-0 t-1"
    assert world.host.identity == ConsumerGroupMetadata(GROUP, 1, "m")
    assert consumer.is_member


def test_join_and_sync_wait_for_as_long_as_the_group_may_take() -> None:
    world = World(t=2)
    consumer = member(world, max_poll_interval_ms=300_000)
    consumer.subscribe(to("t"), 0)

    consumer.poll(0)
    assert world.link.sent[0].timeout_ms == 305_000
    let_in(world)
    assert world.link.sent[0].timeout_ms == 305_000


def test_the_leader_assigns_with_the_assignor_that_was_agreed_on() -> None:
    world = World(t=3)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)

    consumer.poll(0)
    let_lead(world)
    sync = world.link.request(SyncGroupRequest)

    (mine,) = sync.assignments
    given = decode_assignment(mine.assignment).assigned_partitions
    assert [(each.topic, each.partitions) for each in given] == [("t", [0, 1, 2])]
    assert sync.protocol_name == "range"


def test_the_leader_waits_until_it_knows_the_topics_of_all_members() -> None:
    world = World()
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    let_lead(world)
    consumer.poll(1)
    assert world.link.sent == []
    world.metadata.change(t=1)
    consumer.poll(2)

    assert len(world.link.request(SyncGroupRequest).assignments) == 1
    assert world.metadata.wanted == {"t"}


def test_a_static_leader_that_came_back_assigns_nothing_if_it_is_told_to_skip_it() -> None:
    world = World(t=1)
    consumer = member(world, group_instance_id="one")
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    let_lead(world, skips=True)

    sync = world.link.request(SyncGroupRequest)
    assert (sync.assignments, sync.group_instance_id) == ([], "one")


def test_static_membership_is_refused_with_a_broker_that_is_too_old() -> None:
    world = World(t=1)
    consumer = member(world, group_instance_id="one")
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    with pytest.raises(UnsupportedVersion, match=r"Kafka 2\.3"):
        world.link.request(JoinGroupRequest, version=4)


@pytest.mark.parametrize("version", range(10))
def test_join_group_can_be_sent_in_every_version(version: int) -> None:
    world = World(t=1)
    consumer = member(world)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    asked = world.link.request(JoinGroupRequest, version)

    said = decode_subscription(asked.protocols[0].metadata)
    assert (said.topics, said.generation_id, said.owned_partitions) == (["t"], -1, [])


class _BrokenAssignor:
    name = "range"
    is_cooperative = False

    def user_data(self, previous: object) -> bytes | None:
        return None

    def assign(
        self, members: Mapping[str, GroupMember], topics: GroupTopics
    ) -> dict[str, list[object]]:
        raise KeyError("t")


def test_an_assignor_that_raises_ends_the_membership_with_its_error() -> None:
    world = World(t=1)
    consumer = member(world, assignors=(_BrokenAssignor(),))
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)

    let_lead(world)

    (error,) = world.host.errors
    assert isinstance(error, ClientError)
    assert "assignor 'range' failed: KeyError('t')" in str(error)
    assert isinstance(error.__cause__, KeyError)


# Patterns.


def test_a_pattern_joins_when_it_is_known_which_topics_match_and_again_when_others_do() -> None:
    world = World()
    consumer = member(world)
    consumer.subscribe(Subscription(regex="t.*"), 0)

    consumer.poll(0)
    assert world.link.sent == []
    assert world.metadata.wants_all

    world.metadata.change(t1=1, other=1, __t=1)
    consumer.poll(1)
    said = decode_subscription(world.link.request(JoinGroupRequest).protocols[0].metadata)
    assert said.topics == ["t1"]

    let_in(world)
    give(world, "t1-0")
    world.acknowledge()
    world.metadata.change(t1=1, t2=1)
    consumer.poll(2)
    assert world.acknowledge() == Revoked(partitions("t1-0"), commits_first=True)
    again = world.link.request(JoinGroupRequest)
    assert decode_subscription(again.protocols[0].metadata).topics == ["t1", "t2"]
    assert again.reason == "other topics match the subscription"


def test_the_leader_has_the_group_rebalance_when_a_topic_grows() -> None:
    world = World(t=1)
    consumer = member(world, assignors=STICKY)
    consumer.subscribe(to("t"), 0)
    consumer.poll(0)
    let_lead(world, name="cooperative-sticky")
    give(world, "t-0")
    world.acknowledge()

    consumer.poll(1)
    assert world.link.sent == []
    world.metadata.change(t=2)
    consumer.poll(2)

    asked = world.link.request(JoinGroupRequest)
    assert asked.reason == "the group's topics have changed"
    said = decode_subscription(asked.protocols[0].metadata)
    assert [(each.topic, each.partitions) for each in said.owned_partitions] == [("t", [0])]
    assert said.generation_id == 1


def test_a_follower_does_not_watch_the_topics() -> None:
    world = World(t=1)
    consumer = joined(world, "t-0")

    world.metadata.change(t=2)
    consumer.poll(2)

    assert world.link.sent == []


# Rebalances.


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
    consumer = joined(world, assignors=STICKY)

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
    consumer = member(world, assignors=STICKY)
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
    consumer = joined(world, assignors=STICKY)
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


# Trouble.


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
    consumer = joined(world, "t-0 t-1", assignors=STICKY)
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


def test_leaving_twice_or_without_a_coordinator_does_not_wait() -> None:
    world = World(t=2)
    consumer = joined(world)
    done: list[bool] = []
    world.link.ready = False

    consumer.leave(1, lambda: done.append(True), keeps_slot=True)
    world.acknowledge()
    consumer.leave(1, lambda: done.append(True), keeps_slot=True)

    assert done == [True, True]


def test_a_member_whose_user_does_not_poll_goes_and_comes_back_as_a_new_one() -> None:
    world = World(t=2)
    consumer = joined(world)
    reason = PollIntervalExceeded("too slow")

    consumer.desert(reason, 1)

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
    assert settings(assignors=STICKY).is_cooperative
    assert not settings(assignors=(ASSIGNORS["range"],)).is_cooperative
