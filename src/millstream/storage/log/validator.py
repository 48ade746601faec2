"""What a leader demands of a batch before it is appended, and a follower of what it fetched.

`UnifiedLog` calls it for every append. It checks, and gives the batch its offset, leader epoch and,
with LogAppendTime, its timestamp, in the caller's own buffer where that is writable; it never
touches a file and never knows what other batches there are.

A leader reads every record of a batch, decompressed where it has to be: what it has taken can be
read by every consumer. Sizes and lengths are bounded, and so is what a batch may unpack to; how
much of that may happen at once is the caller's to say (`unpack_max`), because unpacking takes time.
docs/internals/storage.md has the table; error codes are Kafka's, in the order in which it finds
fault (`tests/interop/test_produce_errors.py`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import (
    CorruptMessage,
    DecompressedTooLarge,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
)
from millstream.records.batch import RecordBatch, split_batches
from millstream.records.compression import Compression, compress
from millstream.records.kernel import BatchWriter, inspect_records
from millstream.records.layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    TimestampType,
)
from millstream.records.legacy import LegacyBatch
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.types import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.storage.log.config import LogConfig
    from millstream.types import ReadableBuffer

_INT32 = Struct(">i")
_INT16 = Struct(">h")
_CODEC_MAX: Final = max(Compression)
_LENGTH_MIN_EVER: Final = min(LegacyBatch.LENGTH_MIN)
_NOT_FOR_CLIENTS: Final = CONTROL_BIT | DELETE_HORIZON_BIT

INLINE_UNPACK_MAX: Final = 256 * 1024
"""How many bytes of records may be unpacked for a request while everybody else waits."""


class TooMuchToUnpack(Exception):
    """The records unpack to more bytes than the caller wants to wait for."""


class Inspected(NamedTuple):
    """Batches that a leader may append, once they have their offsets."""

    validator: LogValidator
    """Whose demands they meet."""
    records: ReadableBuffer
    """The bytes they came in."""
    batches: list[RecordBatch]
    unpacked_bytes: int
    """How much was decompressed or compressed again."""

    def number(self, base_offset: int, leader_epoch: int) -> list[RecordBatch]:
        """Give the batches their place in a log."""
        for batch in self.batches:
            batch.patch(base_offset, leader_epoch)
            base_offset = batch.next_offset
        return self.batches


class LogValidator:
    """The demands of one topic's settings; a change of settings makes a new one."""

    __slots__ = ("_codec", "_config", "_is_stamping")

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._codec = _own_codec(config)
        self._is_stamping = config.message_timestamp_type == "LogAppendTime"

    def takes_work(self, records: ReadableBuffer) -> bool:
        """Whether a batch has to be decompressed or compressed, by a look at its header."""
        if len(records) < HEADER_SIZE:
            return False
        codec = records[ATTRIBUTES_AT + 1] & CODEC_MASK
        return codec != Compression.NONE or bool(self._codec)

    def inspect(
        self,
        records: ReadableBuffer,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        unpack_max: int = INT64_MAX,
    ) -> Inspected:
        """Check what a leader is to append; it is safe to do so on any thread.

        The batches are those of the caller's buffer; where it is read-only or a batch has to be
        written anew they are elsewhere. A client sends exactly one. Raises what the client gets,
        and `TooMuchToUnpack` where that takes more than `unpack_max` bytes.
        """
        batches = list(_parse(records, origin))
        for batch in batches:
            self._check_envelope(batch, origin)
        if len(records) > self._config.segment_size_max:
            raise RecordListTooLarge(
                f"{len(records)} bytes in one append, the topic's segment.bytes "
                f"is {self._config.segment_size_max}"
            )
        unpacked_bytes = 0
        for place, batch in enumerate(batches):
            if origin is AppendOrigin.CLIENT:
                self._check_client(batch)
            if not batch.is_control:
                body = self._unpack(batch, unpack_max - unpacked_bytes)
                unpacked_bytes += len(body) if self.takes_work(batch.view) else 0
                batch = self._inspect_records(batch, body, now_ms)
            batches[place] = self._stamped(batch, now_ms)
        return Inspected(self, records, batches, unpacked_bytes)

    def _check_envelope(self, batch: RecordBatch, origin: AppendOrigin) -> None:
        """In the order in which Kafka finds fault with a batch."""
        if batch.base_offset != 0 and origin is AppendOrigin.CLIENT:
            raise InvalidRecord(f"the batch begins at offset {batch.base_offset}, it must be 0")
        if batch.size > self._config.max_message_bytes:
            raise self._too_large(batch.size)
        batch.check_crc()

    def _check_client(self, batch: RecordBatch) -> None:
        _check_client_header(batch)
        if self._is_stamping and batch.attributes & LOG_APPEND_TIME_BIT:
            raise InvalidTimestamp("a producer may not set the timestamp type to LogAppendTime")

    def _stamped(self, batch: RecordBatch, now_ms: int) -> RecordBatch:
        """The batch in a buffer that can be written, with the timestamps that the topic wants."""
        if batch.view.readonly:
            batch = RecordBatch(bytearray(batch.view))
        if self._is_stamping:
            batch.stamp(TimestampType.LOG_APPEND_TIME, now_ms)
        elif batch.attributes & LOG_APPEND_TIME_BIT:
            batch.stamp(TimestampType.CREATE_TIME, batch.max_timestamp)
        return batch

    def _is_to_be_recompressed(self, batch: RecordBatch) -> bool:
        return self._codec is not None and batch.attributes & CODEC_MASK != self._codec

    def _unpack(self, batch: RecordBatch, unpack_max: int) -> ReadableBuffer:
        """The encoded records; in place where they are not compressed."""
        size_max = self._config.max_decompressed_bytes
        try:
            body = batch.body(min(size_max, unpack_max))
        except DecompressedTooLarge as error:
            if unpack_max < size_max:
                raise TooMuchToUnpack from error
            raise MessageTooLarge(
                f"the batch unpacks to more than {size_max} bytes, the topic's "
                "millstream.max.decompressed.bytes"
            ) from error
        except CorruptMessage as error:
            raise _unreadable(error) from error
        if self._is_to_be_recompressed(batch) and len(body) > unpack_max:
            raise TooMuchToUnpack
        return body

    def _inspect_records(
        self, batch: RecordBatch, body: ReadableBuffer, now_ms: int
    ) -> RecordBatch:
        """Check the records themselves, and write the batch anew where that is needed."""
        oldest, newest = self._times_allowed(now_ms)
        try:
            largest, is_in_order, keyless_count, keyless, untimely_count, untimely = (
                inspect_records(body, batch.record_count, batch.base_timestamp, oldest, newest)
            )
        except CorruptMessage as error:
            raise _unreadable(error) from error
        if keyless_count and self._config.is_compacted:
            raise _missing_keys(keyless_count, keyless)
        if untimely_count and not self._is_stamping:
            raise self._bad_timestamps(untimely_count, untimely, now_ms)
        if not is_in_order:
            return self._within_limit(self._renumbered(batch))
        if self._is_to_be_recompressed(batch):
            batch = self._within_limit(self._recompressed(batch, body))
        if not self._is_stamping and batch.record_count and batch.max_timestamp != largest:
            batch = RecordBatch(bytearray(batch.view))
            batch.stamp(TimestampType.CREATE_TIME, largest)
        return batch

    def _times_allowed(self, now_ms: int) -> tuple[int, int]:
        return (
            max(now_ms - self._config.message_timestamp_before_max_ms, INT64_MIN),
            min(now_ms + self._config.message_timestamp_after_max_ms, INT64_MAX),
        )

    def _bad_timestamps(
        self, count: int, first: list[tuple[int, int]], now_ms: int
    ) -> InvalidTimestamp:
        faults = [(index, self._bad_timestamp(timestamp, now_ms)) for index, timestamp in first]
        error = InvalidTimestamp(f"record {faults[0][0]} {faults[0][1]}; {count} in all")
        error.record_errors = tuple(faults)
        return error

    def _bad_timestamp(self, timestamp: int, now_ms: int) -> str:
        return (
            f"has timestamp {timestamp}, the broker's clock is at {now_ms}; allowed are "
            f"{self._config.message_timestamp_before_max_ms} ms before it "
            f"(message.timestamp.before.max.ms) and "
            f"{self._config.message_timestamp_after_max_ms} ms after it "
            f"(message.timestamp.after.max.ms)"
        )

    def _recompressed(self, batch: RecordBatch, body: ReadableBuffer) -> RecordBatch:
        """The same header and records in the topic's own codec."""
        assert self._codec is not None
        attributes = batch.attributes & ~CODEC_MASK | self._codec
        return _with_body(batch, attributes, self._compress(self._codec, body))

    def _renumbered(self, batch: RecordBatch) -> RecordBatch:
        """The same records, with offsets that count from 0 without holes."""
        codec = self._codec if self._codec is not None else batch.compression
        writer = BatchWriter(batch.size)
        for record in batch.records():
            writer.append(record.timestamp, record.key, record.value, record.headers)
        with writer.body() as body:
            sealed = writer.seal(
                attributes=batch.attributes & ~CODEC_MASK | codec,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                body=self._compress(codec, body),
            )
        return RecordBatch(bytearray(sealed))

    def _compress(self, codec: Compression, body: ReadableBuffer) -> ReadableBuffer:
        level = self._config.compression_level if codec == self._codec else None
        return compress(codec, body, level)

    def _within_limit(self, batch: RecordBatch) -> RecordBatch:
        if batch.size > self._config.max_message_bytes:
            raise self._too_large(batch.size)
        return batch

    def _too_large(self, size: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"the batch has {size} bytes, the topic's max.message.bytes "
            f"is {self._config.max_message_bytes}"
        )


