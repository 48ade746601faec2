"""`Consumer` with a real broker: reading, seeking, groups, commits, waking, closing."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from millstream import Consumer, TopicPartition
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import (
    BootstrapFailed,
    ClientClosed,
    ConcurrentUse,
    InvalidArgument,
    SerializationFailed,
    Wakeup,
)
from tests.integration.client.consumer.reading import PATIENCE, assigned, read, values
from tests.waiting import once_blocked

if TYPE_CHECKING:
    from millstream.records.kernel import ConsumerRecord
    from tests.integration.client.consumer.topics import Topics

pytestmark = pytest.mark.integration


def use_until_refused(consumer: Consumer) -> None:
    for _ in range(100_000):
        consumer.pause([])


def test_reads_what_was_written(topics: Topics) -> None:
    topic = topics.make(100, partitions=3)

    with assigned(topics, topic, 0, 1, 2) as consumer:
        records = read(consumer, 100)

    assert sorted(values(records)) == sorted(b"v%d" % each for each in range(100))
    for partition in range(3):
        offsets = [each.offset for each in records if each.partition == partition]
        assert offsets == list(range(len(offsets)))
    assert records[0].topic == topic
    assert pickle.loads(pickle.dumps(records[0])) == records[0]


def test_a_loop_that_was_left_can_be_taken_up_again(topics: Topics) -> None:
    topic = topics.make(10)

    with assigned(topics, topic) as consumer:
        first = [each.value for each in islice(consumer, 3)]
        assert consumer.position(TopicPartition(topic, 0)) == 3
        second = [each.value for each in islice(consumer, 7)]

    assert first + second == [b"v%d" % each for each in range(10)]


def test_batches_are_of_one_partition_each(topics: Topics) -> None:
    topic = topics.make(40, partitions=2)

    with assigned(topics, topic, 0, 1) as consumer:
        batches = list(consumer.batches(2.0, max_records=15))

    assert sum(map(len, batches)) == 40
    assert all(len({each.partition for each in batch}) == 1 for batch in batches)
    assert max(map(len, batches)) <= 15


def test_rows_as_columns(topics: Topics) -> None:
    topic = topics.make(50, partitions=2)

    with assigned(topics, topic, 0, 1) as consumer:
        rows = 0
        while rows < 50:
            batch = consumer.poll_arrow(PATIENCE, columns=["partition", "value"])
            assert batch is not None
            assert batch.topic == topic
            rows += len(batch)
            last = batch
        with pytest.raises(InvalidArgument, match="there is no column 'valeu'"):
            consumer.poll_arrow(columns=["valeu"])
        assert consumer.poll_arrow(0.1) is None

    assert last.to_arrow().schema.names == ["partition", "value"]
    assert last.to_polars().shape == (len(last), 2)
    assert list(last.to_pandas().columns) == ["partition", "value"]


def test_seeking_by_offset_ends_and_time(topics: Topics) -> None:
    topic = topics.make()
    at = TopicPartition(topic, 0)
    topics.write(topic, [b"old"], timestamp=1_000_000)
    topics.write(topic, [b"new"], timestamp=2_000_000)

    with assigned(topics, topic) as consumer:
        assert values(read(consumer, 2)) == [b"old", b"new"]
        consumer.seek(at, 1)
        assert values(consumer.poll(PATIENCE)) == [b"new"]
        consumer.seek_to_beginning()
        assert consumer.position(at) == 0
        consumer.seek_to_end([at])
        assert consumer.position(at) == 2
        consumer.seek_to_time(datetime.fromtimestamp(1_500, UTC))
        assert values(consumer.poll(PATIENCE)) == [b"new"]
        consumer.seek_to_time(9_000_000)
        assert consumer.position(at) == 2
        for wrong in (-1, -2):
            with pytest.raises(InvalidArgument, match="seek_to_beginning"):
                consumer.seek(at, wrong)
        with pytest.raises(InvalidArgument, match="is not assigned to this consumer"):
            consumer.seek(TopicPartition(topic, 9), 0)
        with pytest.raises(InvalidArgument, match="time zone"):
            consumer.seek_to_time(datetime(2024, 1, 1))  # noqa: DTZ001  # on purpose


def test_ends_times_and_lag(topics: Topics) -> None:
    topic = topics.make()
    at = TopicPartition(topic, 0)
    topics.write(topic, [b"a", b"b"], timestamp=1_000_000)

    with assigned(topics, topic) as consumer:
        assert consumer.beginning_offsets([at]) == {at: 0}
        assert consumer.end_offsets([at]) == {at: 2}
        found = consumer.offsets_for_times({at: 999_999})[at]
        assert found is not None
        assert (found.offset, found.timestamp) == (0, 1_000_000)
        assert consumer.offsets_for_times({at: 9_000_000}) == {at: None}
        assert consumer.lag(at) == 2
        read(consumer, 2)
        assert consumer.lag(at) == 0


def test_paused_partitions_wait(topics: Topics) -> None:
    topic = topics.make(4, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    with assigned(topics, topic, 0, 1) as consumer:
        consumer.pause([first])
        assert {each.partition for each in read(consumer, 2)} == {1}
        assert consumer.paused() == {first}
        consumer.resume([first])
        assert {each.partition for each in read(consumer, 2)} == {0}
        assert consumer.assignment() == {first, second}


def test_namespaces_do_not_mix(topics: Topics) -> None:
    topic = topics.make(2, prefix="staging.orders")
    name = topic.removeprefix("staging.")

    with Consumer(
        topics.bootstrap,
        name,
        group_id="billing",
        namespace="staging",
        auto_offset_reset="earliest",
    ) as consumer:
        records = read(consumer, 2)
        assert {each.topic for each in records} == {name}
        assert consumer.assignment() == {TopicPartition(name, 0)}
        consumer.commit()
        assert consumer.group_metadata().group_id == "billing"


def test_waking_a_poll_from_another_thread(topics: Topics) -> None:
    topic = topics.make()
    with assigned(topics, topic) as consumer:
        with once_blocked(consumer.wakeup), pytest.raises(Wakeup):
            consumer.poll(PATIENCE)
        assert consumer.poll(0.0) == []


def test_an_interrupt_ends_a_poll_and_loses_nothing(topics: Topics) -> None:
    topic = topics.make()
    with assigned(topics, topic) as consumer:
        # A shell's background jobs are started with the signal ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        with (
            once_blocked(lambda: os.kill(os.getpid(), signal.SIGINT)),
            pytest.raises(KeyboardInterrupt),
        ):
            consumer.poll(None)
        signal.signal(signal.SIGINT, before)
        topics.write(topic, [b"after"])
        assert values(consumer.poll(PATIENCE)) == [b"after"]


def test_one_thread_at_a_time(topics: Topics) -> None:
    topic = topics.make()
    with assigned(topics, topic) as consumer:
        is_polling = threading.Event()

        def poll() -> None:
            is_polling.set()
            with pytest.raises(Wakeup):
                consumer.poll(PATIENCE)

        polling = threading.Thread(target=poll)
        polling.start()
        is_polling.wait(PATIENCE)
        with pytest.raises(ConcurrentUse, match="another thread is using this consumer"):
            use_until_refused(consumer)
        consumer.wakeup()
        polling.join()
        consumer.pause([])


def test_deserializers_and_interceptors(topics: Topics) -> None:
    topic = topics.make()
    topics.write(topic, [b'{"a": 1}', b"not json"], key=b"k")
    committed: list[object] = []

    class Loud:
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            raise LookupError("passed over")

    class Keeper:
        def on_commit(self, offsets: object) -> None:
            committed.append(offsets)

    consumer = assigned(
        topics,
        topic,
        key_deserializer="str",
        value_deserializer="json",
        interceptors=[Loud(), Keeper()],
        group_id=f"group-{topic}",
    )
    with consumer:
        (record,) = consumer.poll(PATIENCE)
        assert (record.key, record.value) == ("k", {"a": 1})
        with pytest.raises(SerializationFailed, match="seek to 2"):
            consumer.poll(PATIENCE)
        consumer.seek(TopicPartition(topic, 0), 2)
        consumer.commit()
    assert committed[0] == {TopicPartition(topic, 0): OffsetAndMetadata(2)}


def test_batches_go_on_after_one_that_an_interceptor_has_emptied(topics: Topics) -> None:
    topic = topics.make(20)

    class SecondHalf:
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            return [each for each in records if each.offset >= 10]

    with assigned(topics, topic, interceptors=SecondHalf()) as consumer:
        batches = consumer.batches(PATIENCE, max_records=5)
        found = [next(batches), next(batches)]

    assert [each.offset for batch in found for each in batch] == list(range(10, 20))


def test_a_closed_consumer_says_so(topics: Topics) -> None:
    topic = topics.make()
    consumer = assigned(topics, topic)
    consumer.close()
    consumer.close()

    with pytest.raises(ClientClosed):
        consumer.poll()


def test_wrong_uses_say_what_to_do(topics: Topics) -> None:
    topic = topics.make()
    with Consumer(topics.bootstrap, group_id="wrong") as consumer:
        with pytest.raises(InvalidArgument, match="subscribe\\(\\) to topics or assign"):
            consumer.poll()
        with pytest.raises(InvalidArgument, match="give one of them"):
            consumer.subscribe()
        with pytest.raises(InvalidArgument, match="a str that is not empty"):
            consumer.subscribe([""])
        with pytest.raises(InvalidArgument, match="max_records=0"):
            consumer.poll(max_records=0)
        with pytest.raises(InvalidArgument, match="must be at least 0"):
            consumer.committed([], timeout=-1)
        with pytest.raises(InvalidArgument, match="is not assigned"):
            consumer.position(TopicPartition(topic, 0))
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(InvalidArgument, match="call unsubscribe"):
            consumer.subscribe(topic)
        consumer.unsubscribe()
        consumer.subscribe(topic)
        with pytest.raises(InvalidArgument, match="call unsubscribe"):
            consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(InvalidArgument, match="did you mean group_id"):
        Consumer(topics.bootstrap, grup_id="x")  # type: ignore[call-overload]  # on purpose


def test_kafka_s_names_of_settings(topics: Topics) -> None:
    topic = topics.make(1)
    properties = {
        "bootstrap.servers": topics.bootstrap,
        "group.id": f"group-{topic}",
        "auto.offset.reset": "earliest",
        "max.poll.records": "10",
    }
    with Consumer.from_config(properties, [topic]) as consumer:
        assert values(consumer.poll(PATIENCE)) == [b"v0"]


def test_no_broker_is_a_clear_error() -> None:
    with Consumer("127.0.0.1:1") as consumer:
        at = TopicPartition("orders", 0)
        with pytest.raises(BootstrapFailed, match="no broker reachable"):
            consumer.end_offsets([at], timeout=1.0)
        consumer.assign([at])
        with pytest.raises(BootstrapFailed):
            consumer.position(at, timeout=0.5)
