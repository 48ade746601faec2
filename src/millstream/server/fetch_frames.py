"""The common shapes of Fetch: read straight from the frame, answered without a message.

A consumer in a session names one partition, or none, in nearly every request; `READERS` know that
shape and give None for all others, which go to the generated decoder. `write_plain` answers
everything without errors and other rare news, with the records as slices of files between the
bytes; what it cannot say it leaves to the generated encoder.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.protocol.primitives import encode_compact_string, encode_string, encode_uvarint
from millstream.replica.fetch_target import UNKNOWN, FetchTarget
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.network.request import ResponsePart
    from millstream.replica.fetch_session import FetchAnswer
    from millstream.replica.fetch_target import PartitionFetch

    Reader: TypeAlias = Callable[[memoryview, int, int], "PlainFetch | None"]

_LOG_START_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
_LEADER_EPOCHS_SINCE: Final = 9
RACKS_SINCE: Final = 11
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
_CONSUMER: Final = -1
_ONE: Final = 2
"""A compact array of one element begins with this, an empty one with 1."""

# Replica, wait, bytes at least and at most, isolation, session and its epoch, number of topics.
_OLD_HEAD: Final = Struct(">iiiibiii")
# Number of partitions, partition, leader epoch, offset, start of the log, bytes at most.
_OLD_PARTITION: Final = Struct(">iiiqqi")
_HEAD: Final = Struct(">iiibiiB")
# Number of partitions, partition, leader epoch, offset, last epoch, start of the log, bytes at
# most; no tagged fields of the partition and of the topic.
_PARTITION: Final = Struct(">BiiqiqiH")
# At the end: no forgotten topics (1), no rack (1), no tagged fields (0).
_EMPTY_BYTES: Final = _HEAD.size + 3
_SINGLE_BYTES: Final = _EMPTY_BYTES + Uuid.SIZE + _PARTITION.size


class PlainFetch(NamedTuple):
    """A consumer's request for one partition or none more than its session has."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    targets: Sequence[FetchTarget]


def _read_old(buffer: memoryview, at: int, end: int, *, has_rack: bool) -> PlainFetch | None:
    """Versions 9 to 11."""
    tail = 6 if has_rack else 4
    if end - at < _OLD_HEAD.size + tail:
        return None
    replica_id, wait, least, most, isolation, session, epoch, topics = _OLD_HEAD.unpack_from(
        buffer, at
    )
    limits = (wait, least, most, isolation, session, epoch)
    at += _OLD_HEAD.size
    if replica_id != _CONSUMER or topics > 1 or any(buffer[end - tail : end]):
        return None
    end -= tail
    if topics <= 0:
        return PlainFetch(*limits, ()) if at == end and topics == 0 else None
    length = int.from_bytes(buffer[at : at + 2], "big")
    name_at = at + 2
    at = name_at + length
    if end - at != _OLD_PARTITION.size:
        return None
    partitions, index, leader_epoch, offset, log_start, bytes_max = _OLD_PARTITION.unpack_from(
        buffer, at
    )
    if partitions != 1:
        return None
    name = str(buffer[name_at:at], "utf-8")
    target = FetchTarget(name, index, offset, bytes_max, leader_epoch, UNKNOWN, log_start)
    return PlainFetch(*limits, (target,))


def _read(buffer: memoryview, at: int, end: int) -> PlainFetch | None:
    """Versions 15 to 18."""
    size = end - at
    if size < _EMPTY_BYTES or buffer[end - 1] or buffer[end - 2] != 1 or buffer[end - 3] != 1:
        return None
    wait, least, most, isolation, session, epoch, topics = _HEAD.unpack_from(buffer, at)
    if topics == 1:
        is_whole = size == _EMPTY_BYTES
        return PlainFetch(wait, least, most, isolation, session, epoch, ()) if is_whole else None
    # The topic's id, its partition, and that neither has tagged fields.
    if topics != _ONE or size != _SINGLE_BYTES:
        return None
    at += _HEAD.size
    topic_id = Uuid(buffer[at : at + Uuid.SIZE])
    partitions, index, leader_epoch, offset, last_epoch, log_start, bytes_max, tags = (
        _PARTITION.unpack_from(buffer, at + Uuid.SIZE)
    )
    if partitions != _ONE or tags:
        return None
    target = FetchTarget(topic_id, index, offset, bytes_max, leader_epoch, last_epoch, log_start)
    return PlainFetch(wait, least, most, isolation, session, epoch, (target,))


def _read_without_rack(buffer: memoryview, at: int, end: int) -> PlainFetch | None:
    return _read_old(buffer, at, end, has_rack=False)


def _read_with_rack(buffer: memoryview, at: int, end: int) -> PlainFetch | None:
    return _read_old(buffer, at, end, has_rack=True)


READERS: Final[dict[int, Reader]] = {
    **dict.fromkeys(range(_LEADER_EPOCHS_SINCE, RACKS_SINCE), _read_without_rack),
    RACKS_SINCE: _read_with_rack,
    **dict.fromkeys(range(REPLICA_STATE_SINCE, 19), _read),
}
"""By version: reads `buffer[at:end]`, or gives None if it is not of the common shape."""


