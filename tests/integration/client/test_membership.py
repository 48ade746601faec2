"""Membership with a real broker: both protocols, restarts, slow users, and foreign members."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from millstream import Admin
from millstream.client.consumer.membership.assignors import resolve
from millstream.client.consumer.membership.classic import ClassicMember
from millstream.client.consumer.membership.consumer_protocol import ConsumerMember
from millstream.client.consumer.membership.events import Lost
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import CommitFailed, PollIntervalExceeded
from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.members import Member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.types import TopicPartition

pytestmark = pytest.mark.integration

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
}
PROTOCOLS = ("classic", "consumer")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(SETTINGS, in_memory=True) as running:
        yield running


class Group:
    """Members of one group that live as long as the test."""

    def __init__(self, broker: EmbeddedBroker, name: str, stack: ExitStack) -> None:
        self._broker = broker
        self._name = name
        self._stack = stack

    def member(self, *topics: str, **changes: object) -> Member:
        changes = {"heartbeat_interval_ms": 100, **changes}
        found = Member(self._broker.bootstrap_servers, self._name, **changes)
        self._stack.callback(found.close)
        if topics:
            found.subscribe(*topics)
        return found


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    broker.create_topic(name, partitions=4)
    return name


@pytest.fixture
def group(broker: EmbeddedBroker, topic: str) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(broker, f"group-{topic}", stack)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_a_topic_and_take_over_from_who_leaves(
    group: Group, topic: str, protocol: str
) -> None:
    first = group.member(topic, group_protocol=protocol)
    first.wait_for(4)
    second = group.member(topic, group_protocol=protocol)

    second.wait_for(2)
    first.wait_for(2)
    assert not first.owned & second.owned
    second.leave()
    first.wait_for(4)


def test_cooperating_members_keep_what_they_have_during_a_rebalance(
    group: Group, topic: str
) -> None:
    sticky = resolve(["cooperative-sticky"])
    first = group.member(topic, group_protocol="classic", partition_assignment_strategy=sticky)
    first.wait_for(4)
    second = group.member(topic, group_protocol="classic", partition_assignment_strategy=sticky)

    second.wait_for(2)

    revoked = [each.partitions for each in first.events if type(each).__name__ == "Revoked"]
    assert [len(each) for each in revoked] == [2]
    assert not first.owned & second.owned


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_eager_assignors_share_evenly(group: Group, topic: str, assignor: str) -> None:
    assignors = resolve([assignor])
    members = [
        group.member(topic, group_protocol="classic", partition_assignment_strategy=assignors)
        for _ in "ab"
    ]

    for each in members:
        each.wait_for(2)

    assert not members[0].owned & members[1].owned


def test_the_consumer_protocol_is_chosen_where_it_is_offered(group: Group, topic: str) -> None:
    member = group.member(topic)

    member.wait_for(4)

    assert isinstance(member.membership._machine, ConsumerMember)


def test_the_classic_protocol_is_chosen_where_the_other_is_switched_off(
    broker: EmbeddedBroker, group: Group, topic: str
) -> None:
    broker.faults.fail("ConsumerGroupHeartbeat", "UNSUPPORTED_VERSION")

    member = group.member(topic)
    member.wait_for(4)

    assert isinstance(member.membership._machine, ClassicMember)


def test_the_classic_protocol_is_chosen_where_a_group_may_not_change() -> None:
    settings = {**SETTINGS, "group.consumer.migration.policy": "disabled"}
    with EmbeddedBroker(settings, in_memory=True) as broker:
        broker.create_topic("t", partitions=2)
        address = broker.bootstrap_servers
        with (
            Member(address, "g", group_protocol="classic", heartbeat_interval_ms=100) as first,
            Member(address, "g", heartbeat_interval_ms=100) as second,
        ):
            first.subscribe("t")
            first.wait_for(2)
            second.subscribe("t")
            second.wait_for(1)
            first.wait_for(1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_follows_topics_that_come_later(
    broker: EmbeddedBroker, group: Group, topic: str, protocol: str
) -> None:
    member = group.member(group_protocol=protocol)
    member.subscribe(regex=f"{topic}.*")
    member.wait_for(4)

    broker.create_topic(f"{topic}-more", partitions=2)
    member.refresh_metadata()

    if protocol == "classic":  # The broker looks for new matches rarely, by the facts' section 6.9.
        member.wait_for(6)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_made_later_is_read_when_it_is_there(
    broker: EmbeddedBroker, group: Group, topic: str, protocol: str
) -> None:
    member = group.member(topic, f"{topic}-later", group_protocol=protocol)
    member.wait_for(4)

    broker.create_topic(f"{topic}-later", partitions=2)

    member.wait_for(6)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_that_are_added_are_read(
    broker: EmbeddedBroker, group: Group, topic: str, protocol: str
) -> None:
    member = group.member(topic, group_protocol=protocol)
    member.wait_for(4)

    with Admin(broker.bootstrap_servers) as admin:
        admin.create_partitions({topic: 6})
    member.refresh_metadata()

    member.wait_for(6)


def first_of(member: Member) -> TopicPartition:
    return min(member.owned)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_are_committed_and_found_again(group: Group, topic: str, protocol: str) -> None:
    member = group.member(topic, group_protocol=protocol)
    member.wait_for(4)
    partition = first_of(member)

    member.commit({partition: OffsetAndMetadata(7, "why", 0)})

    found = member.committed(member.owned)
    assert found[partition] == OffsetAndMetadata(7, "why", 0)
    assert [found[each] for each in sorted(member.owned)[1:]] == [None] * 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_member_does_not_own_it_cannot_commit(
    group: Group, topic: str, protocol: str
) -> None:
    first = group.member(topic, group_protocol=protocol)
    second = group.member(topic, group_protocol=protocol)
    first.wait_for(2)
    second.wait_for(2)

    with pytest.raises(CommitFailed, match="given it to another member"):
        first.commit({first_of(second): OffsetAndMetadata(1)})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_its_partitions(
    group: Group, topic: str, protocol: str
) -> None:
    stays = group.member(topic, group_protocol=protocol, group_instance_id="a")
    goes = group.member(topic, group_protocol=protocol, group_instance_id="b")
    stays.wait_for(2)
    goes.wait_for(2)
    had, told = goes.owned, len(stays.events)
    goes.close()

    back = group.member(topic, group_protocol=protocol, group_instance_id="b")
    back.wait_for(2)

    assert back.owned == had
    assert len(stays.events) == told


def commit_again_and_again(member: Member, partition: TopicPartition) -> None:
    for offset in itertools.count():
        member.commit({partition: OffsetAndMetadata(offset)})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_whose_user_does_not_poll_leaves_and_comes_back(
    group: Group, topic: str, protocol: str
) -> None:
    slow = group.member(topic, group_protocol=protocol, max_poll_interval_ms=1_000)
    slow.wait_for(4)
    partition = first_of(slow)

    slow.stop_polling()
    with pytest.raises(CommitFailed, match=r"poll\(\) was not called in time|Poll more often"):
        commit_again_and_again(slow, partition)
    other = group.member(topic, group_protocol=protocol)
    other.wait_for(4)
    slow.poll()

    slow.wait_until(lambda member: any(isinstance(each, Lost) for each in member.events))
    lost = next(each for each in slow.events if isinstance(each, Lost))
    assert isinstance(lost.reason, PollIntervalExceeded)
    slow.wait_for(2)
    other.wait_for(2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_consumed_is_committed_when_the_user_polls_again(
    group: Group, topic: str, protocol: str
) -> None:
    member = group.member(topic, group_protocol=protocol, auto_commit_interval_ms=0)
    member.wait_for(4)
    partition = first_of(member)

    member.poll({partition: OffsetAndMetadata(3)})
    member.commit({partition: OffsetAndMetadata(3)})  # Commits are done in order: it waits.

    assert member.committed(frozenset({partition})) == {partition: OffsetAndMetadata(3)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_survive_the_restart_of_their_coordinator(protocol: str) -> None:
    with EmbeddedBroker(SETTINGS) as broker:
        broker.create_topic("t", partitions=2)
        with Member(
            broker.bootstrap_servers, "g", group_protocol=protocol, heartbeat_interval_ms=100
        ) as member:
            member.subscribe("t")
            member.wait_for(2)
            told = len(member.events)

            broker.restart()
            member.commit({first_of(member): OffsetAndMetadata(9)})

            assert len(member.events) == told
            assert len(member.owned) == 2


def test_connections_that_break_cost_no_partition(
    broker: EmbeddedBroker, group: Group, topic: str
) -> None:
    member = group.member(topic)
    member.wait_for(4)
    told = len(member.events)

    for _ in range(3):
        broker.disconnect_clients()
        member.commit({first_of(member): OffsetAndMetadata(1)})

    assert len(member.events) == told
