"""Messages inside records: what stands in front of them in keys, values and opaque blobs.

Coordinators, the metadata log and group members store messages in records or in `bytes` fields,
each with its own few bytes in front. Here they are put on and taken off. Record batches
themselves are the business of `millstream.records`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.errors import DecodeError, EncodeError
from millstream.protocol import messages
from millstream.protocol.messages import record_types
from millstream.protocol.primitives import encode_uvarint, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.protocol.message import Message
    from millstream.protocol.messages import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
        DefaultPrincipalData,
        EndTxnMarker,
    )
    from millstream.types import ReadableBuffer

M = TypeVar("M", bound="Message")

METADATA_FRAME_VERSION = 1

_INT16 = struct.Struct(">h")
_CONTROL_KEY = struct.Struct(">hh")


class CoordinatorRecords:
    """The records of one coordinator: a key says its type, a value its version, null deletes."""

    def __init__(self, name: str, keys: Mapping[int, str], values: Mapping[int, str]) -> None:
        self._name = name
        self._keys = keys
        self._values = values

    def encode(
        self, key: Message, value: Message | None, version: int = 0
    ) -> tuple[bytes, bytes | None]:
        """Key and value of a record; a value of None is a tombstone."""
        if self._keys.get(key.KEY) != type(key).__name__:
            raise EncodeError(f"not a key of a {self._name} record", message=type(key).__name__)
        if value is not None and self._values.get(key.KEY) != type(value).__name__:
            raise EncodeError(
                f"{type(key).__name__} does not go with it", message=type(value).__name__
            )
        key_bytes = _INT16.pack(key.KEY) + key.encode(0)
        return key_bytes, None if value is None else _encode_versioned(value, version)

    def decode(
        self, key: ReadableBuffer, value: ReadableBuffer | None
    ) -> tuple[Message, Message | None]:
        """The messages in a record's key and value."""
        record_type = _read_int16(key, f"{self._name} record key")
        if record_type not in self._keys:
            raise DecodeError(
                f"there is no {self._name} record of type {record_type}: "
                "a newer version wrote this log",
                message=f"{self._name} record key",
                position=0,
            )
        key_message = _message(self._keys[record_type]).decode(key, 0, 2)
        if value is None:
            return key_message, None
        return key_message, _decode_versioned(_message(self._values[record_type]), value)


GROUP_RECORDS: Final = CoordinatorRecords(
    "group", record_types.GROUP_KEYS, record_types.GROUP_VALUES
)
"""Records of `__consumer_offsets`."""

TRANSACTION_RECORDS: Final = CoordinatorRecords(
    "transaction", record_types.TRANSACTION_KEYS, record_types.TRANSACTION_VALUES
)
"""Records of `__transaction_state`."""

SHARE_RECORDS: Final = CoordinatorRecords(
    "share state", record_types.SHARE_KEYS, record_types.SHARE_VALUES
)
"""Records of `__share_group_state`."""


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record of the metadata log; such records have no key."""
    if record_types.METADATA_RECORDS.get(record.KEY) != type(record).__name__:
        raise EncodeError("not a metadata record", message=type(record).__name__)
    head = (METADATA_FRAME_VERSION, record.KEY, version)
    return b"".join(map(encode_uvarint, head)) + record.encode(version)


def decode_metadata_record(value: ReadableBuffer) -> tuple[Message, int]:
    """The message in a record of the metadata log, and its version."""
    frame_version, position = read_uvarint(value, 0)
    if frame_version != METADATA_FRAME_VERSION:
        raise DecodeError(
            f"frame version {frame_version}, known is {METADATA_FRAME_VERSION}",
            message="metadata record",
            position=0,
        )
    record_type, position = read_uvarint(value, position)
    version, position = read_uvarint(value, position)
    name = record_types.METADATA_RECORDS.get(record_type)
    if name is None:
        raise DecodeError(
            f"there is no metadata record of type {record_type}",
            message="metadata record",
            position=1,
        )
    return _message(name).decode(value, version, position), version


class ControlRecordType(IntEnum):
    """What a control record says, by the number in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KRAFT_CONTROL_RECORDS = {
    "LeaderChangeMessage": ControlRecordType.LEADER_CHANGE,
    "SnapshotHeaderRecord": ControlRecordType.SNAPSHOT_HEADER,
    "SnapshotFooterRecord": ControlRecordType.SNAPSHOT_FOOTER,
    "KRaftVersionRecord": ControlRecordType.KRAFT_VERSION,
    "VotersRecord": ControlRecordType.KRAFT_VOTERS,
}
_KRAFT_MESSAGES = {int(kind): name for name, kind in _KRAFT_CONTROL_RECORDS.items()}