# Size, correlation id, throttle time, then as versions have it the error, the session; topics.
_OLDEST_RESPONSE: Final = Struct(">iiii")
_OLD_RESPONSE: Final = Struct(">iiihii")
_RESPONSE: Final = Struct(">iibihi")
# Partition, error, watermark, stable offset, then as versions have it the log's start, the number
# of aborted transactions, the preferred replica; the size of the records.
_PARTITION_4: Final = Struct(">ihqqii")
_PARTITION_5: Final = Struct(">ihqqqii")
_PARTITION_11: Final = Struct(">ihqqqiii")
_PARTITION_12: Final = Struct(">ihqqqbi")
_NO_TAGS: Final = b"\0"
# The whole answer for one partition, up to the size of its records; and what follows them: no
# tagged fields of the partition, of the topic, of the whole.
_SINGLE: Final = Struct(">iibihib16sbihqqqbi")
_SINGLE_END: Final = b"\0\0\0"


def is_plain(found: PartitionFetch) -> bool:
    """Whether `write_plain` can say it."""
    return (
        found.error is None
        and not found.aborted_transactions
        and found.diverging_epoch is None
        and found.preferred_read_replica == UNKNOWN
    )


def write_plain(answer: FetchAnswer, version: int, correlation_id: int) -> list[ResponsePart]:
    """The frame that says where everything is well, its records still in their files."""
    if version >= FLEXIBLE_SINCE:
        if len(answer.partitions) == 1 and version >= TOPIC_IDS_SINCE:
            return _write_single(answer, correlation_id)
        return _write_flexible(answer, correlation_id)
    return _write_old(answer, version, correlation_id)


def _write_single(answer: FetchAnswer, correlation_id: int) -> list[ResponsePart]:
    """One partition of a topic that has an id: what most fetches of most consumers get."""
    target, found = answer.partitions[0]
    records = found.records
    length = 0 if records is None else records.length
    encoded_length = encode_uvarint(length + 1)
    head = _SINGLE.pack(
        _SINGLE.size - 4 + len(encoded_length) + length + len(_SINGLE_END),
        correlation_id,
        0,
        0,
        0,
        answer.session_id,
        _ONE,
        target.topic,
        _ONE,
        target.index,
        0,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        0 if found.aborted_transactions is None else 1,
        UNKNOWN,
    )
    if records is None:
        return [head + encoded_length + _SINGLE_END]
    return [head + encoded_length, records, _SINGLE_END]


def _write_flexible(answer: FetchAnswer, correlation_id: int) -> list[ResponsePart]:
    parts: list[ResponsePart] = [b""]
    groups = _by_topic(answer)
    pending = [encode_uvarint(len(groups) + 1)]
    size = 0
    for group in groups:
        topic = group[0][0].topic
        pending.append(encode_compact_string(topic) if isinstance(topic, str) else topic)
        pending.append(encode_uvarint(len(group) + 1))
        for target, found in group:
            records = found.records
            pending.append(
                _PARTITION_12.pack(
                    target.index,
                    0,
                    found.high_watermark,
                    found.last_stable_offset,
                    found.log_start_offset,
                    0 if found.aborted_transactions is None else 1,
                    UNKNOWN,
                )
            )
            if records is None:
                pending.append(b"\1\0")
                continue
            pending.append(encode_uvarint(records.length + 1))
            size += _flush(pending, parts)
            parts.append(records)
            size += records.length
            pending = [_NO_TAGS]
        pending.append(_NO_TAGS)
    pending.append(_NO_TAGS)
    size += _flush(pending, parts)
    size += _RESPONSE.size - 4
    parts[0] = _RESPONSE.pack(size, correlation_id, 0, 0, 0, answer.session_id)
    return parts


def _write_old(answer: FetchAnswer, version: int, correlation_id: int) -> list[ResponsePart]:
    parts: list[ResponsePart] = [b""]
    groups = _by_topic(answer)
    pending: list[bytes] = []
    size = 0
    for group in groups:
        name = group[0][0].topic
        assert isinstance(name, str)
        pending += (encode_string(name), len(group).to_bytes(4, "big"))
        for target, found in group:
            records = found.records
            length = 0 if records is None else records.length
            pending.append(_old_partition(target.index, found, length, version))
            if records is not None:
                size += _flush(pending, parts)
                parts.append(records)
                size += length
                pending = []
    if pending:
        size += _flush(pending, parts)
    if version >= SESSIONS_SINCE:
        size += _OLD_RESPONSE.size - 4
        parts[0] = _OLD_RESPONSE.pack(size, correlation_id, 0, 0, answer.session_id, len(groups))
    else:
        size += _OLDEST_RESPONSE.size - 4
        parts[0] = _OLDEST_RESPONSE.pack(size, correlation_id, 0, len(groups))
    return parts


def _old_partition(index: int, found: PartitionFetch, length: int, version: int) -> bytes:
    head = (index, 0, found.high_watermark, found.last_stable_offset)
    aborted_count = -1 if found.aborted_transactions is None else 0
    if version >= RACKS_SINCE:
        return _PARTITION_11.pack(*head, found.log_start_offset, aborted_count, UNKNOWN, length)
    if version >= _LOG_START_SINCE:
        return _PARTITION_5.pack(*head, found.log_start_offset, aborted_count, length)
    return _PARTITION_4.pack(*head, aborted_count, length)


def _by_topic(answer: FetchAnswer) -> list[list[tuple[FetchTarget, PartitionFetch]]]:
    """The partitions in order; neighbours of one topic share its entry."""
    groups: list[list[tuple[FetchTarget, PartitionFetch]]] = []
    last: str | Uuid | None = None
    for each in answer.partitions:
        topic = each[0].topic
        if topic == last:
            groups[-1].append(each)
        else:
            groups.append([each])
            last = topic
    return groups


def _flush(pending: list[bytes], parts: list[ResponsePart]) -> int:
    joined = b"".join(pending)
    parts.append(joined)
    return len(joined)
