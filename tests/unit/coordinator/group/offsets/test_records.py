"""The records of offsets are the same bytes whichever way they are made."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from millstream.coordinator.batches import encode_record
from millstream.coordinator.group.offsets.records import NO_EXPIRY, offset_record
from millstream.protocol.records_framing import GROUP_RECORDS
from millstream.types import Uuid

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_ID = Uuid(b"0123456789abcdef")


@given(
    group=st.text(max_size=20),
    topic_id=st.sampled_from([Uuid.ZERO, TOPIC_ID]),
    partition=INT32,
    offset=INT64,
    leader_epoch=INT32,
    metadata=st.text(max_size=5),
    commit_ms=INT64,
    expire_ms=st.just(NO_EXPIRY) | st.integers(0, 2**63 - 1),
)
@example("g", TOPIC_ID, 0, 5, -1, "", 17, NO_EXPIRY)
def test_an_offset_is_written_as_its_messages_say(
    group: str,
    topic_id: Uuid,
    partition: int,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_ms: int,
    expire_ms: int,
) -> None:
    record = offset_record(
        group, "orders", topic_id, partition, offset, leader_epoch, metadata, commit_ms, expire_ms
    )

    written = encode_record(GROUP_RECORDS, record)

    assert written == GROUP_RECORDS.encode(record.key, record.value, record.version)
