"""Groups: members share topics, take over from each other, and go on where the group left off."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from millstream import AsyncConsumer, Consumer, OffsetAndMetadata, RebalanceListener
from millstream.errors import (
    CommitFailed,
    InvalidArgument,
    InvalidGroupId,
    InvalidSessionTimeout,
)
from tests.behaviours.clusters import CLASSIC_SESSION_SECONDS, HEARTBEAT_SECONDS, at
from tests.behaviours.polling import PATIENCE, poll_until, read, read_async, reader, values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream import ConsumerRecord, TopicPartition
    from tests.behaviours.clusters import Cluster


@pytest.fixture(params=["classic", "consumer"])
def protocol(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """Both protocols, where the brokers have both."""
    if request.param == "consumer":
        cluster.require("consumer groups")
    return str(request.param)


def member(cluster: Cluster, *topics: str, group: str, **settings: Any) -> Consumer:
    """A member whose death would be noticed soon."""
    quick: Any = {
        "session_timeout": CLASSIC_SESSION_SECONDS,
        "heartbeat_interval": HEARTBEAT_SECONDS,
        "auto_offset_reset": "earliest",
        "group_id": group,
        **settings,
    }
    return Consumer(cluster.address, *topics, **quick)


class Diary(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("assigned", sorted(each.partition for each in partitions)))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.entries.append(("revoked", sorted(each.partition for each in partitions)))


def test_a_group_goes_on_where_it_left_off(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.filled(30, partitions=2), cluster.new_name("g")

    with member(cluster, topic, group=group, group_protocol=protocol, max_poll_records=5) as first:
        seen = read(first, 10)
        assert first.subscription() == {topic}
        assert first.group_metadata().group_id == group
    with member(cluster, topic, group=group, group_protocol=protocol) as second:
        seen += read(second, 30 - len(seen))
        second.commit()
        committed = second.committed(at(topic, 0, 1))

    assert sorted(values(seen)) == sorted(b"v%d" % number for number in range(30))
    assert [each and each.offset for each in committed.values()] == [15, 15]


def test_members_join_share_and_take_over_without_loss(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.filled(100, partitions=4), cluster.new_name("g")
    seen: list[ConsumerRecord] = []
    settings: Any = {"group": group, "group_protocol": protocol, "max_poll_records": 7}

    with member(cluster, topic, **settings) as first:
        seen += first.poll(PATIENCE)
        with member(cluster, topic, **settings) as second:
            poll_until(
                lambda: len(first.assignment()) == len(second.assignment()) == 2,
                first,
                second,
                seen=seen,
            )
            assert not first.assignment() & second.assignment()
            cluster.write(topic, [b"v%d" % number for number in range(100, 200)], 4)
            poll_until(lambda: len(seen) >= 150, first, second, seen=seen)
        poll_until(lambda: len(first.assignment()) == 4 and len(seen) == 200, first, seen=seen)

    assert sorted(values(seen)) == sorted(b"v%d" % number for number in range(200))


DYING = """
import sys
from millstream import Consumer

address, topic, group, protocol, session, heartbeat = sys.argv[1:]
consumer = Consumer(
    address, topic, group_id=group, group_protocol=protocol, auto_offset_reset="earliest",
    session_timeout=float(session), heartbeat_interval=float(heartbeat),
)
while not consumer.assignment():
    consumer.poll(0.1)
print("joined", flush=True)
while True:
    consumer.poll(1.0)
