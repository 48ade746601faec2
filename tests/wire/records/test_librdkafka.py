"""What confluent-kafka (librdkafka) sends is read by us, and it reads what we write.

It has no codec to call, so both sides meet at a throw-away server on loopback.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.records import Compression, RecordBatch, split_batches
from tests.unit.records.kernels import PLAIN, available, compiled
from tests.wire.mini_broker import MiniBroker
from tests.wire.records.sample_rows import ROWS, Row
from tests.wire.records.test_python_codecs import BASE_OFFSET, read, written

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

SECONDS_MAX = 20
codecs = pytest.mark.parametrize("codec", Compression, ids=[codec.name for codec in Compression])
# To librdkafka a timestamp of 0 or less means "now".
PRODUCIBLE = [row for rows in ROWS.values() for row in rows if row[0] > 0]
CASES = [(codec, name) for codec in Compression for name in ROWS]
cases = pytest.mark.parametrize(
    ("codec", "name"), CASES, ids=[f"{codec.name}-{name}" for codec, name in CASES]
)


class Consumed(NamedTuple):
    """What librdkafka read of a topic, and where each case begins in it."""

    topic: str
    starts: dict[tuple[Compression, str], int]
    rows: list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def broker() -> Iterator[MiniBroker]:
    with MiniBroker() as started:
        yield started


@pytest.fixture(scope="module")
def consumer(broker: MiniBroker) -> Iterator[Consumer]:
    opened = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.message.max.bytes": 1 << 24,
            "fetch.wait.max.ms": 10,
            "broker.address.family": "v4",
        }
    )
    yield opened
    opened.close()


def produce(broker: MiniBroker, topic: str, rows: list[Row], **settings: Any) -> None:
    failures: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "linger.ms": 20,
            "message.max.bytes": 1 << 24,
            "batch.size": 1 << 24,
            "broker.address.family": "v4",
            **settings,
        }
    )
    for timestamp, key, value, headers in rows:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            timestamp=timestamp,
            headers=list(headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert failures == []


def consume(consumer: Consumer, topic: str, offset: int, count: int) -> list[tuple[Any, ...]]:
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages = consumer.consume(count, timeout=SECONDS_MAX)
    consumer.unassign()
    for message in messages:
        assert message.error() is None
    return [
        (
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )
        for message in messages
    ]


@codecs
def test_we_read_what_librdkafka_sends(broker: MiniBroker, codec: Compression) -> None:
    topic = f"sent-{codec.name}"
    produce(broker, topic, PRODUCIBLE, **{"compression.type": codec.config_name})
    batches = [RecordBatch(batch.view) for batch in split_batches(broker.contents(topic))]

    for kernel in available():
        found = []
        for batch in batches:
            batch.check_crc()
            found += read(kernel, batch)
        assert found == [(offset, *row) for offset, row in enumerate(PRODUCIBLE)], kernel.name
    assert codec in {batch.compression for batch in batches}


def test_we_read_an_idempotent_producers_batches(broker: MiniBroker) -> None:
    produce(broker, "idempotent", ROWS["plain"], **{"enable.idempotence": True})

    batches = [
        batch for batch in split_batches(broker.contents("idempotent")) if batch.producer_id > 0
    ]

    assert batches
    sequence = 0
    for batch in batches:
        assert (batch.producer_epoch, batch.base_sequence) == (0, sequence)
        sequence = batch.last_sequence + 1
    assert sequence == len(ROWS["plain"])


@pytest.fixture(scope="module", params=["plain", "compiled"])
def ours(request: pytest.FixtureRequest, broker: MiniBroker, consumer: Consumer) -> Consumed:
    """A topic with every case, written by one kernel and read by librdkafka in one go."""
    kernel = PLAIN if request.param == "plain" else compiled()
    starts, topic = {}, f"ours-{kernel.name}"
    log = bytearray()
    offset = BASE_OFFSET
    for case in CASES:
        codec, name = case
        batch = bytearray(written(kernel, ROWS[name], codec))
        RecordBatch(batch).patch(offset, leader_epoch=0)
        starts[case] = offset - BASE_OFFSET
        offset += len(ROWS[name])
        log += batch
    broker.put(topic, bytes(log))
    return Consumed(topic, starts, consume(consumer, topic, BASE_OFFSET, offset - BASE_OFFSET))


@cases
def test_librdkafka_reads_what_we_write(ours: Consumed, codec: Compression, name: str) -> None:
    start, rows = ours.starts[codec, name], ROWS[name]

    assert ours.rows[start : start + len(rows)] == [
        (BASE_OFFSET + start + delta, *row) for delta, row in enumerate(rows)
    ]


@codecs
def test_librdkafka_begins_in_the_middle_of_a_batch(
    ours: Consumed, consumer: Consumer, codec: Compression
) -> None:
    middle = BASE_OFFSET + ours.starts[codec, "plain"] + 50

    found = consume(consumer, ours.topic, middle, 50)

    assert [row[0] for row in found] == list(range(middle, middle + 50))


@pytest.mark.interop
@codecs
def test_kcat_reads_what_we_write_and_we_read_what_it_sends(
    broker: MiniBroker, codec: Compression, kernel: Any
) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("no kcat on the PATH")
    topic = f"kcat-{kernel.name}-{codec.name}"
    lines = "".join(f"key-{i}:value-{i}\n" for i in range(50))
    common = [kcat, "-b", broker.address, "-t", topic, "-p", "0", "-q"]

    subprocess.run(
        [*common, "-P", "-K:", "-z", codec.config_name],
        input=lines,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    found = []
    for batch in split_batches(broker.contents(topic)):
        assert isinstance(batch, RecordBatch)
        batch.check_crc()
        found += read(kernel, batch)
    assert [b"%s:%s\n" % (row[2], row[3]) for row in found] == lines.encode().splitlines(True)

    broker.put(topic, written(kernel, ROWS["plain"], codec))
    shown = subprocess.run(
        [*common, "-C", "-o", "beginning", "-c", "100", "-f", "%o %T %k %s\n"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    ).stdout
    assert shown.splitlines() == [
        f"{BASE_OFFSET + i} {row[0]} key-{i} value-{i}" for i, row in enumerate(ROWS["plain"])
    ]
