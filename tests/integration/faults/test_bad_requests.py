"""Requests that are requests, and wrong: each gets Kafka's own error and nothing else happens."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from millstream.clock import SystemClock
from millstream.protocol.messages import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from millstream.records.builder import RecordBatchBuilder
from millstream.records.kernel import crc32c
from millstream.types import Uuid
from tests.integration.faults.harness import is_closed
from tests.waiting import until

if TYPE_CHECKING:
    from tests.integration.faults.harness import Broker
    from tests.integration.node.harness import Client

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
INVALID_REQUIRED_ACKS = 21
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100

CRC_AT, CRC_FROM = 17, 21
MAGIC_AT = 16


def batch(*values: bytes) -> bytes:
    builder, now_ms = RecordBatchBuilder(), SystemClock().wall_ms()
    builder.extend((now_ms, None, value) for value in values)
    return builder.build()


def changed(data: bytes, position: int, new: bytes, *, repairs_crc: bool = False) -> bytes:
    made = bytearray(data)
    made[position : position + len(new)] = new
    if repairs_crc:
        made[CRC_AT:CRC_FROM] = struct.pack(">I", crc32c(memoryview(made)[CRC_FROM:]))
    return bytes(made)


GOOD = batch(b"one", b"two")
BAD_BATCHES = {
    "bad crc": (changed(GOOD, len(GOOD) - 2, b"!"), CORRUPT_MESSAGE),
    "torn": (GOOD[:-5], INVALID_RECORD),
    "no header": (b"\0" * 20, CORRUPT_MESSAGE),
    "length of nothing": (changed(GOOD, 8, b"\0\0\0\0"), CORRUPT_MESSAGE),
    "length beyond the request": (changed(GOOD, 8, b"\x7f\0\0\0"), INVALID_RECORD),
    "magic 3": (changed(GOOD, MAGIC_AT, b"\x03"), CORRUPT_MESSAGE),
    "magic 1": (changed(GOOD, MAGIC_AT, b"\x01"), INVALID_RECORD),
    "two batches": (GOOD + GOOD, INVALID_RECORD),
    "nothing": (b"", INVALID_RECORD),
    "codec 7": (changed(GOOD, 21, b"\0\x07", repairs_crc=True), UNSUPPORTED_COMPRESSION_TYPE),
    "wrong count": (changed(GOOD, 57, b"\0\0\0\x09", repairs_crc=True), INVALID_RECORD),
    "control batch": (changed(GOOD, 21, b"\0\x20", repairs_crc=True), INVALID_RECORD),
    "oversized": (batch(b"x" * 2_000_000), MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("kind", BAD_BATCHES)
def test_a_bad_batch_is_refused_and_leaves_nothing(broker: Broker, topic: str, kind: str) -> None:
    records, expected = BAD_BATCHES[kind]
    with broker.client() as client:
        code, offset = client.produce_bytes(topic, records)
        assert (code, offset) == (expected, -1)
        # The same connection goes on, and what follows is at the first offset.
        assert client.produce(topic, b"good") == (0, 0)
        assert client.values(topic) == [b"good"]


def test_a_flood_of_bad_batches_does_not_flood_the_log(broker: Broker, topic: str) -> None:
    records, _ = BAD_BATCHES["bad crc"]
    with broker.client() as client:
        for _ in range(300):
            assert client.produce_bytes(topic, records)[0] == CORRUPT_MESSAGE

        def said() -> list[str]:
            return broker.said("Refused records of 127.0.0.1", "checksum", level="INFO")

        # Other tests may have used up what is said in a while: then it is said in the next.
        until(lambda: client.produce_bytes(topic, records)[0] == CORRUPT_MESSAGE and said() != [])
        assert len(said()) <= 10


def test_a_bad_batch_without_acks_closes_the_connection(broker: Broker, topic: str) -> None:
    part = produce.PartitionProduceData(index=0, records=BAD_BATCHES["bad crc"][0])
    data = produce.TopicProduceData(name=topic, partition_data=[part])
    with broker.client() as client:
        client.send(ProduceRequest(acks=0, topic_data=[data]), 9)
        assert is_closed(client.socket)
    until(lambda: broker.said("acks=0", "refused", level="INFO"))
    broker.still_serves()


def test_acks_that_do_not_exist_are_refused(broker: Broker, topic: str) -> None:
    part = produce.PartitionProduceData(index=0, records=GOOD)
    data = produce.TopicProduceData(name=topic, partition_data=[part])
    with broker.client() as client:
        response = client.ask(ProduceRequest(acks=7, topic_data=[data]), 9, produce.ProduceResponse)
        code = response.responses[0].partition_responses[0].error_code
        assert code == INVALID_REQUIRED_ACKS
        assert client.values(topic) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/../../etc", "a\0b"])
def test_an_invalid_name_makes_no_topic(broker: Broker, name: str) -> None:
    with broker.client() as client:
        assert client.create_topic(name) == INVALID_TOPIC_EXCEPTION
        topic = metadata.MetadataRequestTopic(name=name)
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=True)
        response = client.ask(request, 12, metadata.MetadataResponse)
        assert response.topics[0].error_code == INVALID_TOPIC_EXCEPTION
        assert client.produce_bytes(name, GOOD)[0] in (
            UNKNOWN_TOPIC_OR_PARTITION,
            INVALID_TOPIC_EXCEPTION,
        )
        assert name not in client.topics()


def test_unknown_topics_and_ids_have_their_own_errors(broker: Broker, topic: str) -> None:
    with broker.client() as client:
        assert client.produce_bytes("nowhere", GOOD)[0] == UNKNOWN_TOPIC_OR_PARTITION
        assert client.fetch("nowhere", 0)[0] == UNKNOWN_TOPIC_OR_PARTITION
        unknown = Uuid(b"no such topic id")
        part = produce.PartitionProduceData(index=0, records=GOOD)
        data = produce.TopicProduceData(topic_id=unknown, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
        produced = client.ask(request, 13, produce.ProduceResponse)
        assert produced.responses[0].partition_responses[0].error_code == UNKNOWN_TOPIC_ID
        asked = fetch.FetchTopic(
            topic_id=unknown, partitions=[fetch.FetchPartition(partition=0, fetch_offset=0)]
        )
        fetched = client.ask(FetchRequest(max_wait_ms=0, topics=[asked]), 16, fetch.FetchResponse)
        assert fetched.responses[0].partitions[0].error_code == UNKNOWN_TOPIC_ID
        by_id = metadata.MetadataRequestTopic(topic_id=unknown, name=None)
        known = client.ask(MetadataRequest(topics=[by_id]), 12, metadata.MetadataResponse)
        assert known.topics[0].error_code == UNKNOWN_TOPIC_ID
        assert "nowhere" not in client.topics()
        assert client.produce(topic, b"good") == (0, 0)


@pytest.mark.parametrize("offset", [-5, 3, 1 << 40, (1 << 63) - 1])
def test_an_offset_that_is_not_there_is_out_of_range(
    broker: Broker, topic: str, offset: int
) -> None:
    with broker.client() as client:
        assert client.produce(topic, b"a", b"b") == (0, 0)
        assert client.fetch(topic, offset)[0] == OFFSET_OUT_OF_RANGE
        assert client.values(topic) == [b"a", b"b"]


def test_a_partition_that_is_not_there_is_unknown(broker: Broker, topic: str) -> None:
    with broker.client() as client:
        assert _latest_offset(client, topic, 0) == (0, 0)
        for partition in (-1, 1, 1 << 30):
            assert _latest_offset(client, topic, partition) == (UNKNOWN_TOPIC_OR_PARTITION, -1)


def _latest_offset(client: Client, topic: str, partition: int) -> tuple[int, int]:
    asked = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    response = client.ask(request, 7, list_offsets.ListOffsetsResponse)
    answer = response.topics[0].partitions[0]
    return answer.error_code, answer.offset
