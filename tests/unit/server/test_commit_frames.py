"""The short way of OffsetCommit says the same as the generated code, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.group.offsets.commit import OffsetCommit, commit_of, commit_response
from millstream.errors import DecodeError
from millstream.protocol.frame import encode_response
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.server import commit_frames
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.server.commit_frames import ReadCommit

VERSIONS = st.integers(2, 10)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=200)
PARTITIONS = st.builds(
    OffsetCommitRequestPartition,
    partition_index=INT32,
    committed_offset=INT64,
    committed_leader_epoch=INT32,
    committed_metadata=st.none() | TEXTS,
)
TOPICS = st.builds(
    OffsetCommitRequestTopic,
    name=TEXTS,
    topic_id=st.binary(min_size=16, max_size=16).map(Uuid),
    partitions=st.lists(PARTITIONS, max_size=4),
)
REQUESTS = st.builds(
    OffsetCommitRequest,
    group_id=TEXTS,
    generation_id_or_member_epoch=INT32,
    member_id=TEXTS,
    group_instance_id=st.none() | TEXTS,
    retention_time_ms=INT64,
    topics=st.lists(TOPICS, max_size=3),
)
COMMON = OffsetCommitRequest(
    group_id="readers",
    generation_id_or_member_epoch=3,
    member_id="m",
    topics=[
        OffsetCommitRequestTopic(
            name="orders",
            topic_id=Uuid(b"0123456789abcdef"),
            partitions=[OffsetCommitRequestPartition(partition_index=1, committed_offset=5)],
        )
    ],
)


def without_what_versions_lack(request: OffsetCommitRequest, version: int) -> OffsetCommitRequest:
    if version < 7:
        request.group_instance_id = None
    return request


def read_by_both(
    body: bytes, version: int, correlation_id: int = 77, *, end: int | None = None
) -> ReadCommit | None:
    """What the chosen twin reads inside a larger buffer, which is what the plain one does."""
    buffer = memoryview(bytearray(b"\xaa" * 7 + body + b"\xbb" * 7))
    stop = 7 + (len(body) if end is None else end)
    found = commit_frames.read_commit(buffer, 7, stop, version, correlation_id)
    assert found == commit_frames.plain_read_commit(buffer, 7, stop, version, correlation_id)
    return found


@given(VERSIONS, REQUESTS, INT32)
def test_a_commit_is_read_and_answered_as_the_generated_code_does(
    version: int, request: OffsetCommitRequest, correlation_id: int
) -> None:
    body = without_what_versions_lack(request, version).encode(version)

    found = read_by_both(body, version, correlation_id)

    assert found is not None
    fields, answer = found
    commit = OffsetCommit._make(fields)
    assert commit == commit_of(OffsetCommitRequest.decode(body, version), version)
    assert answer == encode_response(commit_response(commit, ()), version, correlation_id)


@given(VERSIONS, st.data())
def test_a_request_that_is_cut_off_is_left_to_the_decoder(
    version: int, data: st.DataObject
) -> None:
    body = COMMON.encode(version)
    assert read_by_both(body, version, end=data.draw(st.integers(0, len(body) - 1))) is None


@given(VERSIONS, st.data())
def test_both_readers_see_the_same_in_any_bytes(version: int, data: st.DataObject) -> None:
    body = bytearray(COMMON.encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    found = read_by_both(bytes(body), version)

    if found is not None:
        decoded = OffsetCommitRequest.decode(body, version)
        assert OffsetCommit._make(found[0]) == commit_of(decoded, version)


@pytest.mark.parametrize("version", range(2, 11))
def test_more_bytes_than_a_request_has_are_left_to_the_decoder(version: int) -> None:
    assert read_by_both(COMMON.encode(version) + b"\0", version) is None


@pytest.mark.parametrize("version", [8, 9, 10])
def test_tagged_fields_are_left_to_the_decoder(version: int) -> None:
    tagged = OffsetCommitRequest(group_id="readers", unknown_tags=((9, b"x"),))
    assert read_by_both(tagged.encode(version), version) is None


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (2, b"\xff\xff" + bytes(20)),  # A group without a name.
        (2, b"\xff\xfe" + bytes(20)),
        (10, b"\0" + bytes(20)),
        (10, b"\xff\xff\xff\xff\xff\x01" + bytes(20)),  # A length of too many bytes.
        (9, b"\x01" + bytes(4) + b"\x01\0\0\0"),  # No topics, not even none.
        (9, b"\x03\xff\xfe" + bytes(4) + b"\x01\0\x01\0"),  # A name that is no text.
    ],
)
def test_what_is_no_request_is_left_to_the_decoder(version: int, body: bytes) -> None:
    assert read_by_both(body, version) is None
    with pytest.raises(DecodeError):
        OffsetCommitRequest.decode(body, version)


def test_nothing_is_read_outside_of_the_buffer() -> None:
    body = memoryview(bytearray(COMMON.encode(10)))
    for at, end in ((-1, 5), (6, 5), (0, len(body) + 1)):
        assert commit_frames.read_commit(body, at, end, 10, 1) is None
