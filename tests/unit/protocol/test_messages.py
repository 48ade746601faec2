"""Messages as Python values: construction, equality, dataclass tools, lazy import, zero copies."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys

import pytest

from millstream.protocol import messages
from millstream.protocol.messages import FetchResponse, MetadataRequest, NoOpRecord
from millstream.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from millstream.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
)
from millstream.protocol.messages.metadata import MetadataRequestTopic
from millstream.protocol.records_framing import encode_metadata_record
from millstream.types import Uuid


def test_importing_the_protocol_imports_no_message() -> None:
    code = (
        "import sys, millstream.protocol, millstream.protocol.frame, millstream.protocol.api;"
        "import millstream.protocol.records_framing;"
        "print([m for m in sys.modules if m.startswith('millstream.protocol.messages.')"
        " and not m.endswith(('.api_keys', '.record_types'))])"
    )

    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

    assert found.strip() == "[]"


def test_importing_a_message_does_not_import_the_compiler_or_other_messages() -> None:
    code = (
        "import sys; from millstream.protocol.messages import FetchResponse;"
        "print(sorted(m for m in sys.modules if m.startswith('millstream.protocol.')))"
    )

    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

    assert "messages.fetch'" in found
    for absent in ("messages.produce", "decoding", "encoding", "reference", "reflection"):
        assert absent not in found


def test_messages_are_found_by_name() -> None:
    assert "FetchResponse" in dir(messages)
    assert (
        len([name for name in dir(messages) if name[0].isupper() and name != "TYPE_CHECKING"])
        == 287
    )
    with pytest.raises(AttributeError, match="no message called 'FetchRespons'"):
        _ = messages.FetchRespons  # type: ignore[attr-defined]  # misspelt on purpose


def test_defaults_are_those_of_the_schema_and_not_shared() -> None:
    one, two = FetchRequest(), FetchRequest()

    one.topics.append(messages_topic := object())  # type: ignore[arg-type]

    assert one.topics == [messages_topic]
    assert two.topics == []
    assert two.max_bytes == 2147483647
    assert two.replica_state is None
    nested = FetchSnapshotRequestPartitionSnapshot()
    assert nested.snapshot_id == FetchSnapshotRequestSnapshotId()
    assert nested.snapshot_id is not FetchSnapshotRequestPartitionSnapshot().snapshot_id


def test_messages_are_equal_by_value_and_have_no_hash() -> None:
    assert FetchResponse(session_id=1) == FetchResponse(session_id=1)
    assert FetchResponse(session_id=1) != FetchResponse(session_id=2)
    assert FetchResponse(unknown_tags=((9, b""),)) != FetchResponse()
    assert FetchResponse() != MetadataRequest()
    with pytest.raises(TypeError):
        hash(FetchResponse())


def test_a_misspelt_attribute_is_an_error() -> None:
    with pytest.raises(AttributeError):
        FetchResponse().sesion_id = 1  # type: ignore[attr-defined]  # misspelt on purpose


def test_repr_shows_what_is_set() -> None:
    response = FetchResponse(
        session_id=7,
        responses=[FetchableTopicResponse(topic="t")],
        unknown_tags=((9, b"x"),),
    )

    assert repr(response) == (
        "FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic='t')], "
        "unknown_tags=((9, b'x'),))"
    )
    assert repr(MetadataRequest(topics=None)) == "MetadataRequest(topics=None)"
    assert repr(NoOpRecord()) == "NoOpRecord()"


def test_dataclass_tools_work() -> None:
    topic = MetadataRequestTopic(name="t")
    request = MetadataRequest(topics=[topic])

    assert dataclasses.is_dataclass(request)
    assert [field.name for field in dataclasses.fields(MetadataRequest)] == [
        "topics",
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
        "unknown_tags",
    ]
    assert dataclasses.fields(MetadataRequest) == dataclasses.fields(MetadataRequest)
    changed = dataclasses.replace(request, allow_auto_topic_creation=False)
    assert changed.topics == [topic]
    assert not changed.allow_auto_topic_creation
    assert dataclasses.asdict(request)["topics"][0]["name"] == "t"
    nested = dataclasses.fields(FetchSnapshotRequestPartitionSnapshot)
    for field, default in (
        (dataclasses.fields(MetadataRequest)[0], []),
        (nested[2], FetchSnapshotRequestSnapshotId()),
        (nested[4], Uuid.ZERO),
    ):
        assert callable(field.default_factory)
        assert field.default_factory() == default


def test_messages_can_be_copied_and_pickled() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])

    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_records_come_out_as_views_of_the_buffer() -> None:
    partition = PartitionData(records=b"batch")
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    for buffer in (response.encode(16), bytearray(response.encode(16))):
        records = FetchResponse.decode(buffer, 16).responses[0].partitions[0].records

        assert isinstance(records, memoryview)
        assert records.obj is buffer
        assert bytes(records) == b"batch"


def test_other_fields_do_not_keep_the_buffer_alive() -> None:
    encoded = bytearray(MetadataRequest(topics=[MetadataRequestTopic(name="t")]).encode(1))

    decoded = MetadataRequest.decode(encoded, 1)
    encoded.clear()  # would raise BufferError if anything still looked at it

    assert decoded.topics == [MetadataRequestTopic(name="t")]


def test_an_unset_tagged_struct_is_none_and_a_default_one_is_not_sent() -> None:
    silent = FetchRequest(replica_state=ReplicaState())

    assert silent.encode(16) == FetchRequest().encode(16)
    assert FetchRequest.decode(silent.encode(16), 16).replica_state is None
    known = FetchRequest(replica_state=ReplicaState(replica_id=3))
    assert FetchRequest.decode(known.encode(16), 16) == known


def test_unknown_tags_are_kept_and_written_back_in_order() -> None:
    partition = PartitionData(
        current_leader=LeaderIdAndEpoch(leader_id=1), unknown_tags=((7, b"seven"), (900, b""))
    )
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])

    encoded = response.encode(16)

    assert FetchResponse.decode(encoded, 16) == response
    assert FetchResponse.decode(encoded, 16).encode(16) == encoded


def test_a_message_without_fields_has_a_body_all_the_same() -> None:
    assert NoOpRecord().encode(0) == b"\0"
    assert encode_metadata_record(NoOpRecord(), 0) == b"\x01\x14\x00\x00"
