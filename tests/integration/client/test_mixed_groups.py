"""Groups in which our members and those of other clients understand each other."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.membership.assignors import resolve
from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.members import Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.integration

PARTITIONS = 5


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"group.min.session.timeout.ms": "500"}
    with EmbeddedBroker(settings, in_memory=True) as running:
        running.create_topic("t", partitions=PARTITIONS)
        yield running


class Poller:
    """Polls a foreign consumer on a thread, as its user would, and tells what it owns."""

    def __init__(self, poll: Callable[[], set[int]], close: Callable[[], None]) -> None:
        self._poll = poll
        self._close = close
        self._changed = threading.Condition()
        self._is_done = False
        self.owned: set[int] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_done:
            owned = self._poll()
            with self._changed:
                if owned != self.owned:
                    self.owned = owned
                    self._changed.notify_all()
        self._close()

    def wait_for(self, *counts: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.owned) in counts, 30), self.owned

    def stop(self) -> None:
        self._is_done = True
        self._thread.join(30)


def librdkafka(broker: EmbeddedBroker, group_id: str, assignor: str) -> Poller:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group_id,
            "partition.assignment.strategy": assignor,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(["t"])

    def poll() -> set[int]:
        consumer.poll(0.05)
        return {each.partition for each in consumer.assignment()}

    return Poller(poll, consumer.close)


def kafka_python(broker: EmbeddedBroker, group_id: str, assignor: str) -> Poller:
    kafka = pytest.importorskip("kafka")
    sticky = pytest.importorskip("kafka.coordinator.assignors.sticky.sticky_assignor")
    roundrobin = pytest.importorskip("kafka.coordinator.assignors.roundrobin")
    by_name = {
        "sticky": sticky.StickyPartitionAssignor,
        "roundrobin": roundrobin.RoundRobinPartitionAssignor,
    }
    consumer = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group_id,
        partition_assignment_strategy=[by_name[assignor]],
        heartbeat_interval_ms=100,
        session_timeout_ms=6000,
    )
    # A leader that has no metadata yet assigns nothing, and does not look again for minutes.
    while not consumer.partitions_for_topic("t"):
        pass

    def poll() -> set[int]:
        consumer.poll(timeout_ms=50)
        return {each.partition for each in consumer.assignment()}

    return Poller(poll, consumer.close)


def cases() -> Iterator[object]:
    for foreign, assignor in (
        (librdkafka, "range"),
        (librdkafka, "roundrobin"),
        (librdkafka, "cooperative-sticky"),
        (kafka_python, "roundrobin"),
        (kafka_python, "sticky"),
    ):
        yield pytest.param(foreign, assignor, True, id=f"{foreign.__name__}-{assignor}-joins-us")
        # kafka-python's sticky leader assigns before it has metadata, and then does not look again.
        if (foreign, assignor) != (kafka_python, "sticky"):
            yield pytest.param(
                foreign, assignor, False, id=f"we-join-{foreign.__name__}-{assignor}"
            )


@pytest.mark.parametrize(("foreign", "assignor", "we_lead"), list(cases()))
def test_members_of_other_clients_share_a_topic_with_ours(
    broker: EmbeddedBroker,
    foreign: Callable[[EmbeddedBroker, str, str], Poller],
    assignor: str,
    we_lead: bool,
) -> None:
    group_id = f"{foreign.__name__}-{assignor}-{we_lead}"
    with Member(
        broker.bootstrap_servers,
        group_id,
        group_protocol="classic",
        partition_assignment_strategy=resolve([assignor]),
        heartbeat_interval_ms=100,
    ) as ours:
        if we_lead:
            ours.subscribe("t")
            ours.wait_for(PARTITIONS)
        theirs = foreign(broker, group_id, assignor)
        try:
            if not we_lead:
                theirs.wait_for(PARTITIONS)
                ours.subscribe("t")
            theirs.wait_for(2, 3)
            ours.wait_until(lambda member: len(member.owned) in (2, 3))
            together = {each.partition for each in ours.owned} | theirs.owned
            assert together == set(range(PARTITIONS))
        finally:
            theirs.stop()
        ours.wait_for(PARTITIONS)
