"""Messages inside records and blobs, with what stands in front of them."""

from __future__ import annotations

import pytest

from millstream.errors import DecodeError, EncodeError
from millstream.protocol import messages
from millstream.protocol.messages import record_types
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from millstream.protocol.records_framing import (
    GROUP_RECORDS,
    SHARE_RECORDS,
    TRANSACTION_RECORDS,
    ControlRecordType,
    CoordinatorRecords,
    decode_assignment,
    decode_control_key,
    decode_end_txn_marker,
    decode_kraft_control,
    decode_metadata_record,
    decode_principal,
    decode_subscribed_topics,
    decode_subscription,
    encode_assignment,
    encode_control_key,
    encode_kraft_control,
    encode_metadata_record,
    encode_principal,
    encode_subscription,
)
from millstream.types import Uuid

OFFSET_KEY = messages.OffsetCommitKey(group="g", topic="t", partition=3)


def test_a_coordinator_record_has_its_type_in_the_key_and_its_version_in_the_value() -> None:
    value = messages.OffsetCommitValue(offset=9)

    key_bytes, value_bytes = GROUP_RECORDS.encode(OFFSET_KEY, value, 3)

    assert key_bytes[:2] == b"\0\1"
    assert value_bytes is not None
    assert value_bytes[:2] == b"\0\3"
    assert GROUP_RECORDS.decode(key_bytes, value_bytes) == (OFFSET_KEY, value)


def test_a_null_value_is_a_tombstone() -> None:
    key_bytes, value_bytes = GROUP_RECORDS.encode(OFFSET_KEY, None)

    assert value_bytes is None
    assert GROUP_RECORDS.decode(memoryview(key_bytes), None) == (OFFSET_KEY, None)


@pytest.mark.parametrize(
    ("records", "keys", "values"),
    [
        (GROUP_RECORDS, record_types.GROUP_KEYS, record_types.GROUP_VALUES),
        (TRANSACTION_RECORDS, record_types.TRANSACTION_KEYS, record_types.TRANSACTION_VALUES),
        (SHARE_RECORDS, record_types.SHARE_KEYS, record_types.SHARE_VALUES),
    ],
)
def test_every_coordinator_record_comes_back(
    records: CoordinatorRecords, keys: dict[int, str], values: dict[int, str]
) -> None:
    assert keys.keys() == values.keys()
    for record_type in keys:
        key = getattr(messages, keys[record_type])()
        value = getattr(messages, values[record_type])()
        encoded = records.encode(key, value, value.VERSIONS.highest)

        assert records.decode(*encoded) == (key, value)


def test_a_record_of_an_unknown_type_is_named() -> None:
    with pytest.raises(DecodeError, match="no group record of type 99"):
        GROUP_RECORDS.decode(b"\0\x63", None)
    with pytest.raises(DecodeError, match="1 bytes, at least 2 needed"):
        GROUP_RECORDS.decode(b"\0", None)


def test_keys_and_values_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(EncodeError, match="not a key of a transaction record"):
        TRANSACTION_RECORDS.encode(OFFSET_KEY, None)
    with pytest.raises(EncodeError, match="OffsetCommitKey does not go with it"):
        GROUP_RECORDS.encode(OFFSET_KEY, messages.GroupMetadataValue())


def test_a_metadata_record_has_frame_type_and_version_in_front() -> None:
    record = messages.TopicRecord(name="t", topic_id=Uuid(bytes(range(16))))

    encoded = encode_metadata_record(record, 0)

    assert encoded[:3] == b"\x01\x02\x00"
    assert decode_metadata_record(encoded) == (record, 0)
    assert decode_metadata_record(memoryview(encoded)) == (record, 0)


