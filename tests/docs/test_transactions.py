"""docs/topics/transactions.md: a test for every numbered sentence, with librdkafka."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.clock import SystemClock
from millstream.testing import EmbeddedBroker

confluent_kafka: Any = pytest.importorskip("confluent_kafka", reason="a client used only in tests")

KafkaException = confluent_kafka.KafkaException
TopicPartition = confluent_kafka.TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "topics" / "transactions.md"
_numbers = count()


class World:
    """A broker with two topics, and the clients of one test."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        number = next(_numbers)
        self.first, self.second = f"first-{number}", f"second-{number}"
        self.transactional_id, self.group = f"transaction-{number}", f"group-{number}"
        for topic in (self.first, self.second):
            broker.create_topic(topic, partitions=2)

    def producer(self, **settings: Any) -> Any:
        """A producer that may write."""
        made = self.uninitialized(**settings)
        made.init_transactions(30)
        return made

    def uninitialized(self, **settings: Any) -> Any:
        names = {key.replace("_", "."): value for key, value in settings.items()}
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "transactional.id": self.transactional_id,
                **names,
            }
        )

    def plain(self, value: bytes, topic: str | None = None) -> None:
        """A record outside of any transaction."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        producer.produce(topic or self.first, value, partition=0)
        assert producer.flush(30) == 0

    def read(
        self, topic: str, isolation: str = "read_committed", partition: int = 0
    ) -> list[bytes]:
        """All records that a reader sees now."""
        return [message.value() for message in self.messages(topic, isolation, partition)]

    def messages(self, topic: str, isolation: str, partition: int = 0) -> list[Any]:
        consumer = self.consumer(isolation)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Any] = []
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + 30_000
        try:
            while clock.monotonic_ms() < deadline_ms:
                for message in consumer.consume(100, timeout=0.2):
                    if message.error() is None:
                        found.append(message)
                    else:
                        assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                        return found
        finally:
            consumer.close()
        raise AssertionError("the end was not reached")

    def consumer(self, isolation: str = "read_committed", **settings: Any) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": self.group,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                **settings,
            }
        )

    def committed_offset(self) -> int:
        consumer = self.consumer()
        try:
            (found,) = consumer.committed([TopicPartition(self.first, 0)], timeout=30)
            offset: int = found.offset
            return offset
        finally:
            consumer.close()

    def send_offset(self, producer: Any, offset: int) -> None:
        consumer = self.consumer()
        try:
            producer.send_offsets_to_transaction(
                [TopicPartition(self.first, 0, offset)], consumer.consumer_group_metadata()
            )
        finally:
            consumer.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"transaction.max.timeout.ms": 60_000}) as running:
        yield running


@pytest.fixture
def world(broker: EmbeddedBroker) -> World:
    return World(broker)


def begin(producer: Any, *places: tuple[str, int], value: bytes = b"v") -> None:
    """A transaction with a record in each place, all of them at the broker."""
    producer.begin_transaction()
    for topic, partition in places:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_1_all_or_nothing_is_read(world: World, is_committed: bool) -> None:
    producer = world.producer()
    begin(producer, (world.first, 0), (world.first, 1), (world.second, 0))
    producer.commit_transaction() if is_committed else producer.abort_transaction()

    seen = [
        world.read(topic, partition=partition)
        for topic, partition in ((world.first, 0), (world.first, 1), (world.second, 0))
    ]

    assert seen == ([[b"v"]] * 3 if is_committed else [[]] * 3)


def test_2_any_number_of_topics_and_partitions(world: World) -> None:
    producer = world.producer()
    places = [(topic, part) for topic in (world.first, world.second) for part in (0, 1)]
    begin(producer, *places)
    producer.commit_transaction()

    assert all(world.read(topic, partition=part) == [b"v"] for topic, part in places)


def test_3_offsets_are_committed_with_it(world: World) -> None:
    producer = world.producer()
    begin(producer, (world.second, 0))
    world.send_offset(producer, 7)
    producer.commit_transaction()

    assert world.committed_offset() == 7


def test_4_offsets_of_an_aborted_transaction_are_void(world: World) -> None:
    producer = world.producer()
    begin(producer, (world.second, 0))
    world.send_offset(producer, 7)
    producer.abort_transaction()

    assert world.committed_offset() < 0


def test_5_a_commit_survives_the_death_of_the_process(tmp_path: Path) -> None:
    with EmbeddedBroker(directory=tmp_path) as broker:
        world = World(broker)
        producer = world.producer()
        begin(producer, (world.first, 0))
        world.send_offset(producer, 3)
        producer.commit_transaction()

        broker.kill()
        broker.start()

        assert world.read(world.first) == [b"v"]
        assert world.committed_offset() == 3


def test_6_a_commit_is_decided_once(world: World) -> None:
    producer = world.producer()
    begin(producer, (world.first, 0))
    # The request arrives and its answer does not: librdkafka asks again.
    world.broker.faults.drop("EndTxn", after_handling=True)

    producer.commit_transaction(60)

    assert world.read(world.first) == [b"v"]


def test_7_undecided_records_are_not_seen(world: World) -> None:
    producer = world.producer()
    begin(producer, (world.first, 0))

    assert world.read(world.first) == []

    producer.abort_transaction()


def test_8_nor_are_those_behind_them(world: World) -> None:
    producer = world.producer()
    world.plain(b"before")
    begin(producer, (world.first, 0), value=b"inside")
    world.plain(b"behind")

    assert world.read(world.first) == [b"before"]

    producer.commit_transaction()
    assert world.read(world.first) == [b"before", b"inside", b"behind"]


def test_9_without_isolation_everything_is_seen(world: World) -> None:
    producer = world.producer()
    begin(producer, (world.first, 0), value=b"aborted later")
    assert world.read(world.first, "read_uncommitted") == [b"aborted later"]

    producer.abort_transaction()

    assert world.read(world.first, "read_uncommitted") == [b"aborted later"]
    assert world.read(world.first) == []


def test_10_the_order_is_kept(world: World) -> None:
    producer = world.producer()
    values = [b"%d" % number for number in range(60)]
    for start in range(0, 60, 20):
        producer.begin_transaction()
        for value in values[start : start + 20]:
            producer.produce(world.first, value, partition=0)
        producer.commit_transaction()

    assert world.read(world.first) == values


def test_11_markers_take_offsets_that_nobody_is_shown(world: World) -> None:
    producer = world.producer()
    for _ in range(3):
        begin(producer, (world.first, 0))
        producer.commit_transaction()

    offsets = [each.offset() for each in world.messages(world.first, "read_committed")]

    assert offsets == [0, 2, 4]


def test_12_only_the_newest_producer_may_write(world: World) -> None:
    old = world.producer()
    new = world.producer()
    old.begin_transaction()
    old.produce(world.first, b"old", partition=0)
    with pytest.raises(KafkaException, match=r"FENCED|EPOCH"):
        old.commit_transaction(30)
    begin(new, (world.first, 0), value=b"new")
    new.commit_transaction()

    assert world.read(world.first) == [b"new"]


def test_13_what_a_locked_out_producer_has_written_is_aborted(world: World) -> None:
    old = world.producer()
    begin(old, (world.first, 0), value=b"old")

    new = world.producer()

    with pytest.raises(KafkaException, match=r"FENCED|EPOCH"):
        old.commit_transaction(30)
    begin(new, (world.first, 0), value=b"new")
    new.commit_transaction()
    assert world.read(world.first) == [b"new"]


def test_14_a_transaction_has_a_timeout(world: World) -> None:
    producer = world.producer(transaction_timeout_ms=1500, message_timeout_ms=1000)
    begin(producer, (world.first, 0), value=b"slow")
    world.plain(b"behind")
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + 30_000
    while world.read(world.first) != [b"behind"]:
        assert clock.monotonic_ms() < deadline_ms

    with pytest.raises(KafkaException, match=r"FENCED|EPOCH|INVALID_TXN_STATE"):
        producer.commit_transaction(30)


def test_15_a_timeout_that_is_too_long_is_refused(world: World) -> None:
    producer = world.uninitialized(transaction_timeout_ms=60_001)

    with pytest.raises(KafkaException, match="INVALID_TRANSACTION_TIMEOUT"):
        producer.init_transactions(30)


def test_16_late_records_are_not_written(world: World) -> None:
    producer = world.producer(linger_ms=30_000, message_timeout_ms=60_000)
    producer.begin_transaction()
    producer.produce(world.first, b"late", partition=0)
    world.producer()
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)

    assert world.read(world.first, "read_uncommitted") == []


def test_17_what_is_read_is_not_locked(world: World) -> None:
    world.plain(b"shared")
    producer = world.producer()
    begin(producer, (world.second, 0))
    world.send_offset(producer, 1)

    assert world.read(world.first) == [b"shared"]

    producer.commit_transaction()


def test_18_nothing_outside_the_cluster_is_undone(world: World) -> None:
    done = []
    producer = world.producer()
    begin(producer, (world.first, 0))
    done.append("a letter was sent")
    producer.abort_transaction()

    assert world.read(world.first) == []
    assert done == ["a letter was sent"]


def test_every_sentence_has_a_test_and_every_test_a_sentence() -> None:
    sentences = set(re.findall(r"^(\d+)\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    tests = {match[1] for name in globals() if (match := re.match(r"test_(\d+)_", name))}

    assert sentences == tests
    assert len(sentences) == 18
