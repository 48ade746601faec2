"""Confluent's wire format: a zero, the schema's id, then the payload; and names of subjects.

Protobuf payloads have, after the id, the path to the message within its file. Nothing here knows
what is in a payload.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.errors import InvalidArgument, SerializationFailed

if TYPE_CHECKING:
    from collections.abc import Callable

SubjectNaming: TypeAlias = "str | Callable[[str, bool, str], str]"
"""A name of `SUBJECT_NAMINGS`, or a function of topic, is_key and the record's name."""

_HEAD: Final = struct.Struct(">bI")
_MAGIC: Final = 0
MAGIC: Final = bytes([_MAGIC])
"""What a framed value begins with; behind it is the schema's id."""
FRAME_BYTES: Final = _HEAD.size
_INDEX_COUNT_MAX: Final = 64


def frame(schema_id: int, payload: bytes, indexes: bytes = b"") -> bytes:
    """A payload with the id of its schema before it."""
    return _HEAD.pack(_MAGIC, schema_id) + indexes + payload


def unframe(data: bytes) -> tuple[int, int]:
    """The schema's id and where the rest begins."""
    if len(data) < _HEAD.size or data[0] != _MAGIC:
        raise not_framed(data)
    return int(_HEAD.unpack_from(data)[1]), _HEAD.size


def not_framed(data: bytes) -> SerializationFailed:
    """The error of a value that was written without a registry."""
    return SerializationFailed(
        f"{data[:8]!r} does not begin with a zero and a schema's id: "
        "it was not written with a schema registry"
    )


def encode_indexes(path: list[int]) -> bytes:
    """The path to a message in its file; that of the first message is a single zero."""
    if path == [0]:
        return b"\0"
    return b"".join(_zigzag(each) for each in (len(path), *path))


def decode_indexes(data: bytes, position: int) -> tuple[list[int], int]:
    """The path to a message, and where the message begins."""
    count, position = _read_zigzag(data, position)
    if count == 0:
        return [0], position
    if not 0 < count <= _INDEX_COUNT_MAX:
        raise SerializationFailed(f"a path of {count} message indexes")
    path = []
    for _ in range(count):
        index, position = _read_zigzag(data, position)
        path.append(index)
    return path, position


def _zigzag(number: int) -> bytes:
    left = number << 1
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise SerializationFailed("truncated message indexes")


def _by_topic(topic: str, is_key: bool, record_name: str) -> str:
    return f"{topic}-{'key' if is_key else 'value'}"


def _by_record(topic: str, is_key: bool, record_name: str) -> str:
    return _named(record_name)


def _by_topic_and_record(topic: str, is_key: bool, record_name: str) -> str:
    return f"{topic}-{_named(record_name)}"


def _named(record_name: str) -> str:
    if not record_name:
        raise SerializationFailed(
            "the schema has no name, so its subject can only be named by topic"
        )
    return record_name


SUBJECT_NAMINGS: Final = {
    "topic": _by_topic,
    "record": _by_record,
    "topic-record": _by_topic_and_record,
}
"""Confluent's TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy."""


def subject_naming(given: SubjectNaming) -> Callable[[str, bool, str], str]:
    """The function that names subjects."""
    if callable(given):
        return given
    if given not in SUBJECT_NAMINGS:
        raise InvalidArgument(
            f"subject_name is {given!r}; it may be {', '.join(SUBJECT_NAMINGS)}, or a function"
        )
    return SUBJECT_NAMINGS[given]