def encode_control_key(record_type: int) -> bytes:
    """The key of a control record."""
    return _CONTROL_KEY.pack(0, record_type)


def decode_control_key(key: ReadableBuffer) -> int:
    """The type of a control record; one that `ControlRecordType` lacks is to be skipped."""
    if len(key) < _CONTROL_KEY.size:
        raise DecodeError(f"{len(key)} bytes, not 4", message="control record key", position=0)
    version, record_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise DecodeError(f"version {version}", message="control record key", position=0)
    return int(record_type)


def encode_end_txn_marker(marker: EndTxnMarker) -> bytes:
    """The value of an ABORT or COMMIT record."""
    return _encode_versioned(marker, 0)


def decode_end_txn_marker(value: ReadableBuffer) -> EndTxnMarker:
    """The message in the value of an ABORT or COMMIT record."""
    return _decode_blob(messages.EndTxnMarker, value)


def encode_kraft_control(message: Message) -> tuple[bytes, bytes]:
    """Key and value of a control record of the metadata log.

    The value has no version in front: its first field is one.
    """
    record_type = _KRAFT_CONTROL_RECORDS.get(type(message).__name__)
    if record_type is None:
        raise EncodeError("not a control record", message=type(message).__name__)
    return encode_control_key(record_type), message.encode(0)


def decode_kraft_control(record_type: int, value: ReadableBuffer) -> Message:
    """The message in the value of a control record of the metadata log."""
    name = _KRAFT_MESSAGES.get(record_type)
    if name is None:
        raise DecodeError(f"there is no control record of type {record_type}", position=0)
    return _message(name).decode(value, 0)


def encode_principal(principal: DefaultPrincipalData) -> bytes:
    """The principal as it travels in an Envelope."""
    return _encode_versioned(principal, 0)


def decode_principal(blob: ReadableBuffer) -> DefaultPrincipalData:
    """The principal in an Envelope."""
    return _decode_versioned(messages.DefaultPrincipalData, blob)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """What a classic group member says in JoinGroup."""
    return _encode_versioned(subscription, version)


def decode_subscription(blob: ReadableBuffer) -> ConsumerProtocolSubscription:
    """Read what a classic group member says in JoinGroup."""
    return _decode_blob(messages.ConsumerProtocolSubscription, blob)


def decode_subscribed_topics(blob: ReadableBuffer) -> list[str]:
    """The topics of what a classic group member says in JoinGroup, whatever comes after them.

    They come first in every version. kafkajs announces version 1 and leaves its second field out;
    Apache Kafka reads the topics of that all the same.
    """
    _read_int16(blob, "ConsumerProtocolSubscription")
    return messages.ConsumerProtocolSubscription.decode_from(blob, 0, 2)[0].topics


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """What the leader of a classic group gives a member in SyncGroup."""
    return _encode_versioned(assignment, version)


def decode_assignment(blob: ReadableBuffer) -> ConsumerProtocolAssignment:
    """Read what the leader of a classic group gives a member."""
    return _decode_blob(messages.ConsumerProtocolAssignment, blob)


def _message(name: str) -> type[Message]:
    found: type[Message] = getattr(messages, name)
    return found


def _read_int16(buffer: ReadableBuffer, message: str) -> int:
    if len(buffer) < _INT16.size:
        raise DecodeError(f"{len(buffer)} bytes, at least 2 needed", message=message, position=0)
    return int(_INT16.unpack_from(buffer)[0])


def _encode_versioned(message: Message, version: int) -> bytes:
    return _INT16.pack(version) + message.encode(version)


def _decode_versioned(cls: type[M], buffer: ReadableBuffer) -> M:
    return cls.decode(buffer, _read_int16(buffer, cls.__name__), 2)


def _decode_blob(cls: type[M], buffer: ReadableBuffer) -> M:
    """Read what another implementation may have written: a younger version only adds at the end."""
    version = min(_read_int16(buffer, cls.__name__), cls.VERSIONS.highest)
    return cls.decode_from(buffer, version, 2)[0]
