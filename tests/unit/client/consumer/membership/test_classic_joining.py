"""How a member of a classic group gets in, and what its leader does, request by request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.membership.events import Assigned, Revoked
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    ClientError,
    MemberIdRequired,
    UnsupportedVersion,
)
from millstream.protocol.messages import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
)
from millstream.protocol.records_framing import (
    decode_assignment,
    decode_subscription,
)
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    World,
    names,
    partitions,
    to,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.consumer.membership.assignors import GroupMember, GroupTopics
from tests.unit.client.consumer.membership.classic_world import (
    STICKY,
    give,
    joined,
    let_in,
    let_lead,
    member,
)


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
    consumer = member(world, partition_assignment_strategy=(_BrokenAssignor(),))
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
    consumer = member(world, partition_assignment_strategy=STICKY)
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
