"""Clients at work while a cluster is disturbed, each with a verdict on what came of it.

A `Workload` runs in a thread of its own until it is told to finish. What producers have written is
read by librdkafka, so that a fault of our consumer cannot hide one of our producer.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ForeignPartition

from millstream import (
    AsyncProducer,
    Consumer,
    OffsetAndMetadata,
    Producer,
    ShareConsumer,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream import ConsumerRecord, Delivery
    from tests.interop.cluster.kafka_cluster import KafkaCluster

PARTITIONS = 3
FINISH_SECONDS_MAX = 90.0
ROUND = 30
"""How many records are sent at a time; a multiple of the partitions."""
PAUSE_SECONDS = 0.05
POLL_SECONDS = 0.5
QUICK: Mapping[str, Any] = {"request_timeout": 5.0}
"""A broker that hangs is given up while the test looks on."""


def written(cluster: KafkaCluster, topic: str, *, is_committed: bool = False) -> list[list[bytes]]:
    """The values of each partition, as librdkafka reads them."""
    consumer = ForeignConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "written",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
            "log_level": 0,
        }
    )
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    left = set(range(PARTITIONS))
    try:
        consumer.assign([ForeignPartition(topic, each, 0) for each in left])
        while left:
            message = consumer.poll(FINISH_SECONDS_MAX)
            assert message is not None, f"{topic} does not come to its end"
            error, partition = message.error(), message.partition()
            assert partition is not None
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                found[partition].append(value)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(partition)
    finally:
        consumer.close()
    return found


def dealt(count: int) -> list[list[bytes]]:
    """The numbers below `count` as the producers deal them to the partitions."""
    return [[b"%d" % each for each in range(first, count, PARTITIONS)] for first in range(3)]


class Workload(ABC):
    """A client at work in a thread."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.done = 0
        """How many records are through; it grows while all is well."""
        self.is_finishing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Bring it to its end."""
        self.is_finishing.set()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(FINISH_SECONDS_MAX)

    def check(self) -> None:
        """Nothing has failed, and everything is as it should be."""
        assert not self._thread.is_alive(), f"it does not end; {self.done} records are through"
        if self._error is not None:
            raise self._error
        assert self.done
        self.verify()

    @property
    def has_failed(self) -> bool:
        """Whether it came to an early end."""
        return self._error is not None

    @abstractmethod
    def work(self) -> None:
        """Until `is_finishing`."""

    @abstractmethod
    def verify(self) -> None:
        """Whether the records are right."""

    def _guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self._error = error


class Sending(Workload):
    """Sends numbers in turn to all partitions; every one is to be there once, in order."""

    def __init__(self, cluster: KafkaCluster, topic: str, **settings: Any) -> None:
        super().__init__(cluster, topic)
        self.settings = {**QUICK, **settings}
        self.sent = 0

    def work(self) -> None:
        with Producer(self.cluster.bootstrap, **self.settings) as producer:
            while not self.is_finishing.wait(PAUSE_SECONDS):
                deliveries = self.send_round(producer)
                for number, delivery in enumerate(deliveries, self.sent - ROUND):
                    self.expect(number, delivery.result(FINISH_SECONDS_MAX).offset)

    def send_round(self, producer: Producer) -> list[Delivery]:
        """Some more records."""
        numbers = range(self.sent, self.sent + ROUND)
        self.sent += ROUND
        return [
            producer.send(self.topic, b"%d" % each, partition=each % PARTITIONS) for each in numbers
        ]

    def expect(self, number: int, offset: int) -> None:
        """A record was acknowledged."""
        # A duplicate that the broker recognises late has no offset to tell.
        assert offset in (number // PARTITIONS, -1)
        self.done += 1

    def verify(self) -> None:
        assert self.done == self.sent
        assert written(self.cluster, self.topic) == dealt(self.sent)


class SendingAhead(Sending):
    """The same without waiting in between: several batches are on the way at any time."""

    def work(self) -> None:
        with Producer(self.cluster.bootstrap, **self.settings) as producer:
            deliveries: list[Delivery] = []
            while not self.is_finishing.wait(PAUSE_SECONDS):
                deliveries += self.send_round(producer)
                self.done += ROUND
            producer.flush(FINISH_SECONDS_MAX)
            self.done = 0
            for number, delivery in enumerate(deliveries):
                self.expect(number, delivery.result(0).offset)


class SendingTables(Sending):
    """The same by `send_batch`."""

    def work(self) -> None:
        with Producer(self.cluster.bootstrap, **self.settings) as producer:
            while not self.is_finishing.wait(PAUSE_SECONDS):
                numbers = range(self.sent, self.sent + ROUND)
                table = pa.table(
                    {
                        "value": [b"%d" % each for each in numbers],
                        "partition": pa.array([each % 3 for each in numbers], pa.int32()),
                    }
                )
                self.sent += ROUND
                producer.send_batch(self.topic, table).result(FINISH_SECONDS_MAX)
                self.done += ROUND


class SendingAsync(Sending):
    """The same by `AsyncProducer`."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with AsyncProducer(self.cluster.bootstrap, **self.settings) as producer:
            while not self.is_finishing.is_set():
                await asyncio.sleep(PAUSE_SECONDS)
                first, self.sent = self.sent, self.sent + ROUND
                deliveries = [
                    await producer.send(self.topic, b"%d" % each, partition=each % PARTITIONS)
                    for each in range(first, self.sent)
                ]
                for number, delivery in enumerate(deliveries, first):
                    self.expect(number, (await delivery).offset)


