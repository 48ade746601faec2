"""The common shape of Produce, read straight from the frame and answered without a message.

Nearly every Produce request has one topic and one partition. The handler tries `READERS` first;
whatever has another shape, or is damaged, gives None and goes to the generated decoder, which is
the authority on what the bytes mean. The answer is made here only for records that were accepted.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.records.layout import ATTRIBUTES_AT, HEADER_SIZE, TRANSACTIONAL_BIT
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.replica.append_service import AppendResult

    Reader: TypeAlias = Callable[[memoryview, int, int], "SingleProduce | None"]
    Writer: TypeAlias = Callable[[int, "SingleProduce", AppendResult], bytes]

FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13
_LOG_START_SINCE: Final = 5
_RECORD_ERRORS_SINCE: Final = 8
_TOPICS_MAX: Final = 10_000
"""How many topics are remembered by their bytes."""

# Length of the transactional id, acks, timeout, number of topics, length of the name.
_OLD_HEAD: Final = Struct(">hhiih")
# Number of partitions, partition, size of the records.
_OLD_PARTITION: Final = Struct(">iii")
# Transactional id, acks, timeout, number of topics and, unless it is an id, length of the name.
_HEAD: Final = Struct(">BhiB")
_PARTITION: Final = Struct(">Bi")
_ONE: Final = 2
"""A compact array of one element begins with this."""
_NO_TAGS_AT_THE_END: Final = memoryview(b"\0\0\0")


class SingleProduce(NamedTuple):
    """A request for one partition."""

    acks: int
    timeout_ms: int
    topic: str | Uuid
    topic_bytes: bytes
    """The topic as the request spells it, length included: the answer spells it the same."""
    partition: int
    records: memoryview


_names: dict[bytes, str] = {}
_ids: dict[bytes, Uuid] = {}


def _name_of(spelled: bytes, length_bytes: int) -> str:
    name = spelled[length_bytes:].decode()
    if len(_names) >= _TOPICS_MAX:
        _names.clear()
    _names[spelled] = name
    return name


def _id_of(spelled: bytes) -> Uuid:
    topic_id = Uuid(spelled)
    if len(_ids) >= _TOPICS_MAX:
        _ids.clear()
    _ids[spelled] = topic_id
    return topic_id


def _is_transactional(buffer: memoryview, start: int) -> bool:
    return buffer[start + ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT != 0


def _read_old(buffer: memoryview, at: int, end: int) -> SingleProduce | None:
    """Versions 3 to 8."""
    if end - at < _OLD_HEAD.size:
        return None
    transactional_id, acks, timeout_ms, topics, length = _OLD_HEAD.unpack_from(buffer, at)
    if transactional_id != -1 or topics != 1 or length <= 0:
        return None
    name_at = at + _OLD_HEAD.size - 2
    at = name_at + 2 + length
    if end - at < _OLD_PARTITION.size:
        return None
    partitions, index, size = _OLD_PARTITION.unpack_from(buffer, at)
    start = at + _OLD_PARTITION.size
    if partitions != 1 or size < HEADER_SIZE or start + size != end:
        return None
    if _is_transactional(buffer, start):
        return None
    spelled = bytes(buffer[name_at:at])
    topic = _names.get(spelled) or _name_of(spelled, 2)
    return SingleProduce(acks, timeout_ms, topic, spelled, index, buffer[start:end])


def _read_named(buffer: memoryview, at: int, end: int) -> SingleProduce | None:
    """Versions 9 to 12."""
    if end - at < _HEAD.size + 1:
        return None
    transactional_id, acks, timeout_ms, topics = _HEAD.unpack_from(buffer, at)
    at += _HEAD.size
    length = buffer[at]
    if transactional_id or topics != _ONE or not 1 < length < 0x80:
        return None
    spelled = bytes(buffer[at : at + length])
    found = _read_partition(buffer, at + length, end)
    if found is None:
        return None
    topic = _names.get(spelled) or _name_of(spelled, 1)
    return SingleProduce(acks, timeout_ms, topic, spelled, *found)


def _read_identified(buffer: memoryview, at: int, end: int) -> SingleProduce | None:
    """Version 13."""
    if end - at < _HEAD.size + Uuid.SIZE:
        return None
    transactional_id, acks, timeout_ms, topics = _HEAD.unpack_from(buffer, at)
    at += _HEAD.size
    if transactional_id or topics != _ONE:
        return None
    spelled = bytes(buffer[at : at + Uuid.SIZE])
    found = _read_partition(buffer, at + Uuid.SIZE, end)
    if found is None:
        return None
    topic = _ids.get(spelled) or _id_of(spelled)
    return SingleProduce(acks, timeout_ms, topic, spelled, *found)


def _read_partition(buffer: memoryview, at: int, end: int) -> tuple[int, memoryview] | None:
    """One partition to the end of the frame, without tagged fields."""
    if end - at < _PARTITION.size + HEADER_SIZE:
        return None
    partitions, index = _PARTITION.unpack_from(buffer, at)
    at += _PARTITION.size
    size = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            return None
    stop = at + size - 1
    if partitions != _ONE or size <= HEADER_SIZE or stop + 3 != end:
        return None
    if buffer[stop:end] != _NO_TAGS_AT_THE_END or _is_transactional(buffer, at):
        return None
    return index, buffer[at:stop]


_OLD_RESPONSE_HEAD: Final = Struct(">iii")
_RESPONSE_HEAD: Final = Struct(">iibb")
# Number of partitions, partition, error, base offset, append time; then as versions have it the
# log's start, no record errors, no message; at the end the throttle time.
_OLD_TAIL: Final = Struct(">iihqqi")
_LOG_START_TAIL: Final = Struct(">iihqqqi")
_RECORD_ERRORS_TAIL: Final = Struct(">iihqqqihi")
_TAIL: Final = Struct(">bihqqqbbbbib")


def _write_old(correlation_id: int, single: SingleProduce, result: AppendResult) -> bytes:
    topic = single.topic_bytes
    size = 8 + len(topic) + _OLD_TAIL.size
    return b"".join(
        (
            _OLD_RESPONSE_HEAD.pack(size, correlation_id, 1),
            topic,
            _OLD_TAIL.pack(
                1, single.partition, 0, result.base_offset, result.log_append_time_ms, 0
            ),
        )
    )


def _write_log_start(correlation_id: int, single: SingleProduce, result: AppendResult) -> bytes:
    topic = single.topic_bytes
    _, base_offset, append_time, log_start = result
    size = 8 + len(topic) + _LOG_START_TAIL.size
    return b"".join(
        (
            _OLD_RESPONSE_HEAD.pack(size, correlation_id, 1),
            topic,
            _LOG_START_TAIL.pack(1, single.partition, 0, base_offset, append_time, log_start, 0),
        )
    )


def _write_record_errors(correlation_id: int, single: SingleProduce, result: AppendResult) -> bytes:
    topic = single.topic_bytes
    _, base_offset, append_time, log_start = result
    size = 8 + len(topic) + _RECORD_ERRORS_TAIL.size
    return b"".join(
        (
            _OLD_RESPONSE_HEAD.pack(size, correlation_id, 1),
            topic,
            _RECORD_ERRORS_TAIL.pack(
                1, single.partition, 0, base_offset, append_time, log_start, 0, -1, 0
            ),
        )
    )


def _write(correlation_id: int, single: SingleProduce, result: AppendResult) -> bytes:
    """Versions 9 to 13."""
    topic = single.topic_bytes
    _, base_offset, append_time, log_start = result
    size = 6 + len(topic) + _TAIL.size
    return b"".join(
        (
            _RESPONSE_HEAD.pack(size, correlation_id, 0, _ONE),
            topic,
            _TAIL.pack(
                _ONE, single.partition, 0, base_offset, append_time, log_start, 1, 0, 0, 0, 0, 0
            ),
        )
    )


def _reader(version: int) -> Reader:
    if version < FLEXIBLE_SINCE:
        return _read_old
    return _read_named if version < TOPIC_IDS_SINCE else _read_identified


def _writer(version: int) -> Writer:
    if version >= FLEXIBLE_SINCE:
        return _write
    if version >= _RECORD_ERRORS_SINCE:
        return _write_record_errors
    return _write_log_start if version >= _LOG_START_SINCE else _write_old


READERS: Final = {version: _reader(version) for version in range(3, 14)}
"""By version: reads `buffer[at:end]`, or gives None if it is not of the common shape."""
WRITERS: Final = {version: _writer(version) for version in range(3, 14)}
"""By version: the frame that answers a request whose records were accepted."""
