"""Topics with records in them, written by a foreign client."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

if TYPE_CHECKING:
    from millstream.testing.embedded import EmbeddedBroker

SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    # Some records are of 1970, and must outlive the next look for old ones.
    "log.retention.ms": "-1",
}
_numbers = itertools.count(1)


class Topics:
    """Makes topics with names that no other test has, and writes to them."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1})

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    def make(self, count: int = 0, *, partitions: int = 1, prefix: str = "topic") -> str:
        """A topic with records v0, v1, ... spread over its partitions."""
        name = f"{prefix}-{next(_numbers)}"
        self.broker.create_topic(name, partitions=partitions)
        self.write(name, [b"v%d" % each for each in range(count)], partitions=partitions)
        return name

    def write(self, topic: str, values: list[bytes], *, partitions: int = 1, **record: Any) -> None:
        """Write values, one partition after the other."""
        for index, value in enumerate(values):
            self._producer.produce(topic, value, partition=index % partitions, **record)
        assert self._producer.flush(30) == 0
