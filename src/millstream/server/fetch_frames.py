"""The common shapes of Fetch: read straight from the frame, answered without a message.

A consumer in a session names one partition, or none, in nearly every request; `read_single`, and
`READERS` before topic ids, know that shape and give None for all others, which go to the generated
decoder. `answer_single` answers those that were served the short way, `write_plain` everything
without errors and other rare news; what they cannot say they leave to the generated encoder. Few
records are read into the answer, many stay a slice of their file between its bytes. What is done
for every fetch has a compiled twin in `_accel.broker.fetch_frames`, which runs where it was built.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream import _accel
from millstream.protocol.primitives import encode_compact_string, encode_string, encode_uvarint
from millstream.replica.fetch_target import UNKNOWN, FetchTarget
from millstream.storage.filesystem import FileSlice
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.network.request import Response, ResponsePart
    from millstream.replica.fetch_session import FetchAnswer
    from millstream.replica.fetch_target import PartitionFetch
    from millstream.replica.single_fetch import SingleFetched, SingleRequest

    Reader: TypeAlias = Callable[[memoryview, int, int], "PlainFetch | None"]

_LOG_START_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
_LEADER_EPOCHS_SINCE: Final = 9
RACKS_SINCE: Final = 11
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
SINGLES_UNTIL: Final = 18
"""The last version that `read_single` knows; it begins with topic ids."""
REPLICA_STATE_SINCE: Final = 15
_CONSUMER: Final = -1
_COMMITTED: Final = 1
_ONE: Final = 2
"""A compact array of one element begins with this, an empty one with 1."""

# Replica, wait, bytes at least and at most, isolation, session and its epoch, number of topics.
_OLD_HEAD: Final = Struct(">iiiibiii")
# Number of partitions, partition, leader epoch, offset, start of the log, bytes at most.
_OLD_PARTITION: Final = Struct(">iiiqqi")
_REPLICA_ID: Final = Struct(">i")
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


def read_single(buffer: memoryview, at: int, end: int, version: int) -> SingleRequest | None:
    """The request in `buffer[at:end]` of version 13 to 18, if it is of the common shape."""
    if version < REPLICA_STATE_SINCE:
        if end - at < _REPLICA_ID.size or _REPLICA_ID.unpack_from(buffer, at)[0] != _CONSUMER:
            return None
        at += _REPLICA_ID.size
    size = end - at
    if size < _EMPTY_BYTES or buffer[end - 1] or buffer[end - 2] != 1 or buffer[end - 3] != 1:
        return None
    *limits, topics = _HEAD.unpack_from(buffer, at)
    if topics == 1:
        return (*limits, None, 0, 0, 0, 0, 0, 0) if size == _EMPTY_BYTES else None
    # The topic's id, its partition, and that neither has tagged fields.
    if topics != _ONE or size != _SINGLE_BYTES:
        return None
    at += _HEAD.size
    partitions, *named, tags = _PARTITION.unpack_from(buffer, at + Uuid.SIZE)
    if partitions != _ONE or tags:
        return None
    return (*limits, bytes(buffer[at : at + Uuid.SIZE]), *named)


def plain_of(single: SingleRequest) -> PlainFetch:
    """The same for the long way."""
    topic_id = single[6]
    if topic_id is None:
        return PlainFetch(*single[:6], ())
    index, leader_epoch, offset, last_epoch, log_start, bytes_max = single[7:]
    target = FetchTarget(
        Uuid(topic_id), index, offset, bytes_max, leader_epoch, last_epoch, log_start
    )
    return PlainFetch(*single[:6], (target,))


def _read_without_rack(buffer: memoryview, at: int, end: int) -> PlainFetch | None:
    return _read_old(buffer, at, end, has_rack=False)


def _read_with_rack(buffer: memoryview, at: int, end: int) -> PlainFetch | None:
    return _read_old(buffer, at, end, has_rack=True)


READERS: Final[dict[int, Reader]] = {
    **dict.fromkeys(range(_LEADER_EPOCHS_SINCE, RACKS_SINCE), _read_without_rack),
    RACKS_SINCE: _read_with_rack,
}
"""By version before 13: reads `buffer[at:end]`, or gives None if it is of another shape."""


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
SINGLE_END: Final = b"\0\0\0"
"""What follows the records of an answer that `write_single` has begun."""
READ_BYTES_MAX: Final = 96 * 1024
"""Records up to this size are read into their answer; larger ones are sent from their file."""


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
    assert isinstance(target.topic, Uuid)
    head = write_single(
        correlation_id,
        answer.session_id,
        target.topic,
        target.index,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        found.aborted_transactions is not None,
        0 if records is None else records.length,
    )
    return [head + SINGLE_END] if records is None else [head, records, SINGLE_END]


def write_single(
    correlation_id: int,
    session_id: int,
    topic_id: bytes,
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    has_aborted: bool,
    length: int,
) -> bytes:
    """The answer about one partition up to its records; `SINGLE_END` follows them.

    `has_aborted` says that the asker wants to know of aborted transactions; there are none.
    """
    encoded_length = encode_uvarint(length + 1)
    size = _SINGLE.size - 4 + len(encoded_length) + length + len(SINGLE_END)
    limits = (high_watermark, last_stable_offset, log_start_offset)
    head = (size, correlation_id, 0, 0, 0, session_id, _ONE, topic_id, _ONE, index, 0, *limits)
    return _SINGLE.pack(*head, has_aborted, UNKNOWN) + encoded_length


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


def read_answer(
    descriptor: int,
    position: int,
    length: int,
    correlation_id: int,
    session_id: int,
    topic_id: bytes,
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    has_aborted: bool,
) -> bytes | None:
    """The whole answer, its records read from a file; None if the file does not give them all."""
    try:
        records = os.pread(descriptor, length, position)
    except OSError:
        return None
    if len(records) != length:
        return None
    limits = (high_watermark, last_stable_offset, log_start_offset)
    head = write_single(correlation_id, session_id, topic_id, index, *limits, has_aborted, length)
    return b"".join((head, records, SINGLE_END))


def answer_single(fetched: SingleFetched, asked: SingleRequest, correlation_id: int) -> Response:
    """The answer to a fetch that was served the short way."""
    target, (file, position, length, high_watermark, last_stable, log_start) = fetched
    topic_id, session_id, has_aborted = target.topic, asked[4], asked[3] == _COMMITTED
    assert type(topic_id) is Uuid
    if length <= READ_BYTES_MAX:
        descriptor = file.fileno()
        if descriptor >= 0:
            frame = read_answer(
                descriptor,
                position,
                length,
                correlation_id,
                session_id,
                topic_id,
                target.index,
                high_watermark,
                last_stable,
                log_start,
                has_aborted,
            )
            if frame is not None:
                return frame
    head = write_single(
        correlation_id,
        session_id,
        topic_id,
        target.index,
        high_watermark,
        last_stable,
        log_start,
        has_aborted,
        length,
    )
    return [head, FileSlice(file, position, length), SINGLE_END]


plain_read_single, plain_write_single, plain_read_answer = read_single, write_single, read_answer
"""The twins in Python, whichever runs."""
if not TYPE_CHECKING and _accel.COMPILED:
    from millstream._accel.broker.fetch_frames import read_answer, read_single, write_single
