"""`Consumer` with a real broker: reading, seeking, groups, commits, waking, closing."""

from __future__ import annotations

import os
import pickle
import threading
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Consumer, TopicPartition
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import (
    BootstrapFailed,
    ClientClosed,
    ConcurrentUse,
    InvalidArgument,
    InvalidGroupId,
    SerializationFailed,
    Wakeup,
)

if TYPE_CHECKING:
    from millstream.records.kernel import ConsumerRecord
    from tests.integration.client.consumer.topics import Topics

pytestmark = pytest.mark.integration

PATIENCE = 20.0


def values(records: list[ConsumerRecord]) -> list[bytes]:
    return [each.value for each in records]


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = consumer.poll(PATIENCE)
        assert records, f"{len(found)} of {count} records came"
        found += records
    return found


def assigned(topics: Topics, topic: str, *partitions: int, **settings: Any) -> Consumer:
    consumer = Consumer(topics.bootstrap, **{"auto_offset_reset": "earliest", **settings})
    consumer.assign([TopicPartition(topic, each) for each in partitions or (0,)])
    return consumer


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


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_where_it_left_off(topics: Topics, protocol: Any) -> None:
    topic = topics.make(10)
    settings: Any = {
        "group_id": f"group-{topic}",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
    }
    at = TopicPartition(topic, 0)

    with Consumer(topics.bootstrap, topic, max_poll_records=4, **settings) as consumer:
        assert values(consumer.poll(PATIENCE)) == [b"v0", b"v1", b"v2", b"v3"]
        assert consumer.subscription() == {topic}
        assert consumer.group_metadata().member_id
    with Consumer(topics.bootstrap, topic, **settings) as consumer:
        assert values(read(consumer, 6))[0] == b"v4"
        committed = consumer.committed([at])[at]
        assert committed is not None
        assert committed.offset == 4


def test_an_exception_commits_only_what_earlier_polls_gave(topics: Topics) -> None:
    topic = topics.make(10)
    settings: Any = {"group_id": f"group-{topic}", "auto_offset_reset": "earliest"}

    def fail_at_the_second_poll() -> None:
        with Consumer(topics.bootstrap, topic, max_poll_records=3, **settings) as consumer:
            assert len(consumer.poll(PATIENCE)) == 3
            raise LookupError(len(consumer.poll(PATIENCE)))

    with pytest.raises(LookupError):
        fail_at_the_second_poll()

    with Consumer(topics.bootstrap, topic, **settings) as consumer:
        assert consumer.poll(PATIENCE)[0].offset == 3


def test_commits_by_hand(topics: Topics) -> None:
    topic = topics.make(10)
    at = TopicPartition(topic, 0)
    done: list[Any] = []
    consumer = assigned(topics, topic, group_id=f"group-{topic}", enable_auto_commit=False)

    with consumer:
        assert consumer.committed([at]) == {at: None}
        for record in consumer:
            if record.offset == 4:
                break
        consumer.commit()
        assert consumer.committed([at])[at] == OffsetAndMetadata(5, leader_epoch=0)
        consumer.commit({at: OffsetAndMetadata(7, "note")})
        assert consumer.committed([at])[at] == OffsetAndMetadata(7, "note")
        consumer.commit_async({at: 8}, on_done=lambda offsets, error: done.append((offsets, error)))
        while not done:
            consumer.poll(0.05)
        assert done == [({at: OffsetAndMetadata(8)}, None)]
        with pytest.raises(InvalidArgument, match="commit an offset of 0 or more"):
            consumer.commit({at: -3})


def test_without_a_group_there_is_nothing_to_commit_to(topics: Topics) -> None:
    topic = topics.make(1)
    with assigned(topics, topic) as consumer:
        read(consumer, 1)
        with pytest.raises(InvalidGroupId, match="give it a group_id"):
            consumer.commit()
    with pytest.raises(InvalidGroupId):
        Consumer(topics.bootstrap, topic)