def is_sound_compressed(data: memoryview) -> bool:
    """Whether the fast path may take a compressed batch, whose header was checked, as it is.

    No is no verdict: the batch may just be large. `LogValidator` knows.
    """
    batch = RecordBatch(data)
    try:
        largest, is_in_order, _, _, untimely_count, _ = inspect_records(
            batch.body(INLINE_UNPACK_MAX),
            batch.record_count,
            batch.base_timestamp,
            INT64_MIN,
            INT64_MAX,
        )
    except CorruptMessage:
        return False
    return is_in_order and not untimely_count and largest == batch.max_timestamp


def check_replicated(
    records: ReadableBuffer, expected_offset: int, leader_epoch_max: int
) -> list[RecordBatch | LegacyBatch]:
    """Check what a follower fetched: checksums, and offsets that go up from where its log ends.

    A batch that the fetch cut off at the end is left out, and so is everything from the first
    batch of a later epoch than the fetch was for: another leader wrote it, and this fetch cannot
    tell where the logs of the two part.
    """
    accepted = []
    for batch in split_batches(records):
        batch.check_crc()
        if batch.base_offset < expected_offset or batch.last_offset < batch.base_offset:
            raise CorruptMessage(
                f"the fetched batch has offsets {batch.base_offset} to {batch.last_offset}, "
                f"this log goes on at {expected_offset}"
            )
        if isinstance(batch, RecordBatch) and batch.leader_epoch > leader_epoch_max:
            break
        expected_offset = batch.last_offset + 1
        accepted.append(batch)
    return accepted


