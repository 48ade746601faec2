"""Hand-made batches on the wire: no poison is taken, and what is large stops nobody."""

from __future__ import annotations

import select
import struct
from typing import TYPE_CHECKING

import pytest

from millstream.clock import SystemClock
from millstream.protocol.frame import encode_request
from millstream.protocol.messages import ProduceRequest, produce
from millstream.records import Compression, RecordBatch, RecordBatchBuilder
from millstream.records.layout import ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, RECORD_COUNT_AT
from tests.integration.node.harness import Client, running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(180)

INVALID_RECORD, MESSAGE_TOO_LARGE = 87, 10
MIB = 1 << 20


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("node")) as node:
        yield node.until_ready()


def batch(value: bytes = b"one", codec: Compression = Compression.NONE) -> bytearray:
    builder = RecordBatchBuilder()
    builder.append(SystemClock().wall_ms(), b"k", value)
    return bytearray(builder.build(compression=codec))


def resealed(data: bytearray) -> bytes:
    header = RecordBatch(data)
    header.stamp(header.timestamp_type, header.max_timestamp)
    return bytes(data)


def counted(count: int) -> bytes:
    data = batch()
    struct.pack_into(">i", data, RECORD_COUNT_AT, count)
    struct.pack_into(">i", data, LAST_OFFSET_DELTA_AT, count - 1)
    return resealed(data)


def not_of_its_codec(codec: Compression) -> bytes:
    data = batch()
    data[ATTRIBUTES_AT + 1] = codec
    return resealed(data)


def frame(topic: str, batches: list[bytes], correlation_id: int) -> bytes:
    """A Produce request with a batch for each of the first partitions."""
    parts = [
        produce.PartitionProduceData(index=index, records=records)
        for index, records in enumerate(batches)
    ]
    data = produce.TopicProduceData(name=topic, partition_data=parts)
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    return encode_request(request, 9, correlation_id, "test")


POISON = {
    "3 records for 1": counted(3),
    "2^31-1 records": counted((1 << 31) - 1),
    **{f"not {codec.name}": not_of_its_codec(codec) for codec in Compression if codec},
}


def test_poison_is_refused_and_the_log_goes_on(address: str) -> None:
    with Client(address) as client:
        assert client.create_topic("poisoned") == 0
        assert client.produce("poisoned", b"before") == (0, 0)
        for kind, records in POISON.items():
            assert client.produce_bytes("poisoned", records) == (INVALID_RECORD, -1), kind
        assert client.produce("poisoned", b"after") == (0, 1)
        assert client.values("poisoned") == [b"before", b"after"]


def test_what_unpacks_to_more_than_a_topic_allows_is_too_large(address: str) -> None:
    with Client(address) as client:
        assert client.create_topic("small", millstream_max_decompressed_bytes=str(MIB)) == 0
        records = bytes(batch(bytes(2 * MIB), Compression.ZSTD))
        assert client.produce_bytes("small", records) == (MESSAGE_TOO_LARGE, -1)


def test_a_batch_that_takes_long_keeps_its_place_before_those_behind_it(address: str) -> None:
    with Client(address) as client:
        assert client.create_topic("ordered") == 0
        large = bytes(batch(bytes(16 * MIB), Compression.ZSTD))
        small = bytes(batch(b"small"))
        client.socket.sendall(
            frame("ordered", [small], 1)
            + frame("ordered", [large], 2)
            + b"".join(frame("ordered", [small], 3 + number) for number in range(20))
        )
        answers = [
            client.read_answer(ProduceRequest, 9, produce.ProduceResponse) for _ in range(22)
        ]
    assert [answer.responses[0].partition_responses[0].base_offset for answer in answers] == list(
        range(22)
    )


def test_a_few_kilobytes_that_unpack_hugely_stop_nobody(address: str) -> None:
    with Client(address) as attacker, Client(address) as client:
        assert attacker.create_topic("bombed", 16) == 0
        assert client.create_topic("canary") == 0
        bomb = bytes(batch(bytes(60 * MIB), Compression.ZSTD))
        assert len(bomb) < 8192

        attacker.socket.sendall(frame("bombed", [bomb] * 16, 1))
        for number in range(5):
            assert client.produce("canary", b"alive") == (0, number)

        # The canary was answered while the other request was still worked on.
        assert select.select([attacker.socket], [], [], 0)[0] == []
        answer = attacker.read_answer(ProduceRequest, 9, produce.ProduceResponse)
        codes = [each.error_code for each in answer.responses[0].partition_responses]
        assert codes == [0] * 16