class Transacting(Sending):
    """Sends numbers in transactions; every third is aborted and sent again by the next."""

    def work(self) -> None:
        name = f"id-{self.topic}"
        with Producer(self.cluster.bootstrap, transactional_id=name, **self.settings) as producer:
            turn = 0
            while not self.is_finishing.wait(PAUSE_SECONDS):
                turn += 1
                producer.begin_transaction()
                first = self.sent
                self.send_round(producer)
                if turn % 3 == 0:
                    self.sent = first
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    self.done += ROUND

    def verify(self) -> None:
        assert self.done == self.sent
        assert written(self.cluster, self.topic, is_committed=True) == dealt(self.sent)


class Reading(Workload):
    """A member of a group that reads numbers and commits; each is to come once, in order."""

    def __init__(self, cluster: KafkaCluster, topic: str, group: str, **settings: Any) -> None:
        super().__init__(cluster, topic)
        self.group = group
        self.settings = {
            **QUICK,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **settings,
        }
        self.seen: dict[int, list[bytes]] = defaultdict(list)
        self.source: Callable[[], int] = lambda: 0
        """How many numbers there are to read in the end."""

    @property
    def is_through(self) -> bool:
        """Whether it is to end and has read everything."""
        return self.is_finishing.is_set() and self.done >= self.source()

    def work(self) -> None:
        with Consumer(self.cluster.bootstrap, self.topic, **self.settings) as consumer:
            while not self.is_through:
                records = consumer.poll(POLL_SECONDS)
                self.note(records)
                if records:
                    consumer.commit()

    def note(self, records: list[ConsumerRecord]) -> None:
        """Remember what came."""
        for each in records:
            self.seen[each.partition].append(each.value or b"")
        self.done += len(records)

    def verify(self) -> None:
        expected = dealt(self.source())
        assert [self.seen[each] for each in range(PARTITIONS)] == expected
        partitions = [TopicPartition(self.topic, each) for each in range(PARTITIONS)]
        with Consumer(self.cluster.bootstrap, group_id=self.group) as consumer:
            committed = consumer.committed(partitions)
        assert {each.partition: _offset(found) for each, found in committed.items()} == {
            each: len(numbers) for each, numbers in enumerate(expected)
        }


class Copying(Reading):
    """Reads numbers and writes them elsewhere in transactions that have its offsets."""

    def __init__(self, cluster: KafkaCluster, topic: str, copy: str, **settings: Any) -> None:
        super().__init__(cluster, topic, f"group-{copy}", **settings)
        self.copy = copy

    def work(self) -> None:
        name = f"id-{self.copy}"
        with (
            Consumer(self.cluster.bootstrap, self.topic, **self.settings) as consumer,
            Producer(self.cluster.bootstrap, transactional_id=name, **QUICK) as producer,
        ):
            while not self.is_through:
                records = consumer.poll(POLL_SECONDS)
                if not records:
                    continue
                with producer.transaction():
                    for each in records:
                        producer.send(self.copy, each.value, partition=each.partition)
                    producer.send_offsets_to_transaction(
                        {
                            TopicPartition(each.topic, each.partition): OffsetAndMetadata(
                                each.offset + 1
                            )
                            for each in records
                        },
                        consumer.group_metadata(),
                    )
                self.note(records)

    def verify(self) -> None:
        super().verify()
        assert written(self.cluster, self.copy, is_committed=True) == dealt(self.source())


class Sharing(Reading):
    """A member of a share group; each number is to come, perhaps more than once."""

    def work(self) -> None:
        missing = -1
        with ShareConsumer(self.cluster.bootstrap, self.topic, group_id=self.group) as consumer:
            while not (self.is_finishing.is_set() and missing == 0):
                records = consumer.poll(POLL_SECONDS)
                for each in records:
                    self.seen[each.partition].append(each.value or b"")
                self.done += len(records)
                missing = self.source() - sum(len(set(each)) for each in self.seen.values())

    def verify(self) -> None:
        expected = dealt(self.source())
        for partition in range(PARTITIONS):
            assert sorted(set(self.seen[partition])) == sorted(expected[partition])


def _offset(found: OffsetAndMetadata | None) -> int:
    return -1 if found is None else found.offset