def test_every_metadata_record_comes_back_in_every_version() -> None:
    for name in record_types.METADATA_RECORDS.values():
        record = getattr(messages, name)()
        for version in range(record.VERSIONS.lowest, record.VERSIONS.highest + 1):
            encoded = encode_metadata_record(record, version)

            assert decode_metadata_record(encoded) == (record, version)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("00020000", "frame version 0, known is 1"),
        ("02020000", "frame version 2, known is 1"),
        ("016300", "no metadata record of type 99"),
        ("01", "truncated inside a varint"),
        ("0114000000", "1 bytes follow the last field"),
        ("011463", "there is no version 99"),
    ],
)
def test_bad_metadata_records_are_named(raw: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        decode_metadata_record(bytes.fromhex(raw))


def test_only_metadata_records_go_into_the_metadata_log() -> None:
    with pytest.raises(EncodeError, match="MetadataRequest: not a metadata record"):
        encode_metadata_record(messages.MetadataRequest(), 1)


@pytest.mark.parametrize(
    ("message", "record_type"),
    [
        (messages.LeaderChangeMessage(leader_id=3), ControlRecordType.LEADER_CHANGE),
        (messages.SnapshotHeaderRecord(), ControlRecordType.SNAPSHOT_HEADER),
        (messages.SnapshotFooterRecord(), ControlRecordType.SNAPSHOT_FOOTER),
        (messages.KRaftVersionRecord(kraft_version=1), ControlRecordType.KRAFT_VERSION),
        (messages.VotersRecord(), ControlRecordType.KRAFT_VOTERS),
    ],
)
def test_raft_control_records_have_no_version_in_front(
    message: messages.LeaderChangeMessage, record_type: ControlRecordType
) -> None:
    key, value = encode_kraft_control(message)

    assert decode_control_key(key) == record_type
    assert value == message.encode(0)
    assert decode_kraft_control(record_type, value) == message


def test_control_records_that_are_none_are_refused() -> None:
    with pytest.raises(EncodeError, match="not a control record"):
        encode_kraft_control(messages.MetadataRequest())
    with pytest.raises(DecodeError, match="no control record of type 1"):
        decode_kraft_control(ControlRecordType.COMMIT, b"")
    with pytest.raises(DecodeError, match="3 bytes, not 4"):
        decode_control_key(b"\0\0\0")
    with pytest.raises(DecodeError, match="version -1"):
        decode_control_key(b"\xff\xff\0\0")


def test_control_keys_and_markers_from_the_future_are_read_as_today() -> None:
    assert encode_control_key(1) == b"\0\0\0\1"
    assert decode_control_key(b"\0\x09\0\x63more") == 99
    assert decode_end_txn_marker(b"\0\x09\0\0\0\7more").coordinator_epoch == 7


def test_the_principal_in_an_envelope_comes_back() -> None:
    principal = messages.DefaultPrincipalData(type="User", name="alice", token_authenticated=True)

    blob = encode_principal(principal)

    assert blob.hex() == "0000" + "0555736572" + "06616c696365" + "01" + "00"
    assert decode_principal(blob) == principal


def test_subscription_and_assignment_come_back() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"], generation_id=4, rack_id="r")
    assigned = ConsumerProtocolAssignmentTopicPartition(topic="a", partitions=[0, 1])
    assignment = ConsumerProtocolAssignment(assigned_partitions=[assigned], user_data=b"x")

    assert encode_subscription(subscription, 3)[:2] == b"\0\3"
    assert decode_subscription(encode_subscription(subscription, 3)) == subscription
    assert decode_assignment(encode_assignment(assignment, 0)) == assignment


def test_the_topics_of_a_subscription_are_read_without_what_should_follow() -> None:
    blob = encode_subscription(ConsumerProtocolSubscription(topics=["a", "b"]), 0)

    assert decode_subscribed_topics(b"\0\1" + blob[2:]) == ["a", "b"]
    with pytest.raises(DecodeError):
        decode_subscription(b"\0\1" + blob[2:])
    with pytest.raises(DecodeError, match="ConsumerProtocolSubscription at byte 0: 1 bytes"):
        decode_subscribed_topics(b"\0")


def test_a_subscription_from_the_future_is_read_as_the_youngest_we_know() -> None:
    blob = encode_subscription(ConsumerProtocolSubscription(topics=["a"]), 3)

    decoded = decode_subscription(b"\0\x09" + blob[2:] + b"whatever comes next")

    assert decoded.topics == ["a"]
    with pytest.raises(DecodeError, match="ConsumerProtocolSubscription at byte 0: 0 bytes"):
        decode_subscription(b"")
