"""The common shape of Produce, read straight from the frame and answered without a message.

Nearly every Produce request has one topic and one partition. The handler tries `read_single` first;
whatever has another shape, or is damaged, gives None and goes to the generated decoder, which is
the authority on what the bytes mean. The answer is made here only for records that were accepted.
Both functions have a compiled twin in `_accel.broker.produce_frames`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from millstream import _accel
from millstream.records.layout import ATTRIBUTES_AT, HEADER_SIZE, TRANSACTIONAL_BIT
from millstream.types import Uuid

if TYPE_CHECKING:
    SingleProduce: TypeAlias = tuple[int, int, bytes, int, int, int]
    """acks, timeout, the topic as the request spells it, partition, where records begin and end."""

TopicT = TypeVar("TopicT", str, Uuid)

VERSION_MIN: Final = 3
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


def read_single(buffer: memoryview, at: int, end: int, version: int) -> SingleProduce | None:
    """The request in `buffer[at:end]` of version 3 to 13, if it is of the common shape.

    A topic is spelled with its length in front, or is the 16 bytes of its id.
    """
    try:
        if version < FLEXIBLE_SINCE:
            return _read_old(buffer, at, end)
        return _read_flexible(buffer, at, end, has_id=version >= TOPIC_IDS_SINCE)
    except IndexError:
        return None  # Damaged: the decoder will say how.


class SpelledTopics:
    """Which topic some bytes of a request name: decoded once, then remembered."""

    __slots__ = ("_ids", "_names")

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._ids: dict[bytes, Uuid] = {}

    def find(self, spelled: bytes, version: int) -> str | Uuid | None:
        """A name, an id since version 13, or None if the bytes cannot be a name."""
        if version >= TOPIC_IDS_SINCE:
            return self._ids.get(spelled) or self._learn(self._ids, spelled, Uuid(spelled))
        name = self._names.get(spelled)
        if name is not None:
            return name
        length_bytes = 2 if version < FLEXIBLE_SINCE else 1
        try:
            return self._learn(self._names, spelled, spelled[length_bytes:].decode())
        except UnicodeDecodeError:
            return None

    @staticmethod
    def _learn(known: dict[bytes, TopicT], spelled: bytes, topic: TopicT) -> TopicT:
        if len(known) >= _TOPICS_MAX:
            known.clear()
        known[spelled] = topic
        return topic


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
    return acks, timeout_ms, bytes(buffer[name_at:at]), index, start, end


def _read_flexible(buffer: memoryview, at: int, end: int, *, has_id: bool) -> SingleProduce | None:
    """Versions 9 to 13."""
    if end - at < _HEAD.size + Uuid.SIZE:
        return None
    transactional_id, acks, timeout_ms, topics = _HEAD.unpack_from(buffer, at)
    at += _HEAD.size
    length = Uuid.SIZE if has_id else buffer[at]
    if transactional_id or topics != _ONE or not 1 < length < 0x80:
        return None
    found = _read_partition(buffer, at + length, end)
    return None if found is None else (acks, timeout_ms, bytes(buffer[at : at + length]), *found)


def _read_partition(buffer: memoryview, at: int, end: int) -> tuple[int, int, int] | None:
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
    return index, at, stop


_OLD_RESPONSE_HEAD: Final = Struct(">iii")
_RESPONSE_HEAD: Final = Struct(">iibb")
# Number of partitions, partition, error, base offset, append time; then as versions have it the
# log's start, no record errors, no message; at the end the throttle time.
_OLD_TAIL: Final = Struct(">iihqqi")
_LOG_START_TAIL: Final = Struct(">iihqqqi")
_RECORD_ERRORS_TAIL: Final = Struct(">iihqqqihi")
_TAIL: Final = Struct(">bihqqqbbbbib")


def write_single(
    version: int,
    correlation_id: int,
    topic: bytes,
    partition: int,
    base_offset: int,
    append_time_ms: int,
    log_start: int,
) -> bytes:
    """The frame that answers a request whose records were accepted; `topic` as it was spelled."""
    placed = (partition, 0, base_offset, append_time_ms)
    if version >= FLEXIBLE_SINCE:
        tail = _TAIL.pack(_ONE, *placed, log_start, 1, 0, 0, 0, 0, 0)
        head = _RESPONSE_HEAD.pack(6 + len(topic) + len(tail), correlation_id, 0, _ONE)
        return b"".join((head, topic, tail))
    if version >= _RECORD_ERRORS_SINCE:
        tail = _RECORD_ERRORS_TAIL.pack(1, *placed, log_start, 0, -1, 0)
    elif version >= _LOG_START_SINCE:
        tail = _LOG_START_TAIL.pack(1, *placed, log_start, 0)
    else:
        tail = _OLD_TAIL.pack(1, *placed, 0)
    head = _OLD_RESPONSE_HEAD.pack(8 + len(topic) + len(tail), correlation_id, 1)
    return b"".join((head, topic, tail))


plain_read_single, plain_write_single = read_single, write_single
"""The twins in Python, whichever runs."""
if not TYPE_CHECKING and _accel.COMPILED:
    from millstream._accel.broker.produce_frames import read_single, write_single
