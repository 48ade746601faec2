"""Fetched bytes to consumers' records; plain version of `_accel.codec.consumer_records`.

A consumer makes one `FetchedBatches` of each partition in each answer to a fetch and takes records
or Arrow rows from it until it is empty. Decompression and old formats are the caller's functions.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from millstream._accel.codec import faults
from millstream.records.layout import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
)
from millstream.records.plain.consumer_record import ConsumerRecord
from millstream.records.plain.crc32c import crc32c
from millstream.records.plain.decoding import decode_records, iterate_records
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.records.plain.arrow_builder import ArrowRecordsBuilder
    from millstream.records.plain.record import Record
    from millstream.types import Headers, ReadableBuffer

    _LegacyBody: TypeAlias = tuple[bytes, int, int, int, int | None]
    _Deserializer: TypeAlias = Callable[[str, bytes, Headers], Any]

_LENGTH_MIN = (14, 22, LENGTH_MIN)
"""The smallest length of a batch, by its magic."""
_CODEC_BITS = 0x07
_CONTROL_KEY = Struct(">hh")
_ABORT = 0
_START = Struct(">qi")


class _Batch(NamedTuple):
    """What the header of a batch says, as far as a reader wants to know."""

    start: int
    size: int
    magic: int
    leader_epoch: int
    attributes: int
    base_offset: int
    next_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    crc: int
    record_count: int


class _Body(NamedTuple):
    """The records of the open batch and what they count from."""

    data: ReadableBuffer
    record_count: int
    base_offset: int
    base_timestamp: int
    stamp: int | None


class FetchedBatches:
    """The batches of one partition that one fetch brought, taken from front to back.

    `position` is the offset of the next record that will be given. A fault is raised when it is
    the first thing in the way: what lies before it is given first. One thread at a time.
    """

    def __init__(
        self,
        data: ReadableBuffer,
        topic: str,
        partition: int,
        position: int,
        *,
        decompress: Callable[[int, memoryview], ReadableBuffer],
        read_legacy: Callable[[memoryview, bool], _LegacyBody],
        check_crc: bool = True,
        aborted: Sequence[tuple[int, int]] | None = None,
        key_deserializer: _Deserializer | None = None,
        value_deserializer: _Deserializer | None = None,
    ) -> None:
        """`aborted` are (producer id, first offset) of transactions to leave out, None reads all.

        `decompress(codec, view)` gives the records section of a compressed batch;
        `read_legacy(view, check_crc)` gives (body, count, base offset, base timestamp, append
        timestamp or None) for a message of an old format, as if it were of today's. Deserializers
        are called with the topic, the bytes and the headers.
        """
        self._view = memoryview(data).cast("B")
        self.topic = topic
        self.partition = partition
        self.leader_epoch = -1
        self.end_offset = position
        self.end_epoch = -1
        self.size = len(self._view)
        self._decompress = decompress
        self._read_legacy = read_legacy
        self._check_crc = check_crc
        self._aborted = aborted or ()
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._batches = self._find_batches()
        self._start_from(position)

    def _find_batches(self) -> list[_Batch]:
        """Look at the headers only: which whole batches there are, and where they end."""
        found: list[_Batch] = []
        at = 0
        while self.size - at > MAGIC_AT:
            batch = _read_header(self._view, at)
            if batch.magic > MAGIC or batch.size - LOG_OVERHEAD < _LENGTH_MIN[batch.magic]:
                if not found:
                    raise faults.bad_header(batch.magic, batch.size - LOG_OVERHEAD)
                break  # A fetch from here on will say it again.
            at += batch.size
            if at > self.size:
                break
            found.append(batch)
            self.end_offset = max(self.end_offset, batch.next_offset)
            self.end_epoch = batch.leader_epoch
        return found

    def _start_from(self, position: int) -> None:
        self.position = position
        self._next = 0
        self._waiting = sorted(
            ((first, producer) for producer, first in self._aborted), reverse=True
        )
        self._aborting: set[int] = set()
        self._close()

    @property
    def is_empty(self) -> bool:
        """Whether everything was taken."""
        return self._next >= len(self._batches)

    @property
    def is_cut_off(self) -> bool:
        """Whether there is not even one whole batch."""
        return self.size > 0 and not self._batches

    # ---- from batch to batch ----

    def next_batch(self) -> bytes:
        """The bytes of the batch whose records come next; empty if there is none."""
        return b"" if self.is_empty else bytes(self._view_of(self._batches[self._next]))

    def skip_batch(self) -> None:
        """Go behind that batch as if all of it had been taken: it cannot be read."""
        if not self.is_empty:
            self._leave(self._batches[self._next])

    def _close(self) -> None:
        self._body: _Body | None = None
        self._records: Iterator[Record] = iter(())
        self._left = 0

    def _leave(self, batch: _Batch) -> None:
        """Go behind the batch: it is read, or it is not for applications."""
        self.position = max(self.position, batch.next_offset)
        self.leader_epoch = max(self.leader_epoch, batch.leader_epoch)
        self._next += 1
        self._close()

    def _open_next(self) -> bool:
        """Open the next batch that has something to give, unless one is open."""
        while self._body is None:
            if self.is_empty:
                return False
            batch = self._batches[self._next]
            if batch.next_offset <= self.position and not self._waiting:
                self._leave(batch)
            elif batch.magic < MAGIC:
                self._open(_Body(*self._read_legacy(self._view_of(batch), self._check_crc)))
            elif self._is_hidden(batch):
                self._leave(batch)
            else:
                self._open(self._body_of(batch))
        return True

    def _view_of(self, batch: _Batch) -> memoryview:
        return self._view[batch.start : batch.start + batch.size]

    def _is_hidden(self, batch: _Batch) -> bool:
        """Whether the batch is a marker, or part of a transaction that was aborted."""
        if self._check_crc:
            computed = crc32c(self._view_of(batch)[ATTRIBUTES_AT:])
            if computed != batch.crc:
                raise faults.bad_checksum(batch.base_offset, batch.crc, computed)
        while self._waiting and self._waiting[-1][0] < batch.next_offset:
            self._aborting.add(self._waiting.pop()[1])
        if batch.attributes & CONTROL_BIT:
            if self._aborting and self._is_abort(batch):
                self._aborting.discard(batch.producer_id)
            return True
        return bool(batch.attributes & TRANSACTIONAL_BIT) and batch.producer_id in self._aborting

    def _is_abort(self, batch: _Batch) -> bool:
        """Whether a control batch, whose one record is never compressed, aborts a transaction."""
        if batch.record_count < 1:
            return False  # Compaction took the marker: the transaction ended before.
        body = self._view_of(batch)[HEADER_SIZE:]
        (marker, *_) = decode_records(body, batch.record_count, 0, 0)
        if marker.key is None or len(marker.key) < _CONTROL_KEY.size:
            return False
        _, number = _CONTROL_KEY.unpack_from(marker.key)
        return bool(number == _ABORT)

    def _body_of(self, batch: _Batch) -> _Body:
        data: ReadableBuffer = self._view_of(batch)[HEADER_SIZE:]
        codec = batch.attributes & _CODEC_BITS
        if codec and len(data):
            data = self._decompress(codec, memoryview(data))
        return _Body(
            data,
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp,
            batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None,
        )

    def _open(self, body: _Body) -> None:
        if body.record_count < 0:
            raise faults.negative_count(body.record_count)
        self._body = body
        self._records = iterate_records(*body)
        self._left = body.record_count

    # ---- records ----

    def take(self, count: int) -> list[ConsumerRecord]:
        """The next records, `count` at most; an empty list when there are no more."""
        taken: list[ConsumerRecord] = []
        start = self.position
        try:
            while len(taken) < count and self._open_next():
                self._take_open(taken, count)
        except Exception:
            self._close()  # To be read again from `position`: the iterator is spent.
            if not taken:
                raise
            # They go first; the fault is still in the way when somebody asks again.
        except BaseException:
            self._start_from(start)  # An interrupt loses nothing.
            raise
        return taken

    def _take_open(self, taken: list[ConsumerRecord], count: int) -> None:
        assert self._body is not None
        batch = self._batches[self._next]
        stamped = self._body.stamp is not None
        while self._left and len(taken) < count:
            record = next(self._records)
            if record.offset >= self.position:
                taken.append(self._make(record, batch.leader_epoch, stamped=stamped))
                self.position = record.offset + 1
                self.leader_epoch = batch.leader_epoch
            self._left -= 1
        if not self._left:
            next(self._records, None)  # It complains about bytes behind the last record.
            self._leave(batch)

    def _make(self, record: Record, leader_epoch: int, *, stamped: bool) -> ConsumerRecord:
        key: Any = record.key
        value: Any = record.value
        part = "key"
        try:
            if self._key_deserializer is not None and key is not None:
                key = self._key_deserializer(self.topic, key, record.headers)
            part = "value"
            if self._value_deserializer is not None and value is not None:
                value = self._value_deserializer(self.topic, value, record.headers)
        except Exception as error:
            raise faults.bad_value(
                part, self.topic, self.partition, record.offset, error
            ) from error
        return ConsumerRecord(
            self.topic,
            self.partition,
            record.offset,
            record.timestamp,
            key,
            value,
            record.headers,
            int(stamped),
            leader_epoch,
        )

    # ---- columns ----

    def take_arrow(
        self, builder: ArrowRecordsBuilder, byte_limit: int, to_offset: int = INT64_MAX
    ) -> int:
        """Append batches to an ArrowRecordsBuilder up to an offset; the rows added.

        Ends after the batch with which the builder has `byte_limit` bytes.
        """
        rows = 0
        try:
            while (
                self.position < to_offset and builder.byte_count < byte_limit and self._open_next()
            ):
                rows += self._append_open(builder, to_offset)
        except Exception:
            if not rows:
                raise
        return rows

    def _append_open(self, builder: ArrowRecordsBuilder, to_offset: int) -> int:
        assert self._body is not None
        batch = self._batches[self._next]
        rows = builder.append(*self._body, self.partition, self.position, to_offset)
        if batch.next_offset <= to_offset:
            self._leave(batch)
        else:
            self.position = to_offset
            self.leader_epoch = batch.leader_epoch
            self._close()  # The rest is read from its start, should somebody want it.
        return rows


def _read_header(view: memoryview, at: int) -> _Batch:
    """The header of the batch at `at`; of an old message, or of one cut off, what can be known."""
    magic = view[at + MAGIC_AT]
    offset, length = _START.unpack_from(view, at)
    if magic != MAGIC or len(view) - at < HEADER_SIZE:
        return _Batch(at, LOG_OVERHEAD + length, magic, -1, 0, offset, offset + 1, 0, 0, -1, 0, 0)
    (
        base_offset,
        _,
        leader_epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        _,
        _,
        record_count,
    ) = HEADER.unpack_from(view, at)
    return _Batch(
        at,
        LOG_OVERHEAD + length,
        magic,
        leader_epoch,
        attributes,
        base_offset,
        base_offset + last_offset_delta + 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        crc,
        record_count,
    )