def test_listeners_hear_of_partitions_in_the_polling_thread(topics: Topics) -> None:
    topic = topics.make(4, partitions=2)
    heard: list[tuple[str, list[int], int]] = []

    class Listener:
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            heard.append(("assigned", [e.partition for e in partitions], threading.get_ident()))
            for each in partitions:
                consumer.seek(each, 1)

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            heard.append(("revoked", [e.partition for e in partitions], threading.get_ident()))

    consumer = Consumer(topics.bootstrap, group_id=f"group-{topic}", auto_offset_reset="earliest")
    with consumer:
        consumer.subscribe([topic], listener=Listener())
        records = read(consumer, 2)
        consumer.unsubscribe()
        assert consumer.assignment() == frozenset()
        assert consumer.subscription() == frozenset()

    assert sorted(values(records)) == [b"v2", b"v3"]
    here = threading.get_ident()
    assert heard == [("assigned", [0, 1], here), ("revoked", [0, 1], here)]


def test_a_second_member_takes_its_share(topics: Topics) -> None:
    topic = topics.make(20, partitions=4)
    settings: Any = {"group_id": f"group-{topic}", "auto_offset_reset": "earliest"}

    with (
        Consumer(topics.bootstrap, topic, **settings) as first,
        Consumer(topics.bootstrap, topic, **settings) as second,
    ):
        for _ in range(200):
            first.poll(0.05)
            second.poll(0.05)
            shares = (len(first.assignment()), len(second.assignment()))
            if shares == (2, 2):
                break

    assert shares == (2, 2)


def test_patterns_of_names(topics: Topics) -> None:
    import re

    wanted = topics.make(2, prefix="pattern-yes")
    topics.make(2, prefix="pattern-no")

    for pattern in ("pattern-yes-.*", re.compile(r"pattern-yes-\d+")):
        with Consumer(
            topics.bootstrap, group_id=f"g-{id(pattern)}", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(pattern=pattern)
            assert {each.topic for each in read(consumer, 2)} == {wanted}
            assert consumer.subscription() == {wanted}


def test_environments_do_not_mix(topics: Topics) -> None:
    topic = topics.make(2, prefix="staging.orders")
    name = topic.removeprefix("staging.")

    with Consumer(
        topics.bootstrap,
        name,
        group_id="billing",
        environment="staging",
        auto_offset_reset="earliest",
    ) as consumer:
        records = read(consumer, 2)
        assert {each.topic for each in records} == {name}
        assert consumer.assignment() == {TopicPartition(name, 0)}
        consumer.commit()
        assert consumer.group_metadata().group_id == "staging.billing"


def test_waking_a_poll_from_another_thread(topics: Topics) -> None:
    topic = topics.make()
    with assigned(topics, topic) as consumer:
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        with pytest.raises(Wakeup):
            consumer.poll(PATIENCE)
        timer.join()
        assert consumer.poll(0.0) == []


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


def test_a_closed_consumer_says_so(topics: Topics) -> None:
    topic = topics.make()
    consumer = assigned(topics, topic)
    consumer.close()
    consumer.close()

    with pytest.raises(ClientClosed):
        consumer.poll()


def test_a_forked_child_is_told_to_make_its_own(topics: Topics) -> None:
    topic = topics.make()
    with assigned(topics, topic) as consumer:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover (in the child)
            try:
                consumer.poll(0.1)
            except Exception as error:
                os.write(write_end, type(error).__name__.encode())
            os._exit(0)
        os.close(write_end)
        os.waitpid(child, 0)
        said = os.read(read_end, 100)
        os.close(read_end)

    assert said == b"ForkedClient"


def test_wrong_uses_say_what_to_do(topics: Topics) -> None:
    topic = topics.make()
    with Consumer(topics.bootstrap, group_id="wrong") as consumer:
        with pytest.raises(InvalidArgument, match="subscribe\\(\\) to topics or assign"):
            consumer.poll()
        with pytest.raises(InvalidArgument, match="give one of them"):
            consumer.subscribe()
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(InvalidArgument, match="call unsubscribe"):
            consumer.subscribe(topic)
        consumer.unsubscribe()
        consumer.subscribe(topic)
        with pytest.raises(InvalidArgument, match="call unsubscribe"):
            consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(InvalidArgument, match="did you mean group_id"):
        Consumer(topics.bootstrap, grup_id="x")  # type: ignore[call-arg]  # on purpose


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
