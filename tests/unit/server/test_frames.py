"""The short way of Produce says the same as the generated code, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.frame import encode_response
from millstream.protocol.messages import produce
from millstream.server import produce_frames
from millstream.types import Uuid
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    import pytest

    from millstream.protocol.message import Message

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_ID = Uuid(b"0123456789abcdef")
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=249)


class Slice:
    """Stands for records in a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.length = len(data)

    def __len__(self) -> int:
        return self.length


def body(message: Message, version: int) -> tuple[memoryview, int, int]:
    """A body inside a larger buffer, as the network has it."""
    encoded = message.encode(version)
    return memoryview(bytearray(b"\xaa" * 7 + encoded + b"\xbb" * 7)), 7, 7 + len(encoded)


def produce_request(name: str, acks: int, timeout_ms: int, index: int) -> produce.ProduceRequest:
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            produce.TopicProduceData(
                name=name,
                topic_id=TOPIC_ID,
                partition_data=[produce.PartitionProduceData(index=index, records=batch_bytes())],
            )
        ],
    )


def read_by_both(
    buffer: memoryview, at: int, end: int, version: int
) -> produce_frames.SingleProduce | None:
    """What the chosen twin reads, which is what the plain one does."""
    single = produce_frames.read_single(buffer, at, end, version)
    assert single == produce_frames.plain_read_single(buffer, at, end, version)
    return single


@given(st.integers(3, 13), NAMES, st.integers(-1, 1), INT32, INT32)
def test_produce_is_read_as_the_decoder_reads_it(
    version: int, name: str, acks: int, timeout_ms: int, index: int
) -> None:
    request = produce_request(name, acks, timeout_ms, index)

    buffer, at, end = body(request, version)
    single = read_by_both(buffer, at, end, version)

    if single is None:
        assert version >= 9
        assert len(name) > 126
        return
    topics = produce_frames.SpelledTopics()
    for _ in range(2):
        topic = topics.find(single[2], version)
        assert topic == (name if version < 13 else TOPIC_ID)
        assert type(topic) is (str if version < 13 else Uuid)
    assert (*single[:2], single[3]) == (acks, timeout_ms, index)
    assert buffer[single[4] : single[5]] == batch_bytes()


@given(st.integers(3, 13), st.data())
def test_damaged_produce_requests_are_left_to_the_decoder(
    version: int, data: st.DataObject
) -> None:
    buffer, start, end = body(produce_request("orders", -1, 1000, 0), version)
    cut = data.draw(st.integers(start, end - 1))

    assert read_by_both(buffer, start, cut, version) is None


@given(st.integers(3, 13), st.data())
def test_both_readers_see_the_same_in_any_bytes(version: int, data: st.DataObject) -> None:
    buffer, start, end = body(produce_request("orders", -1, 1000, 0), version)
    for _ in range(data.draw(st.integers(1, 3))):
        buffer[data.draw(st.integers(start, start + 40))] = data.draw(st.integers(0, 255))

    single = read_by_both(buffer, start, end, version)

    # Bytes that are no name are seen by `SpelledTopics`.
    if single is not None and produce_frames.SpelledTopics().find(single[2], version) is not None:
        decoded = produce.ProduceRequest.decode(buffer[start:end], version)
        assert (decoded.acks, decoded.timeout_ms) == single[:2]
        (part,) = decoded.topic_data[0].partition_data
        assert (part.index, part.records) == (single[3], buffer[single[4] : single[5]])


def test_a_topic_that_is_no_text_is_left_to_the_decoder() -> None:
    assert produce_frames.SpelledTopics().find(b"\x03\xff\xfe", 9) is None


def test_topics_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_frames, "_TOPICS_MAX", 2)
    topics = produce_frames.SpelledTopics()
    spelled = [b"\x02a", b"\x02b", b"\x02c", b"\x02a"]

    assert [topics.find(each, 9) for each in spelled] == ["a", "b", "c", "a"]
    assert len(topics._names) <= 2


@given(st.integers(3, 13), NAMES.filter(lambda n: len(n) < 127), INT32, INT64, INT64, INT64, INT32)
def test_produce_is_answered_as_the_encoder_would(
    version: int, name: str, index: int, base: int, time: int, start: int, correlation_id: int
) -> None:
    single = read_by_both(*body(produce_request(name, 1, 0, index), version), version)
    assert single is not None
    arguments = (version, correlation_id, single[2], index, base, time, start)
    answer = produce_frames.write_single(*arguments)
    assert answer == produce_frames.plain_write_single(*arguments)

    partition = produce.PartitionProduceResponse(
        index=index, base_offset=base, log_append_time_ms=time, log_start_offset=start
    )
    topic = produce.TopicProduceResponse(
        name=name, topic_id=TOPIC_ID, partition_responses=[partition]
    )
    response = produce.ProduceResponse(responses=[topic])
    assert answer == encode_response(response, version, correlation_id)
