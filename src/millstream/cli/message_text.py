"""Messages that records carry, as JSON: of the metadata log, of coordinators, of raft.

`log dump` shows them. Fields with their default values are left out, as in `repr`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.record_format import bytes_as_json
from millstream.errors import CorruptMessage, ProtocolError
from millstream.metadata.topic_names import (
    CLUSTER_METADATA_TOPIC,
    GROUP_OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from millstream.protocol.message import Struct
from millstream.protocol.records_framing import (
    GROUP_RECORDS,
    SHARE_RECORDS,
    TRANSACTION_RECORDS,
    decode_kraft_control,
    decode_metadata_record,
)
from millstream.protocol.reflection import set_fields
from millstream.records import ControlType, control_type, parse_end_txn_marker
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.protocol.records_framing import CoordinatorRecords
    from millstream.records import Record

_COORDINATORS: Final[dict[str, CoordinatorRecords]] = {
    GROUP_OFFSETS_TOPIC: GROUP_RECORDS,
    TRANSACTION_STATE_TOPIC: TRANSACTION_RECORDS,
    SHARE_STATE_TOPIC: SHARE_RECORDS,
}


def control_record(record: Record) -> dict[str, Any]:
    """What a record of a control batch says; a damaged one says that it is."""
    try:
        kind = control_type(record)
        if kind is None:
            return {"control": "of a type that this version does not know"}
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            marker = parse_end_txn_marker(record)
            return {"control": kind.name, "coordinator_epoch": marker.coordinator_epoch}
        message = decode_kraft_control(kind, record.value or b"")
    except (ProtocolError, CorruptMessage) as error:
        return _unreadable(error)
    return {"control": kind.name} | message_as_json(message)


def decoded_record(topic: str | None, record: Record) -> dict[str, Any] | None:
    """The messages in a record of an internal topic; None of any other."""
    try:
        if topic == CLUSTER_METADATA_TOPIC:
            message, version = decode_metadata_record(record.value or b"")
            return _named(message) | {"version": version, "fields": message_as_json(message)}
        if topic in _COORDINATORS and record.key is not None:
            key, value = _COORDINATORS[topic].decode(record.key, record.value)
            fields = None if value is None else message_as_json(value)
            return _named(key) | {"fields": message_as_json(key), "value": fields}
    except (ProtocolError, CorruptMessage) as error:
        return _unreadable(error)
    return None


def message_as_json(message: Struct) -> dict[str, Any]:
    """A message's fields, without those that have their default."""
    return {name: _as_json(value) for name, value in set_fields(message)}


def compact(fields: dict[str, Any]) -> str:
    """Fields on one line: `name="orders" partitions=3`."""
    return " ".join(
        f"{name}={json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for name, value in fields.items()
    )


def _named(message: Message) -> dict[str, Any]:
    return {"record": type(message).__name__}


def _unreadable(error: Exception) -> dict[str, Any]:
    return {"record": "unreadable", "problem": str(error)}


def _as_json(value: object) -> object:
    match value:
        case Uuid():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes_as_json(bytes(value))
        case Struct():
            return message_as_json(value)
        case list() | tuple():
            return [_as_json(each) for each in value]
        case _:
            return value
