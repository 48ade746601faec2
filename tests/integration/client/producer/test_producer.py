"""`Producer` against a real broker: what is sent is there, and what is not there is told."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Producer, ProducerInterceptor, ProducerRecord
from millstream.errors import (
    ClientClosed,
    DeliveryFailed,
    InvalidArgument,
    MessageTooLarge,
    OperationTimeout,
    SerializationFailed,
)
from millstream.network.client.selector_factory import open_client_selector
from millstream.records import partition_for_key
from tests.integration.client.producer.reading import read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.producer.delivery import Delivery
    from millstream.testing import EmbeddedBroker

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytestmark = pytest.mark.integration


def test_what_is_sent_is_there_with_key_headers_and_time(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    when = datetime(2026, 1, 2, tzinfo=UTC)

    with Producer(broker.bootstrap_servers) as producer:
        plain = producer.send(topic, b"value", key="key", headers={"a": b"1", "b": None})
        timed = producer.send(topic, "text", partition=2, timestamp=when, headers=[("a", "x")])
        place = plain.result(10)
        producer.send(topic, None, key=b"key").result(10)

    seen = read_all(broker.bootstrap_servers, topic)
    by_value = {each.value: each for each in seen}
    assert place == (topic, partition_for_key(b"key", 3), 0, by_value[b"value"].timestamp)
    assert by_value[b"value"].headers == [("a", b"1"), ("b", None)]
    assert by_value[b"text"].timestamp == int(when.timestamp() * 1000)
    assert by_value[b"text"].partition == timed.result(0).partition == 2
    assert by_value[None].key == b"key"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_many_threads_arrive_once_and_in_each_threads_order(
    broker: EmbeddedBroker, make_topic: Callable[..., str], codec: Any
) -> None:
    topic = make_topic(2)
    count = 2000

    with Producer(broker.bootstrap_servers, compression_type=codec, batch_size=4096) as producer:

        def send(thread: int) -> None:
            for number in range(count):
                producer.send(topic, b"%d-%06d" % (thread, number), key=b"%d" % thread)

        threads = [threading.Thread(target=send, args=(each,)) for each in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    values = [each.value for each in read_all(broker.bootstrap_servers, topic)]
    for thread in range(3):
        own = [value for value in values if value and value.startswith(b"%d-" % thread)]
        assert own == [b"%d-%06d" % (thread, number) for number in range(count)]


def test_round_robin_and_functions_as_partitioners(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)

    with Producer(broker.bootstrap_servers, partitioner="round_robin") as producer:
        placed = [producer.send(topic, b"v").partition for _ in range(6)]
    with Producer(
        broker.bootstrap_servers,
        partitioner=lambda _topic, _key, value, found: value[0] % found.count,
    ) as producer:
        chosen = [producer.send(topic, bytes([n])).partition for n in (5, 6)]
    with (
        Producer(broker.bootstrap_servers, partitioner=lambda *_: 7) as producer,
        pytest.raises(InvalidArgument, match=r"chose 7 .* which has 3"),
    ):
        producer.send(topic, b"v")

    assert placed == [0, 1, 2, 0, 1, 2]
    assert chosen == [2, 0]


def test_a_table_is_spread_by_its_keys_as_send_does(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(5)
    keys = [b"key-%d" % (n % 97) if n % 3 else None for n in range(20_000)]
    table = pa.table({"key": keys, "value": [b"%d" % n for n in range(20_000)]})

    with Producer(broker.bootstrap_servers, batch_size=10_000) as producer:
        places = producer.send_batch(topic, table).result(20)

    seen = read_all(broker.bootstrap_servers, topic)
    assert sum(each.record_count for each in places) == len(seen) == 20_000
    for each in seen:
        if each.key is not None:
            assert each.partition == partition_for_key(each.key, 5)
    for partition in range(5):
        own = [each for each in seen if each.partition == partition and each.key is not None]
        numbers = [int(each.value or b"") for each in own]
        assert numbers == sorted(numbers)


def test_a_table_larger_than_the_memory_passes_through_it(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    table = pa.table({"value": [b"x" * 1000] * 3000})

    with Producer(broker.bootstrap_servers, buffer_memory=200_000, batch_size=50_000) as producer:
        delivery = producer.send_batch(topic, table)
        assert len(delivery) == 3000
        assert delivery.exception(20) is None

    assert len(read_all(broker.bootstrap_servers, topic)) == 3000


def test_rows_that_cannot_be_sent_are_refused(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    with Producer(broker.bootstrap_servers, max_request_size=2000) as producer:
        with pytest.raises(MessageTooLarge):
            producer.send_batch(topic, pa.table({"value": [b"x" * 3000]}))
        with pytest.raises(InvalidArgument, match="no partition 9"):
            producer.send_batch(topic, pa.table({"value": [b"x"], "partition": [9]}))
    with (
        Producer(broker.bootstrap_servers, value_serializer="json") as producer,
        pytest.raises(InvalidArgument, match="serializers"),
    ):
        producer.send_batch(topic, pa.table({"value": [b"x"]}))


def test_serializers_make_the_bytes(broker: EmbeddedBroker, make_topic: Callable[..., str]) -> None:
    topic = make_topic()

    with Producer(
        broker.bootstrap_servers, key_serializer="int32", value_serializer="json"
    ) as producer:
        producer.send(topic, {"a": 1}, key=5)
        with pytest.raises(SerializationFailed):
            producer.send(topic, {"a": 1}, key="not a number")

    (seen,) = read_all(broker.bootstrap_servers, topic)
    assert (seen.key, (seen.value or b"").replace(b" ", b"")) == (b"\0\0\0\5", b'{"a":1}')


class Unwilling:
    """A serializer with an error of its own."""

    def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
        raise KeyError(value)


@pytest.mark.parametrize("which", ["key_serializer", "value_serializer"])
def test_an_error_of_a_serializer_is_the_cause_of_ours(broker: EmbeddedBroker, which: Any) -> None:
    settings: Any = {which: Unwilling()}
    with (
        Producer(broker.bootstrap_servers, **settings) as producer,
        pytest.raises(SerializationFailed, match="Unwilling cannot serialize") as caught,
    ):
        producer.send("unwilling", "v", key="k")
    assert isinstance(caught.value.__cause__, KeyError)


def test_no_time_for_metadata_is_not_called_a_broker_out_of_reach(broker: EmbeddedBroker) -> None:
    broker.create_topic("hasty", partitions=1)
    with Producer(broker.bootstrap_servers, max_block=0) as producer:
        with pytest.raises(OperationTimeout, match="within max_block, 0 s"):
            producer.send("hasty", "v")
        delivery = None
        while delivery is None:
            with contextlib.suppress(OperationTimeout):
                delivery = producer.send("hasty", "v")
        assert delivery.result(20).offset == 0


class Recorder(ProducerInterceptor):
    """Marks records and notes what became of them."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, Any]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value, record.key, headers=(("seen", b"yes"),))

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.told.append((metadata, error))
        raise RuntimeError("must not matter")