"""


def test_the_partitions_of_a_member_that_dies_go_to_the_others(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(2), cluster.new_name("g")
    arguments = (cluster.address, topic, group, protocol)
    times = (str(CLASSIC_SESSION_SECONDS), str(HEARTBEAT_SECONDS))
    with subprocess.Popen(
        [sys.executable, "-c", DYING, *arguments, *times], stdout=subprocess.PIPE
    ) as dying:
        try:
            assert dying.stdout is not None
            assert dying.stdout.readline() == b"joined\n"
            with member(cluster, topic, group=group, group_protocol=protocol) as other:
                poll_until(lambda: len(other.assignment()) == 1, other)
                dying.send_signal(signal.SIGKILL)
                poll_until(lambda: len(other.assignment()) == 2, other)
        finally:
            dying.kill()


def test_more_members_than_partitions_leave_some_idle(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.topic(1), cluster.new_name("g")
    settings: Any = {"group": group, "group_protocol": protocol}

    with member(cluster, topic, **settings) as first, member(cluster, topic, **settings) as second:
        both = (first, second)
        poll_until(lambda: sorted(len(each.assignment()) for each in both) == [0, 1], *both)
        cluster.write(topic, [b"once"])
        seen: list[ConsumerRecord] = []
        poll_until(lambda: bool(seen), *both, seen=seen)
        for each in both:
            seen += each.poll(0.2)

    assert values(seen) == [b"once"]


def test_listeners_hear_before_records_come_and_may_seek(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.filled(8, partitions=2), cluster.new_name("g")

    class Skipping(Diary):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            super().on_partitions_assigned(partitions)
            for each in partitions:
                consumer.seek(each, 3)

    diary = Skipping()
    with member(cluster, group=group, group_protocol=protocol) as consumer:
        consumer.subscribe([topic], listener=diary)
        assert [each.offset for each in read(consumer, 2)] == [3, 3]
        consumer.unsubscribe()
        assert not consumer.assignment()
        assert not consumer.subscription()

    assert diary.entries == [("assigned", [0, 1]), ("revoked", [0, 1])]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_classic_assignor_shares_fairly(cluster: Cluster, assignor: str) -> None:
    topic, group = cluster.topic(4), cluster.new_name("g")
    settings: Any = {
        "group": group,
        "group_protocol": "classic",
        "partition_assignment_strategy": [assignor],
    }
    diary = Diary()

    with member(cluster, **settings) as first, member(cluster, topic, **settings) as second:
        first.subscribe(topic, listener=diary)
        poll_until(lambda: len(first.assignment()) + len(second.assignment()) >= 4, first, second)
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
        taken = [entry for entry in diary.entries if entry[0] == "revoked" and entry[1]]
        if assignor == "cooperative-sticky":
            assert all(len(partitions) <= 2 for _, partitions in taken)


def test_patterns_find_topics_that_come_later(cluster: Cluster, protocol: str) -> None:
    prefix = cluster.new_name("pattern")
    wanted, other = cluster.topic(name=f"{prefix}-yes-1"), cluster.topic(name=f"{prefix}-no-1")
    cluster.write(wanted, [b"a"])
    cluster.write(other, [b"b"])
    patterns: list[Any] = [re.compile(rf"{prefix}-yes-\d+")]
    if protocol == "consumer" or cluster.name == "kafka-2.1":
        patterns.append(f"{prefix}-yes-.*")

    def follow(pattern: Any, number: int) -> None:
        with member(
            cluster, group=cluster.new_name("g"), group_protocol=protocol, metadata_max_age=0.3
        ) as consumer:
            consumer.subscribe(pattern=pattern)
            records = read(consumer, number - 1)
            later = cluster.topic(name=f"{prefix}-yes-{number}")
            cluster.write(later, [b"c"])
            poll_until(lambda: later in consumer.subscription(), consumer, seen=records)
            poll_until(lambda: later in {each.topic for each in records}, consumer, seen=records)
            assert other not in {each.topic for each in records}

    for number, pattern in enumerate(patterns, 2):
        follow(pattern, number)


def test_another_subscription_replaces_the_first(cluster: Cluster, protocol: str) -> None:
    first, second = cluster.filled(5), cluster.filled(3)

    with member(
        cluster, first, group=cluster.new_name("g"), group_protocol=protocol, max_poll_records=1
    ) as consumer:
        assert {each.topic for each in read(consumer, 1)} == {first}
        consumer.subscribe([second])
        assert consumer.subscription() == {second}
        records: list[ConsumerRecord] = []
        poll_until(lambda: consumer.assignment() == set(at(second)), consumer, seen=records)
        # Until then the first is still its own, and may go on.
        records = [each for each in records if each.topic == second]
        poll_until(lambda: len(records) >= 3, consumer, seen=records)

    assert {each.topic for each in records} == {second}


def test_a_pattern_for_everything_leaves_internal_topics_out(cluster: Cluster) -> None:
    topic = cluster.topic()

    with member(
        cluster, group=cluster.new_name("g"), group_protocol="classic", metadata_max_age=0.3
    ) as consumer:
        consumer.subscribe(pattern=re.compile(".*"))
        poll_until(lambda: topic in consumer.subscription(), consumer)
        assert not {each for each in consumer.subscription() if each.startswith("__")}


def test_a_static_member_comes_back_to_its_partitions(cluster: Cluster, protocol: str) -> None:
    if cluster.name == "kafka-2.1":
        cluster.require("static members")
    topic, group = cluster.topic(2), cluster.new_name("g")
    settings: Any = {"group": group, "group_protocol": protocol, "session_timeout": 10.0}

    with member(cluster, topic, group_instance_id="stays", **settings) as stays:
        with member(cluster, topic, group_instance_id="goes", **settings) as goes:
            poll_until(lambda: len(stays.assignment()) == len(goes.assignment()) == 1, stays, goes)
            had = goes.assignment()
        with member(cluster, topic, group_instance_id="goes", **settings) as back:
            poll_until(lambda: len(back.assignment()) == 1, stays, back)
            assert back.assignment() == had


def test_commits_by_hand_and_in_the_background(cluster: Cluster) -> None:
    topic, group = cluster.filled(10), cluster.new_name("g")
    (partition,) = at(topic)
    told: list[Any] = []

    with reader(cluster, topic, group_id=group, enable_auto_commit=False) as consumer:
        assert consumer.committed([partition]) == {partition: None}
        for record in consumer:
            if record.offset == 4:
                break
        consumer.commit()
        found = consumer.committed([partition])[partition]
        assert found is not None
        assert found.offset == 5
        consumer.commit({partition: OffsetAndMetadata(7, "note")})
        assert consumer.committed([partition])[partition] == OffsetAndMetadata(7, "note")
        consumer.commit_async({partition: 8}, on_done=lambda *each: told.append(each))
        poll_until(lambda: bool(told), consumer)
        assert told == [({partition: OffsetAndMetadata(8)}, None)]
        with pytest.raises(InvalidArgument):
            consumer.commit({partition: -3})
    with reader(cluster, topic, group_id=group) as consumer:
        assert consumer.poll(PATIENCE)[0].offset == 8


def test_automatic_commits_come_in_time_and_at_the_end(cluster: Cluster) -> None:
    topic, group = cluster.filled(10), cluster.new_name("g")
    (partition,) = at(topic)

    def committed() -> int | None:
        found = watcher.committed([partition])[partition]
        return None if found is None else found.offset

    with Consumer(cluster.address, group_id=group) as watcher:
        with member(
            cluster, topic, group=group, auto_commit_interval=0.1, max_poll_records=6
        ) as consumer:
            assert len(read(consumer, 6)) == 6
            poll_until(lambda: committed() is not None, consumer)
        assert committed() == 10
        with member(cluster, topic, group=group, enable_auto_commit=False) as consumer:
            cluster.write(topic, [b"more"])
            read(consumer, 1)
        assert committed() == 10


def test_who_works_too_long_is_told_when_it_commits(cluster: Cluster, protocol: str) -> None:
    topic, group = cluster.filled(2), cluster.new_name("g")
    settings: Any = {"group": group, "group_protocol": protocol, "enable_auto_commit": False}

    with member(cluster, topic, max_poll_interval=1.0, **settings) as slow:
        read(slow, 2)
        with member(cluster, topic, **settings) as other:
            seen: list[ConsumerRecord] = []
            poll_until(lambda: len(seen) == 2, other, seen=seen)
            with pytest.raises(CommitFailed):
                slow.commit()


def test_without_a_group_there_is_nothing_to_join_or_commit_to(cluster: Cluster) -> None:
    topic = cluster.filled(1)

    with reader(cluster, topic) as consumer:
        read(consumer, 1)
        with pytest.raises(InvalidGroupId):
            consumer.commit()
    with pytest.raises(InvalidGroupId):
        Consumer(cluster.address, topic)


def test_a_session_timeout_that_the_broker_refuses_is_raised_by_poll(cluster: Cluster) -> None:
    topic = cluster.topic()

    with (
        member(
            cluster,
            topic,
            group=cluster.new_name("g"),
            group_protocol="classic",
            session_timeout=0.2,
            heartbeat_interval=0.05,
        ) as consumer,
        pytest.raises(InvalidSessionTimeout),
    ):
        consumer.poll(PATIENCE)


def test_the_best_protocol_that_the_brokers_have_is_chosen(cluster: Cluster) -> None:
    from millstream import Admin

    topic, group = cluster.filled(1), cluster.new_name("g")
    with member(cluster, topic, group=group) as consumer, Admin(cluster.address) as admin:
        read(consumer, 1)
        expected = "classic" if cluster.name == "kafka-2.1" else "consumer"
        assert admin.describe_group(group).type == expected


def test_the_asyncio_client_shares_a_group_with_the_blocking_one(
    cluster: Cluster, protocol: Any
) -> None:
    topic, group = cluster.filled(20, partitions=2), cluster.new_name("g")
    heard: list[str] = []

    class Listener:
        async def on_partitions_assigned(self, partitions: object) -> None:
            await asyncio.sleep(0)
            heard.append("assigned")

    async def main() -> None:
        async with AsyncConsumer(
            cluster.address,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            heartbeat_interval=HEARTBEAT_SECONDS,
        ) as consumer:
            consumer.subscribe([topic], listener=Listener())
            records = await read_async(consumer, 20)
            assert sorted(values(records)) == sorted(b"v%d" % number for number in range(20))
            await consumer.commit()
            blocking = member(cluster, topic, group=group, group_protocol=protocol)
            try:
                for _ in range(500):
                    await consumer.poll(0.02)
                    await asyncio.to_thread(blocking.poll, 0.02)
                    if len(consumer.assignment()) == len(blocking.assignment()) == 1:
                        break
                assert len(consumer.assignment()) == len(blocking.assignment()) == 1
            finally:
                await asyncio.to_thread(blocking.close)

    asyncio.run(asyncio.wait_for(main(), 90))

    assert "assigned" in heard
