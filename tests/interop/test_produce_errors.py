"""The same bad records to Apache Kafka and to us: both answer with the same error code.

A client cannot tell the two apart by what they refuse, except where `DELIBERATE` says so.
Records that are null have no place here: Apache Kafka never answers.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import pytest

from millstream.clock import SystemClock
from millstream.protocol.messages import ProduceRequest, produce
from millstream.records import Compression
from millstream.records.builder import RecordBatchBuilder
from millstream.records.kernel import crc32c
from millstream.types import Uuid
from tests.integration.node.harness import Client, running
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

NOW = SystemClock().wall_ms()
TOO_LATE = NOW + 7_200_000
LENGTH_AT, MAGIC_AT, CRC_AT, CRC_FROM, HEADER = 8, 16, 17, 21, 61
ATTRIBUTES_AT, DELTA_AT, BASE_TIME_AT, MAX_TIME_AT, PRODUCER_AT, COUNT_AT = 21, 23, 27, 35, 43, 57
INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE = 87, 76
VERSIONS = (3, 7, 9, 12, 13)
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "recent": {"message_timestamp_before_max_ms": "3600000"},
}


def batch(
    value: bytes = b"one", *, key: bytes | None = b"k", at: int = NOW, codec: int = 0
) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend([(at, key, value), (at, key, b"two")])
    return builder.build(compression=Compression(codec))


def changed(data: bytes, position: int, new: bytes, *, is_sealed: bool = True) -> bytes:
    """Other bytes somewhere, with a right checksum unless told."""
    made = bytearray(data)
    made[position : position + len(new)] = new
    if is_sealed:
        made[CRC_AT:CRC_FROM] = struct.pack(">I", crc32c(memoryview(made)[CRC_FROM:]))
    return bytes(made)


def counted(data: bytes, count: int, delta: int) -> bytes:
    """The batch with another count of records and last offset delta."""
    return changed(changed(data, COUNT_AT, number(count)), DELTA_AT, number(delta))


def with_body(data: bytes, body: bytes) -> bytes:
    """The header of a batch before other records."""
    made = data[:HEADER] + body
    return changed(made, LENGTH_AT, number(len(made) - 12))


def number(value: int) -> bytes:
    return struct.pack(">i", value)


def time(value: int) -> bytes:
    return struct.pack(">q", value)


def producer(producer_id: int, epoch: int, sequence: int) -> bytes:
    return struct.pack(">qhi", producer_id, epoch, sequence)


def old_message(magic: int) -> bytes:
    """A message of a format before batches."""
    at = time(NOW) if magic else b""
    body = struct.pack(">bb", magic, 0) + at + number(1) + b"k" + number(3) + b"old"
    return time(0) + number(len(body) + 4) + struct.pack(">I", zlib.crc32(body)) + body


GOOD = batch()
LARGE = batch(b"x" * 2_000_000)
BAD_CRC = changed(GOOD, len(GOOD) - 2, b"!", is_sealed=False)
PACKED = {codec.name.lower(): batch(b"one" * 50, codec=codec) for codec in Compression if codec}

ENVELOPES = {
    "good": GOOD,
    "empty": b"",
    "11 bytes": bytes(11),
    "16 bytes": bytes(16),
    "17 bytes": bytes(17),
    "61 bytes": bytes(61),
    "text": b"hello, is anybody there? " * 4,
    "old magic 0": old_message(0),
    "old magic 1": old_message(1),
    **{f"magic {magic}": changed(GOOD, MAGIC_AT, bytes([magic])) for magic in (0, 1, 3, 255)},
    "bad checksum": BAD_CRC,
    "no checksum": changed(GOOD, CRC_AT, bytes(4), is_sealed=False),
    **{
        f"length {length}": changed(GOOD, LENGTH_AT, number(length))
        for length in (-1, 0, 13, 14, 48, 49, len(GOOD) - 13, len(GOOD) - 11, 0x7F000000)
    },
    "torn": GOOD[:-5],
    "torn in the header": GOOD[:40],
    "a few bytes more": GOOD + bytes(5),
    "zeros behind": GOOD + bytes(20),
    "two": GOOD + GOOD,
    "two, the second torn": GOOD + GOOD[:-3],
    "two, the second bad": GOOD + BAD_CRC,
    "two, the first bad": BAD_CRC + GOOD,
    "two, the second old": GOOD + old_message(1),
    "base offset 7": changed(GOOD, 0, time(7), is_sealed=False),
    "base offset -1": changed(GOOD, 0, time(-1), is_sealed=False),
    "base offset 7, bad checksum": changed(BAD_CRC, 0, time(7), is_sealed=False),
    "leader epoch 9": changed(GOOD, 12, number(9), is_sealed=False),
    "too large": LARGE,
    "too large, bad checksum": changed(LARGE, 500, b"!", is_sealed=False),
    "too large, base offset 7": changed(LARGE, 0, time(7), is_sealed=False),
    "large when unpacked": batch(b"x" * 2_000_000, codec=1),
}
HEADERS = {
    **{
        f"{count} records, delta {delta}": counted(GOOD, count, delta)
        for count, delta in ((9, 1), (1, 1), (0, 1), (-1, 1), (2, 5), (2, -1), (2, 0))
    },
    "no records": with_body(counted(GOOD, 0, -1), b""),
    **{
        f"attribute bit {bit}": changed(GOOD, ATTRIBUTES_AT, struct.pack(">H", 1 << bit))
        for bit in range(3, 16)
    },
    "codec 5": changed(GOOD, ATTRIBUTES_AT, b"\0\5"),
    "codec 7": changed(GOOD, ATTRIBUTES_AT, b"\0\7"),
    **PACKED,
    "no key": batch(key=None),
    "no key, gzip": batch(key=None, codec=1),
    "late": batch(at=TOO_LATE),
    "late, gzip": batch(at=TOO_LATE, codec=1),
    "much too late": batch(at=(1 << 63) - 1),
    "early": batch(at=1),
    "time -1": batch(at=-1),
    "time -5": batch(at=-5),
    "newest time too late": changed(GOOD, MAX_TIME_AT, time(TOO_LATE)),
    "newest time too late, gzip": changed(PACKED["gzip"], MAX_TIME_AT, time(TOO_LATE)),
    "newest time -1": changed(GOOD, MAX_TIME_AT, time(-1)),
    "first time too late": changed(GOOD, BASE_TIME_AT, time(TOO_LATE)),
    "first time -1": changed(GOOD, BASE_TIME_AT, time(-1)),
    "producer without epoch": changed(GOOD, PRODUCER_AT, producer(5, -1, 0)),
    "producer without sequence": changed(GOOD, PRODUCER_AT, producer(5, 0, -1)),
    "producer -2": changed(GOOD, PRODUCER_AT, producer(-2, 0, 0)),
    "sequence without producer": changed(GOOD, PRODUCER_AT, producer(-1, 0, 5)),
    "a producer": changed(GOOD, PRODUCER_AT, producer(1234, 0, 0)),
    "transaction without id": changed(
        changed(GOOD, ATTRIBUTES_AT, b"\0\x10"), PRODUCER_AT, producer(5, 0, 0)
    ),
    "marker without id": changed(
        changed(GOOD, ATTRIBUTES_AT, b"\0\x30"), PRODUCER_AT, producer(5, 0, 0)
    ),
}
RECORDS = {
    "too few records": counted(GOOD, 9, 8),
    "too many records": counted(GOOD, 1, 0),
    "no body": with_body(GOOD, b""),
    "garbage": with_body(GOOD, b"\xff" * 22),
    "zeros": with_body(GOOD, bytes(22)),
    "garbage behind": with_body(GOOD, GOOD[HEADER:] + b"xyz"),
    "not gzip": changed(GOOD, ATTRIBUTES_AT, b"\0\1"),
    "gzip, not said": changed(PACKED["gzip"], ATTRIBUTES_AT, b"\0\0"),
    "garbage in gzip": with_body(PACKED["gzip"], gzip.compress(b"\xff" * 60)),
    **{f"garbage as {name}": with_body(data, b"garbage!" * 8) for name, data in PACKED.items()},
    **{f"torn {name}": with_body(data, data[HEADER:-6]) for name, data in PACKED.items()},
    **{f"too few in {name}": counted(data, 9, 8) for name, data in PACKED.items()},
    **{f"too many in {name}": counted(data, 1, 0) for name, data in PACKED.items()},
}
"""Right outside, wrong inside."""

DELIBERATE = {
    "codec 5": UNSUPPORTED_COMPRESSION_TYPE,  # Apache Kafka: an unknown server error.
    "codec 7": UNSUPPORTED_COMPRESSION_TYPE,
    "attribute bit 6": INVALID_RECORD,  # A delete horizon, which only a cleaner may set.
}
"""Where our answer says more, or protects the log."""


class Peer(NamedTuple):
    """A broker and its topics."""

    address: str
    topic_ids: dict[str, bytes]

    @classmethod
    def prepared(cls, address: str) -> Peer:
        """Make the topics."""
        with Client(address) as client:
            for name, configs in TOPICS.items():
                assert client.create_topic(name, 1, **configs) == 0
            ids = {name: topic_id for name, (topic_id, _) in client.topics().items()}
        return cls(address, ids)

    def code(self, topic: str, records: bytes, version: int) -> int:
        """The error code for records."""
        part = produce.PartitionProduceData(index=0, records=records)
        data = produce.TopicProduceData(partition_data=[part])
        if version >= 13:
            data.topic_id = Uuid(self.topic_ids[topic])
        else:
            data.name = topic
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
        with Client(self.address) as client:
            response = client.ask(request, version, produce.ProduceResponse)
        return response.responses[0].partition_responses[0].error_code

    def codes(self, records: bytes) -> dict[str, int]:
        """The error codes of all versions in one topic, and of one version in the others."""
        found = {f"plain, {each}": self.code("plain", records, each) for each in VERSIONS}
        return found | {
            topic: self.code(topic, records, 12) for topic in TOPICS if topic != "plain"
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Apache Kafka."""
    scratch = tmp_path_factory.mktemp("kafka")
    (scratch / "data").mkdir()
    broker = KafkaBroker(require_broker_jars(scratch), scratch / "data", scratch)
    broker.format()
    try:
        broker.start()
        yield Peer.prepared(broker.address)
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker of ours."""
    with running(tmp_path_factory.mktemp("ours")) as node:
        yield Peer.prepared(node.until_ready())


@pytest.mark.parametrize("kind", ENVELOPES)
def test_both_say_the_same_about_a_batch_as_a_whole(kafka: Peer, ours: Peer, kind: str) -> None:
    assert ours.codes(ENVELOPES[kind]) == kafka.codes(ENVELOPES[kind])


@pytest.mark.parametrize("kind", HEADERS)
def test_both_say_the_same_about_a_header(kafka: Peer, ours: Peer, kind: str) -> None:
    found, theirs = ours.codes(HEADERS[kind]), kafka.codes(HEADERS[kind])

    if kind in DELIBERATE:
        assert set(found.values()) == {DELIBERATE[kind]}
        assert found != theirs
    else:
        assert found == theirs


@pytest.mark.parametrize("kind", RECORDS)
def test_both_refuse_what_cannot_be_read(kafka: Peer, ours: Peer, kind: str) -> None:
    records = RECORDS[kind]

    for topic in TOPICS:
        assert ours.code(topic, records, 12) == INVALID_RECORD
        # Apache Kafka has an unknown server error for some of them.
        assert kafka.code(topic, records, 12) in (INVALID_RECORD, -1)
