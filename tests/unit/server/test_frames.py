"""The short ways of Fetch say the same as the generated code, byte for byte."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.frame import encode_response
from millstream.protocol.messages import fetch
from millstream.replica.fetch_session import FetchAnswer
from millstream.replica.fetch_target import FetchTarget, PartitionFetch
from millstream.server import fetch_frames
from millstream.types import Uuid

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.protocol.message import Message
    from millstream.replica.single_fetch import SingleRequest

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


def read_single_by_both(
    buffer: memoryview, at: int, end: int, version: int
) -> SingleRequest | None:
    """The compiled reader, if there is one, and its twin agree."""
    single = fetch_frames.read_single(buffer, at, end, version)
    assert single == fetch_frames.plain_read_single(buffer, at, end, version)
    return single


def read_fetch(message: Message, version: int) -> fetch_frames.PlainFetch | None:
    """A request the short way of its version."""
    if version < fetch_frames.TOPIC_IDS_SINCE:
        return fetch_frames.READERS[version](*body(message, version))
    single = read_single_by_both(*body(message, version), version)
    return None if single is None else fetch_frames.plain_of(single)


@pytest.mark.parametrize("version", [9, 10, 11, *range(13, 19)])
@pytest.mark.parametrize("has_partition", [False, True])
def test_fetch_is_read_as_the_decoder_reads_it(version: int, has_partition: bool) -> None:
    asked = fetch.FetchPartition(
        partition=3,
        current_leader_epoch=4,
        fetch_offset=5,
        last_fetched_epoch=6 if version >= 12 else -1,
        log_start_offset=7,
        partition_max_bytes=8,
    )
    request = fetch.FetchRequest(
        max_wait_ms=1,
        min_bytes=2,
        max_bytes=3,
        isolation_level=1,
        session_id=9,
        session_epoch=10,
        topics=[fetch.FetchTopic(topic="orders", topic_id=TOPIC_ID, partitions=[asked])]
        if has_partition
        else [],
    )

    plain = read_fetch(request, version)

    assert plain is not None
    assert plain[:6] == (1, 2, 3, 1, 9, 10)
    assert len(plain.targets) == has_partition
    for target in plain.targets:
        assert target.topic == ("orders" if version < 13 else TOPIC_ID)
        assert (target.index, target.fetch_offset, target.partition_max_bytes) == (3, 5, 8)
        assert (target.current_leader_epoch, target.log_start_offset) == (4, 7)
        assert target.last_fetched_epoch == (6 if version >= 12 else -1)


@pytest.mark.parametrize("version", [11, 13, 14, 15, 18])
@pytest.mark.parametrize(
    "change",
    [
        {"replica_id": 2},
        {"rack_id": "a"},
        {"forgotten_topics_data": [fetch.ForgottenTopic(topic="o", partitions=[0])]},
        {"topics": [fetch.FetchTopic(topic="a"), fetch.FetchTopic(topic="b")]},
        {"topics": [fetch.FetchTopic(topic="a", partitions=[fetch.FetchPartition()] * 2)]},
    ],
)
def test_uncommon_fetches_are_left_to_the_decoder(version: int, change: dict[str, object]) -> None:
    if version >= 15 and "replica_id" in change:
        change = {"replica_state": fetch.ReplicaState(replica_id=2)}
    request = fetch.FetchRequest(session_id=1, session_epoch=1, **change)  # type: ignore[arg-type]

    assert read_fetch(request, version) is None


@given(st.integers(13, 18), st.data())
def test_damaged_fetches_are_read_alike_by_both(version: int, data: st.DataObject) -> None:
    asked = fetch.FetchPartition(partition=1, fetch_offset=5, partition_max_bytes=8)
    topics = [fetch.FetchTopic(topic_id=TOPIC_ID, partitions=[asked])]
    request = fetch.FetchRequest(topics=topics if data.draw(st.booleans()) else [])
    buffer, at, end = body(request, version)
    damaged = bytearray(buffer)
    damaged[data.draw(st.integers(at, end - 1))] = data.draw(st.integers(0, 255))
    stop = data.draw(st.sampled_from([end, end - 1, end + 1, at, len(damaged) + 1]))

    if stop <= len(damaged):
        read_single_by_both(memoryview(damaged), at, stop, version)


@given(st.data())
def test_a_single_answer_begins_alike_by_both(data: st.DataObject) -> None:
    drawn = [data.draw(each) for each in (INT32, INT32, INT32, INT64, INT64, INT64, st.booleans())]
    length = data.draw(st.integers(0, 2**31 - 200))
    about: Any = (*drawn[:2], TOPIC_ID, *drawn[2:], length)

    assert fetch_frames.write_single(*about) == fetch_frames.plain_write_single(*about)


def test_records_are_read_into_their_answer_alike_by_both(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(range(256)) * 40)
    about = (7, 8, TOPIC_ID, 9, 10, 11, 12, True)
    with path.open("rb") as file:
        for position, length in ((5, 1), (0, 10_240), (1, 10_240), (20_000, 5)):
            for descriptor in (file.fileno(), 1 << 20):
                arguments = (descriptor, position, length, *about)
                answer = fetch_frames.read_answer(*arguments)

                assert answer == fetch_frames.plain_read_answer(*arguments)
                is_there = position + length <= 10_240 and descriptor == file.fileno()
                assert (answer is not None) == is_there


def test_a_topic_id_has_sixteen_bytes() -> None:
    with pytest.raises((ValueError, struct.error)):
        fetch_frames.write_single(1, 2, "short", 3, 4, 5, 6, False, 7)  # type: ignore[arg-type]


found_partitions = st.lists(
    st.tuples(
        st.sampled_from(["orders", "other"]),
        st.integers(0, 5),
        st.builds(
            PartitionFetch,
            st.none(),
            INT64,
            INT64,
            INT64,
            st.none() | st.binary(min_size=1, max_size=300).map(Slice),
            st.sampled_from([None, ()]),
        ),
    ),
    max_size=5,
)


@given(st.integers(4, 18), found_partitions, INT32, INT32)
def test_fetch_is_answered_as_the_encoder_would(
    version: int,
    found: list[tuple[str, int, PartitionFetch]],
    session_id: int,
    correlation_id: int,
) -> None:
    ids = {"orders": TOPIC_ID, "other": Uuid(b"fedcba9876543210")}
    if version < 7:
        session_id = 0
    answer = FetchAnswer(
        session_id,
        [
            (FetchTarget(ids[topic] if version >= 13 else topic, index, 0, 0), each)
            for topic, index, each in found
        ],
    )

    parts = fetch_frames.write_plain(answer, version, correlation_id)

    written = b"".join(getattr(part, "data", None) or bytes(part) for part in parts)  # type: ignore[arg-type]
    assert written == encode_response(expected(found, ids, session_id), version, correlation_id)


def expected(
    found: list[tuple[str, int, PartitionFetch]], ids: dict[str, Uuid], session_id: int
) -> fetch.FetchResponse:
    """The same answer as a message; neighbours of one topic share its entry."""
    response = fetch.FetchResponse(session_id=session_id)
    last = None
    for topic, index, each in found:
        if topic != last:
            response.responses.append(
                fetch.FetchableTopicResponse(topic=topic, topic_id=ids[topic])
            )
            last = topic
        aborted: list[fetch.AbortedTransaction] | None = (
            None if each.aborted_transactions is None else []
        )
        response.responses[-1].partitions.append(
            fetch.PartitionData(
                partition_index=index,
                high_watermark=each.high_watermark,
                last_stable_offset=each.last_stable_offset,
                log_start_offset=each.log_start_offset,
                aborted_transactions=aborted,
                records=each.records.data if each.records else b"",  # type: ignore[attr-defined]
            )
        )
    return response