def _parse(records: ReadableBuffer, origin: AppendOrigin) -> Iterator[RecordBatch]:
    """The batches of a leader's append: only the format of today."""
    if origin is AppendOrigin.CLIENT:
        yield _only_batch(records)
        return
    position = 0
    while True:
        batch = RecordBatch(records, position)
        yield batch
        position += batch.size
        if position == len(records):
            return


def _only_batch(records: ReadableBuffer) -> RecordBatch:
    """The batch of a client. The beginning of another behind it is no error, and is left out."""
    size = _whole_batch_size(records, 0)
    if size is None:
        raise InvalidRecord(f"there is no whole batch in these {len(records)} bytes")
    if records[MAGIC_AT] != MAGIC:
        raise InvalidRecord(f"the batch has magic {records[MAGIC_AT]}; only {MAGIC} is accepted")
    if _whole_batch_size(records, size) is not None:
        raise InvalidRecord("a produce request has exactly one batch per partition")
    return RecordBatch(records)


def _whole_batch_size(records: ReadableBuffer, position: int) -> int | None:
    """The bytes of the batch at a position, None if it is not whole.

    What cannot be the beginning of a batch of any format raises CorruptMessage.
    """
    left = len(records) - position
    if left < LOG_OVERHEAD:
        return None
    (length,) = _INT32.unpack_from(records, position + LENGTH_AT)
    if length < _LENGTH_MIN_EVER:
        raise CorruptMessage(f"byte {position}: a batch cannot have length {length}")
    if left <= MAGIC_AT:
        return None
    magic = records[position + MAGIC_AT]
    if magic > MAGIC:
        raise CorruptMessage(f"byte {position}: a batch cannot have magic {magic}")
    size = LOG_OVERHEAD + int(length)
    return size if size <= left else None


def _check_client_header(batch: RecordBatch) -> None:
    """What only the header can be wrong about."""
    if not 0 < batch.record_count == batch.last_offset_delta + 1:
        raise InvalidRecord(
            f"the batch has {batch.record_count} records and last offset delta "
            f"{batch.last_offset_delta}"
        )
    if batch.attributes & _NOT_FOR_CLIENTS:
        _refuse_attributes(batch)
    if batch.attributes & CODEC_MASK > _CODEC_MAX:
        Compression.of_attributes(batch.attributes)
    if batch.producer_id != NO_PRODUCER_ID and batch.base_sequence < 0:
        raise InvalidRecord(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}; it counts from 0"
        )


def _refuse_attributes(batch: RecordBatch) -> None:
    if batch.attributes & CONTROL_BIT:
        raise InvalidRecord("clients may not write control records")
    raise InvalidRecord("clients may not set a delete horizon")


def _missing_keys(count: int, first: list[int]) -> InvalidRecord:
    error = InvalidRecord(
        f"{count} records have no key, the first is number {first[0]}; a compacted topic needs one"
    )
    error.record_errors = tuple((index, "a compacted topic needs a key") for index in first)
    return error


def _unreadable(error: CorruptMessage) -> InvalidRecord:
    """Its checksum is right, so sending the batch again would not help: not retriable."""
    return InvalidRecord(f"the records cannot be read: {error}")


def _with_body(batch: RecordBatch, attributes: int, body: ReadableBuffer) -> RecordBatch:
    """The batch's header over another encoding of the same records."""
    data = bytearray(batch.view[:HEADER_SIZE])
    data += body
    _INT32.pack_into(data, LENGTH_AT, len(data) - LOG_OVERHEAD)
    _INT16.pack_into(data, ATTRIBUTES_AT, attributes)
    rewritten = RecordBatch(data)
    rewritten.stamp(batch.timestamp_type, batch.max_timestamp)
    return rewritten


def _own_codec(config: LogConfig) -> Compression | None:
    """The codec a topic insists on; None where the producer chooses."""
    if config.compression_type == "producer":
        return None
    if config.compression_type == "uncompressed":
        return Compression.NONE
    return Compression.parse(config.compression_type)
