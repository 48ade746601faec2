"""Messages inside records, as JSON."""

from __future__ import annotations

from millstream.cli.message_text import control_record, message_as_json
from millstream.protocol.messages import LeaderChangeMessage, OffsetCommitKey, PartitionRecord
from millstream.protocol.messages.control_records import LeaderChangeMessageVoter
from millstream.records import Record
from millstream.types import Uuid

ID = Uuid(bytes(range(16)))


def test_control_records_that_are_not_known_or_damaged_say_so() -> None:
    unknown = Record(5, 1000, b"\0\0\0\x63", b"")
    damaged = Record(6, 1000, b"\0", b"")

    assert control_record(unknown) == {"control": "of a type that this version does not know"}
    assert control_record(damaged)["record"] == "unreadable"


def test_fields_of_messages_become_json() -> None:
    record = PartitionRecord(
        partition_id=1, topic_id=ID, replicas=[1, 2], directories=[ID, ID], isr=[1]
    )

    assert message_as_json(record) == {
        "partition_id": 1,
        "topic_id": str(ID),
        "replicas": [1, 2],
        "isr": [1],
        "directories": [str(ID), str(ID)],
    }
    voters = LeaderChangeMessage(voters=[LeaderChangeMessageVoter(voter_id=3)])
    assert message_as_json(voters) == {"voters": [{"voter_id": 3}]}
    assert message_as_json(OffsetCommitKey(unknown_tags=((1, b"x"),)))["unknown_tags"] == [[1, "x"]]
