"""The clusters that the suite runs on: ours in this process, Apache Kafka's in processes.

Tests get one as the fixture `cluster` and use nothing of it but what is here, so that they cannot
tell which it is. What an old cluster cannot do is asked for with `require`.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Producer, TopicPartition
from millstream.client.admin import NewTopic
from millstream.testing import EmbeddedBroker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CLASSIC_SESSION_SECONDS = 2.0
HEARTBEAT_SECONDS = 0.2
OLD_START_SECONDS_MAX = 90.0
# Deaths are to be noticed, rebalances and compactions to be over, while a test looks on.
QUICK = {
    "group.min.session.timeout.ms": "500",
    "log.cleaner.backoff.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
}
ONE_NODE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}

NEW = frozenset({"consumer groups", "share groups", "transaction lists", "incremental configs"})
OLD: frozenset[str] = frozenset()

_numbers = itertools.count(1)


class Cluster:
    """A cluster of one broker."""

    def __init__(self, name: str, address: str, abilities: frozenset[str]) -> None:
        self.name = name
        self.address = address
        self._abilities = abilities

    def require(self, ability: str) -> None:
        """Skip the test where the brokers are too old for it."""
        if ability not in self._abilities:
            pytest.skip(f"{self.name} is too old for {ability}")

    def new_name(self, prefix: str = "n") -> str:
        """For a topic, a group or a transactional id that no other test has."""
        return f"{prefix}-{next(_numbers)}"

    def topic(self, partitions: int = 1, *, name: str | None = None, **config: str) -> str:
        """Create a topic: `topic(3, max_message_bytes="2000")`."""
        name = name or self.new_name("topic")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        with Admin(self.address) as admin:
            admin.create_topics([NewTopic(name, partitions, 1, settings)]).raise_first()
            # The controller has created it; Apache Kafka's broker hears of it a little later.
            until(lambda: not admin.describe_topics([name]).errors)
        return name

    def filled(self, count: int, partitions: int = 1) -> str:
        """A topic with the values v0, v1, ... dealt to its partitions in turn."""
        topic = self.topic(partitions)
        self.write(topic, [b"v%d" % number for number in range(count)], partitions)
        return topic

    def timed(self) -> str:
        """A topic with the values v0 to v9, one for each of the first seconds of 1970."""
        topic = self.topic(retention_ms="-1")  # The next look for old records would delete them.
        with Producer(self.address) as producer:
            for second in range(10):
                producer.send(topic, b"v%d" % second, timestamp=1000 * second)
        return topic

    def write(self, topic: str, values: Iterable[bytes], partitions: int = 1, **more: Any) -> None:
        """Deal values to partitions in turn."""
        with Producer(self.address, **more) as producer:
            for number, value in enumerate(values):
                producer.send(topic, value, partition=number % partitions)


def at(topic: str, *partitions: int) -> Sequence[TopicPartition]:
    """Partitions of a topic, the first one if none is named."""
    return [TopicPartition(topic, each) for each in partitions or (0,)]


class Clusters:
    """Starts each cluster when it is first asked for, and stops them all."""

    def __init__(self, make_scratch: Callable[[str], Any]) -> None:
        self._make_scratch = make_scratch
        self._started: dict[str, Cluster] = {}
        self._stack = ExitStack()

    def get(self, name: str) -> Cluster:
        """A running cluster."""
        if name not in self._started:
            start = {"millstream": self._ours, "kafka": self._kafka, "kafka-2.1": self._old_kafka}
            self._started[name] = start[name]()
        return self._started[name]

    def close(self) -> None:
        """Stop what runs."""
        self._stack.close()

    def _ours(self) -> Cluster:
        broker = self._stack.enter_context(EmbeddedBroker(QUICK, in_memory=True))
        return Cluster("millstream", broker.bootstrap_servers, NEW)

    def _kafka(self) -> Cluster:
        from tests.interop.java_client import require_broker_jars
        from tests.interop.kafka_broker import KafkaBroker

        scratch = self._make_scratch("kafka")
        broker = KafkaBroker(require_broker_jars(scratch), scratch / "data", scratch)
        with broker.settings_path.open("a") as settings:
            settings.writelines(f"{key}={value}\n" for key, value in {**QUICK, **ONE_NODE}.items())
        broker.format()
        self._stack.callback(broker.stop)
        broker.start()
        return Cluster("kafka", broker.address, NEW)

    def _old_kafka(self) -> Cluster:
        from tests.interop.old_kafka import OldKafka

        scratch = self._make_scratch("old-kafka")
        broker = OldKafka(scratch)
        with (scratch / "kafka.properties").open("a") as settings:
            settings.writelines(f"{key}={value}\n" for key, value in QUICK.items())
        self._stack.callback(broker.stop)
        broker.start()
        with Admin(broker.address, default_api_timeout=OLD_START_SECONDS_MAX) as admin:
            admin.list_topics()
        return Cluster("kafka-2.1", broker.address, OLD)