def test_interceptors_change_records_and_hear_of_the_outcome(
    broker: EmbeddedBroker, make_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    recorder = Recorder()

    with Producer(broker.bootstrap_servers, interceptors=[recorder]) as producer:
        place = producer.send(topic, b"v").result(10)
        producer.flush()
        with pytest.raises(InvalidArgument):
            producer.send(topic, 5)  # type: ignore[arg-type]  # on purpose

    assert recorder.told[0] == (place, None)
    assert isinstance(recorder.told[1][1], InvalidArgument)
    assert read_all(broker.bootstrap_servers, topic)[0].headers == [("seen", b"yes")]
    assert "must not matter" in caplog.text


def test_callbacks_run_on_another_thread_and_before_flush_returns(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    calls: list[tuple[int, str]] = []

    def note(delivery: Delivery) -> None:
        calls.append((delivery.result(0).offset, threading.current_thread().name))

    with Producer(broker.bootstrap_servers) as producer:
        for _ in range(100):
            producer.send(topic, b"v", on_delivery=note)
        producer.flush()
        assert [offset for offset, _ in calls] == list(range(100))

    assert all("callbacks" in name for _, name in calls)


def test_partitions_for_tells_leaders(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        partitions = producer.partitions_for(make_topic(3))

    assert [each.index for each in partitions] == [0, 1, 2]
    assert all(each.leader_id >= 0 for each in partitions)


def test_namespaces_do_not_mix(broker: EmbeddedBroker) -> None:
    with Producer(broker.bootstrap_servers, namespace="staging") as producer:
        place = producer.send("orders", b"v").result(10)

    assert place.topic == "orders"
    assert len(read_all(broker.bootstrap_servers, "staging.orders")) == 1


def test_a_closed_producer_raises_and_closing_again_is_fine(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    producer = Producer(broker.bootstrap_servers)
    delivery = producer.send(topic, b"v")

    producer.close()
    producer.close()

    assert delivery.result(0).offset == 0
    with pytest.raises(ClientClosed):
        producer.send(topic, b"v")
    with pytest.raises(ClientClosed):
        producer.flush()


def test_close_gives_up_what_takes_too_long(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    producer = Producer(broker.bootstrap_servers)
    producer.send(topic, b"v").result(10)
    with broker.faults.unavailable():
        delivery = producer.send(topic, b"v")
        with pytest.raises(DeliveryFailed):
            producer.close(timeout=0.2)

    assert isinstance(delivery.exception(0), ClientClosed)


def test_from_config_takes_the_names_of_kafka(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with Producer.from_config(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": "0", "acks": 1}
    ) as producer:
        assert producer.send(topic, b"v").result(10).offset == 0
    with pytest.raises(InvalidArgument, match=r"linger\.msec: .*did you mean linger\.ms"):
        Producer.from_config({"bootstrap.servers": "h:1", "linger.msec": 5})


def test_threads_end_with_the_producer(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    before = set(threading.enumerate())
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(make_topic(), b"v", on_delivery=lambda delivery: None)

    assert not [each for each in set(threading.enumerate()) - before if "producer" in each.name]


def test_a_producer_that_nobody_keeps_gives_a_handle_that_ends(
    broker: EmbeddedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)

    with pytest.warns(ResourceWarning, match="was not closed"):
        handle = Producer(broker.bootstrap_servers, linger=60.0).send(topic, b"x")

    assert isinstance(handle.exception(10), ClientClosed)


@pytest.mark.parametrize(
    "wrong", [{"value_serializer": "nonsense"}, {"partitioner": "nonsense"}], ids=str
)
def test_settings_that_are_refused_leave_no_thread_and_no_descriptor(
    wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def open_selector() -> Any:
        opened.append(open_client_selector())
        return opened[-1]

    monkeypatch.setattr("millstream.client.producer.core.open_client_selector", open_selector)

    with pytest.raises(InvalidArgument):
        Producer("localhost:1", **wrong)

    assert opened == []
