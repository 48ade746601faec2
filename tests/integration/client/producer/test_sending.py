"""Batches that the selector's thread takes and sends by itself: a real broker, real threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Consumer, Producer, TopicPartition
from millstream.client.producer import kernel
from tests.waiting import until

if TYPE_CHECKING:
    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not kernel.COMPILED or sys.platform != "linux",
        reason="only the compiled accumulator and selector send without the GIL",
    ),
]

WAIT_S = 30.0


def warm_up(producer: Producer, topic: str, partitions: int) -> None:
    """The first batch of each partition goes alone."""
    assert producer._core.accumulator.sink.is_attached
    for partition in range(partitions):
        producer.send(topic, b"warm", partition=partition).result(WAIT_S)


def until_sum(counts: list[int], least: int) -> None:
    """Return when the writers have come so far together."""
    until(lambda: sum(counts) >= least)


def read_all(broker: EmbeddedBroker, topic: str, partitions: int, count: int) -> list[Any]:
    places = [TopicPartition(topic, index) for index in range(partitions)]
    found: list[Any] = []
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        while len(found) < count:
            polled = consumer.poll(timeout=5.0)
            assert polled, f"{len(found)} of {count} records"
            found += polled
        found += consumer.poll(timeout=0.2)
    return found


def test_the_sender_sends_nothing_itself(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic(partitions=2)
    with Producer(millstream_broker.bootstrap_servers, linger=0.001) as producer:
        warm_up(producer, topic, 2)
        by_python: list[Any] = []
        producer._core.sender._send = by_python.append  # type: ignore[assignment, method-assign]  # to see it used

        handles = [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(100)]
        producer.flush(WAIT_S)

        assert [handle.result().offset for handle in handles[::2]] == list(range(1, 51))
        assert by_python == []


@pytest.mark.parametrize("idempotent", [True, False])
def test_nothing_is_lost_or_reordered_while_connections_break(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory, idempotent: bool
) -> None:
    topic = millstream_topic(partitions=3)
    count, breaks = 4000, 12
    settings: dict[str, Any] = {"enable_idempotence": idempotent}
    if not idempotent:
        # Without numbers, order and retries go together with one request at a time only.
        settings["max_in_flight_requests_per_connection"] = 1
    with Producer(
        millstream_broker.bootstrap_servers,
        linger=0.001,
        batch_size=2000,
        reconnect_backoff=0.01,
        **settings,
    ) as producer:
        warm_up(producer, topic, 3)
        sent = [0, 0, 0]

        def send(partition: int) -> None:
            for number in range(count):
                delivery = producer.send(topic, b"%d" % number, partition=partition)
                sent[partition] += 1
                if number % 100 == 0:
                    delivery.result(WAIT_S)

        with ThreadPoolExecutor(3) as pool:
            sending = [pool.submit(send, partition) for partition in range(3)]
            for part in range(1, breaks + 1):
                until_sum(sent, 3 * count * part // (breaks + 1))
                millstream_broker.disconnect_clients()
            for each in sending:
                each.result(WAIT_S)
        producer.flush(WAIT_S)

    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for record in read_all(millstream_broker, topic, 3, 3 * (count + 1)):
        if record.value != b"warm":
            found[record.partition].append(int(record.value or b""))
    for numbers in found.values():
        # Whether an answer was lost with its connection cannot be known without numbers.
        kept = numbers if idempotent else list(dict.fromkeys(numbers))
        assert kept == list(range(count))


def test_no_row_is_lost_or_reordered_while_connections_break(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    topic, rows, tables = millstream_topic(partitions=4), 8_000, 4
    begun = [0, 0]

    def table(writer: int, number: int) -> Any:
        places = range(number * rows, (number + 1) * rows)
        keys = [b"%d" % (place % 997) for place in places]
        values = [b"%d %d" % (writer, place) for place in places]
        return pa.table(
            {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
        )

    def send(writer: int) -> None:
        for number in range(tables):
            begun[writer] += 1
            sent = producer.send_batch(topic, table(writer, number))
            if number % 2:
                sent.result(WAIT_S)

    with (
        Producer(
            millstream_broker.bootstrap_servers, batch_size=4096, reconnect_backoff=0.01
        ) as producer,
        ThreadPoolExecutor(2) as pool,
    ):
        sending = [pool.submit(send, writer) for writer in range(2)]
        for count in range(2, 2 * tables):
            until_sum(begun, count)
            millstream_broker.disconnect_clients()
        for each in sending:
            each.result(WAIT_S)
        producer.flush(WAIT_S)

    last: dict[tuple[bytes, int], int] = {}
    found = read_all(millstream_broker, topic, 4, 2 * tables * rows)
    assert len(found) == 2 * tables * rows
    for record in found:
        writer, place = record.value.split()
        assert last.get((writer, record.partition), -1) < int(place)
        last[writer, record.partition] = int(place)


def test_what_a_broker_finds_too_large_is_sent_in_parts(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic(config={"max.message.bytes": 5_000})
    with Producer(millstream_broker.bootstrap_servers, linger=60.0) as producer:
        warm_up_with_flush(producer, topic)

        handles = [producer.send(topic, b"%d" % n * 400) for n in range(40)]
        producer.flush(WAIT_S)

        assert [handle.result().offset for handle in handles] == list(range(1, 41))
        producer.send(topic, b"after")
        producer.flush(WAIT_S)


def test_a_partition_whose_leader_changes_does_not_leave_the_others_of_its_broker_waiting(
    millstream_broker: EmbeddedBroker,
    millstream_topic: TopicFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = millstream_topic(partitions=2, config={"max.message.bytes": 5_000})
    with Producer(millstream_broker.bootstrap_servers, linger=0.05) as producer:
        warm_up(producer, topic, 2)
        runtime = producer._core.runtime
        moving = next(each for each in producer._core.sender._partitions if each.partition == 0)

        def look_again(_now_ms: int) -> None:
            runtime.metadata.request_update()

        def move(*_: object) -> None:
            """As the answer itself would, if it named another leader."""
            moving.node_id = 77

        with monkeypatch.context() as patch:
            patch.setattr("millstream.client.producer.sender.learn_leaders", move)
            refused = [producer.send(topic, b"." * 400, partition=0) for _ in range(40)]
            until(lambda: moving.node_id == 77)

        assert producer.send(topic, b"after", partition=1).result(WAIT_S).offset == 1
        runtime.post(look_again)
        assert [each.result(WAIT_S).offset for each in refused] == list(range(1, 41))


def test_closing_sends_what_lingers(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()
    with Producer(millstream_broker.bootstrap_servers, linger=60.0) as producer:
        handle = producer.send(topic, b"first")
        producer.flush(WAIT_S)
        handle = producer.send(topic, b"last")

    assert handle.result(0).offset == 1


def test_a_full_buffer_empties_and_those_who_wait_go_on(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()
    with Producer(
        millstream_broker.bootstrap_servers,
        linger=60.0,
        batch_size=10_000,
        buffer_memory=50_000,
        max_block=WAIT_S,
    ) as producer:
        warm_up_with_flush(producer, topic)
        handles = [producer.send(topic, b"x" * 1000) for _ in range(2_000)]
        producer.flush(WAIT_S)

        assert [handle.result().offset for handle in handles] == list(range(1, 2_001))
        assert producer._core.accumulator.buffered_bytes <= 50_000


def warm_up_with_flush(producer: Producer, topic: str) -> None:
    producer.send(topic, b"warm")
    producer.flush(WAIT_S)


@pytest.mark.parametrize("seed", range(2))
def test_whatever_breaks_every_record_is_there_once_and_in_order(seed: int) -> None:
    sending_soak = pytest.importorskip(
        "tests.integration.client.producer.sending_soak", reason="pyarrow is not installed"
    )
    sending_soak.SendingSoak(seed).run()


@pytest.mark.parametrize("linger", [0.0, 0.05])
def test_transactions_leave_without_the_gil_too(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory, linger: float
) -> None:
    topic = millstream_topic(partitions=2)
    with Producer(
        millstream_broker.bootstrap_servers, linger=linger, transactional_id=f"sending-{linger}"
    ) as producer:
        by_python: list[Any] = []
        producer._core.sender._send = by_python.append  # type: ignore[assignment, method-assign]  # to see it used
        assert producer._core.accumulator.sink.is_attached
        for number in range(10):
            with producer.transaction():
                for place in range(20):
                    producer.send(topic, b"%d" % (20 * number + place), partition=place % 2)

    assert by_python == []
    found: dict[int, list[int]] = {0: [], 1: []}
    places = [TopicPartition(topic, index) for index in range(2)]
    with Consumer(
        millstream_broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign(places)
        while sum(map(len, found.values())) < 200:
            polled = consumer.poll(timeout=5.0)
            assert polled, found
            for record in polled:
                found[record.partition].append(int(record.value or b""))
    assert [sorted(each) for each in found.values()] == list(found.values())


def test_nobody_waits_for_what_needs_no_acknowledgement(
    millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic()
    with Producer(
        millstream_broker.bootstrap_servers, acks=0, enable_idempotence=False, linger=0.0
    ) as producer:
        assert producer._core.accumulator.sink.is_attached
        handles = [producer.send(topic, b"%d" % number) for number in range(100)]
        assert {handle.result(WAIT_S).offset for handle in handles} == {-1}

    assert len(read_all(millstream_broker, topic, 1, 100)) == 100
