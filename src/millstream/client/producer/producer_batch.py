"""`ProducerBatch`: the records that travel to one partition together, and what became of them.

The accumulator fills it, the `Sender` seals, sends and completes it, and every `Delivery` is a view
of one record in it. Who waits for a record waits for its batch. The records are touched by the
accumulator while it is open, by the I/O thread alone afterwards; the outcome is set once, under the
lock of `Completions`.
"""

from __future__ import annotations

import threading
from struct import Struct
from typing import TYPE_CHECKING, Any

from millstream.client.producer.dispatcher import log_failure
from millstream.client.producer.kernel import BatchOutcome, tell_all
from millstream.errors import InvalidRecord
from millstream.records.batch import RecordBatch
from millstream.records.compression import Compression, compress
from millstream.records.kernel import BatchWriter, crc32c
from millstream.records.layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.client.producer.completions import Completions
    from millstream.client.producer.delivery import Delivery
    from millstream.errors import MillstreamError
    from millstream.records import Record
    from millstream.types import ReadableBuffer

_PRODUCER_STATE = Struct(">qhi")
_CRC = Struct(">I")


class ProducerBatch(BatchOutcome):
    """Records of one partition, their state on the way, and at last where they are or why not."""

    __slots__ = (
        "_completions",
        "_listeners",
        "_looked_at",
        "_parent",
        "_parts_left",
        "attempts",
        "base_sequence",
        "created_ms",
        "first_index",
        "is_closed",
        "is_renumbered",
        "is_repeat",
        "is_sent",
        "last_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "record_errors",
        "records",
        "reserved",
        "retry_at_ms",
        "state",
        "told",
        "wakeups",
        "writer",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        writer: BatchWriter,
        reserved: int,
        created_ms: int,
        completions: Completions,
    ) -> None:
        super().__init__(topic, partition)
        self.writer: BatchWriter | None = writer
        """Where the records are until they are sealed."""
        self.reserved = reserved
        """Bytes of the producer's memory that are set aside for it."""
        self.created_ms = created_ms
        self.record_count = 0
        self.is_closed = False
        self.records: bytes | None = None
        """The sealed bytes, once it has been sent."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_renumbered = False
        """Whether its sequence was changed since it was sent last."""
        self.attempts = 0
        self.is_repeat = False
        """Whether it waits to be sent again, or was: it keeps its number and goes before others."""
        self.retry_at_ms = 0
        self.last_leader_epoch = -1
        self.state: Any = None
        """For the Sender: its notes about the partition, once it was sent."""
        self.is_sent = False
        """Whether it is on its way at this moment: sent, and not answered."""
        self.record_errors: Mapping[int, str] = {}
        self.first_index = 0
        """Which record of the batch it was split from is its first."""
        self.wakeups: dict[Any, Any] | None = None
        """For `delivery`: what is to be woken, by event loop."""
        self.told: list[Any] = []
        """Functions of users to be told at the end, in the order of their records, each followed
        by the handle it gets. The compiled way of a record adds to it while the batch is open."""
        self._parent: ProducerBatch | None = None
        self._parts_left = 0
        self._completions = completions
        self._listeners: list[Callable[[], object]] = []
        self._looked_at: set[int] = set()

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.topic}-{self.partition} of {self.record_count} records, "
            f"sequence {self.base_sequence}, attempts {self.attempts}>"
        )

    @property
    def has_sequence(self) -> bool:
        """Whether it was numbered: then it is sent in its turn or not at all."""
        return self.base_sequence != NO_SEQUENCE

    # ---- the bytes ----

    def note_sending(self, leader_epoch: int) -> None:
        """It is on its way to the leader of this epoch."""
        self.attempts += 1
        self.is_sent = True
        self.is_renumbered = False
        self.last_leader_epoch = leader_epoch

    def end_of_records(self) -> None:
        """No more records come; now it is known how many there are."""
        self.is_closed = True
        if self.writer is not None:
            self.record_count = self.writer.record_count

    def number(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Give it its producer and its place; what was sealed with another place is corrected."""
        if self.has_sequence:
            self.is_renumbered = True
        self.producer_id = producer_id
        self.producer_epoch = epoch
        self.base_sequence = sequence
        if self.records is not None:
            self.records = with_producer_state(self.records, producer_id, epoch, sequence)

    def seal(
        self, compression: Compression, level: int | None, *, is_transactional: bool
    ) -> BatchWriter | None:
        """Make the bytes to send, if they are not made yet; the writer that is free now."""
        writer, self.writer = self.writer, None
        if writer is None:
            return None
        body: ReadableBuffer | None = None
        if compression:
            body = compress(compression, writer.body(), level)
        self.records = writer.seal(
            attributes=int(compression) | (TRANSACTIONAL_BIT if is_transactional else 0),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            body=body,
        )
        return writer

    @property
    def size(self) -> int:
        """How many bytes it has or, before it is sealed, will have at most."""
        if self.records is not None:
            return len(self.records)
        return HEADER_SIZE if self.writer is None else self.writer.size

    def split(self) -> list[ProducerBatch]:
        """Two batches of about half the bytes each, which take its place; it ends with them.

        Only of a batch that was sent and has two records or more.
        """
        if self.records is None:
            # The sink sent it from its writer.
            self.seal(Compression.NONE, None, is_transactional=False)
        assert self.records is not None
        assert self.record_count > 1
        rows = RecordBatch(self.records).records()
        half = sum(_row_size(row) for row in rows) // 2
        parts = [self._empty_part(0)]
        taken = 0
        for row in rows:
            is_last_chance = row.offset == len(rows) - 1
            if len(parts) == 1 and row.offset and (taken >= half or is_last_chance):
                parts.append(self._empty_part(row.offset))
            writer = parts[-1].writer
            assert writer is not None
            writer.append(row.timestamp, row.key, row.value, row.headers)
            parts[-1].record_count += 1
            taken += _row_size(row)
        return self._adopt(parts)

    def _empty_part(self, first_index: int) -> ProducerBatch:
        part = ProducerBatch(
            self.topic, self.partition, BatchWriter(), 0, self.created_ms, self._completions
        )
        part.is_closed = True
        part.attempts = self.attempts
        part.first_index = first_index
        part._parent = self
        return part

    def _adopt(self, parts: list[ProducerBatch]) -> list[ProducerBatch]:
        parts[0].reserved, self.reserved = self.reserved, 0
        with self._completions.lock:
            self.parts = parts
            self._parts_left = len(parts)
        self.records = None
        return parts

    # ---- the outcome ----

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """The brokers have it, and who waits is told."""
        self.end_well(base_offset, log_append_time)
        self.tell()

    def end_well(self, base_offset: int, log_append_time: int) -> None:
        """The brokers have it. Who waits is to be told next."""
        with self._completions.lock:
            assert not self.is_done, "a batch ends once"
            self.base_offset = base_offset
            self.log_append_time = log_append_time
            self._end()

    def fail(self, error: MillstreamError, record_errors: Mapping[int, str] | None = None) -> None:
        """It is lost, or nobody knows; `record_errors` tell what is wrong with which records."""
        with self._completions.lock:
            assert not self.is_done, "a batch ends once"
            self.error = error
            self.record_errors = record_errors or {}
            self._see_told()
            self._completions.note_failure(self)
            self._end()
        self.tell()

    def _end(self) -> None:
        """With the lock. Whoever knows the end may wait for the callbacks, so they come with it."""
        self.is_done = True
        told, self.told = self.told, []
        if told:
            self._completions.dispatcher.submit(tell_all, told, log_failure)
        parent = self._parent
        if parent is not None:
            parent._parts_left -= 1
            if not parent._parts_left:
                parent._end()

    def tell(self) -> None:
        """Tell who listens that it has ended."""
        self.records = None
        with self._completions.lock:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()
        if self._parent is not None and self._parent.is_done:
            self._parent.tell()

    # ---- who waits for it ----

    def listen(self, listener: Callable[[], object]) -> bool:
        """Call `listener` on the I/O thread at the end; False if the end was already."""
        with self._completions.lock:
            if self.is_done:
                return False
            self._listeners.append(listener)
        return True

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the end; False if it did not come in time."""
        event = threading.Event()
        return not self.listen(event.set) or event.wait(timeout_s)

    def call_back(self, function: Callable[[Delivery], object], delivery: Delivery) -> None:
        """Let the dispatcher call `function(delivery)` at the end, or now if that was."""
        with self._completions.lock:
            if not self.is_done:
                # At once, because the compiled way adds to the list without this lock.
                self.told += (_AddedLater(function), delivery)
                return
        self._completions.dispatcher.submit(tell_all, [function, delivery], log_failure)

    def locate(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch that a record ended in, and its index there."""
        batch = self
        while batch.parts is not None:
            second = batch.parts[1]
            batch = second if index >= second.first_index else batch.parts[0]
            index -= batch.first_index
        return batch, index

    def error_of(self, index: int) -> MillstreamError | None:
        """Why a record was lost: what is wrong with itself, or with others in its batch."""
        if not self.record_errors or self.error is None:
            return None if self.error is None else _copy_of(self.error)
        if index in self.record_errors:
            return InvalidRecord(self.record_errors[index] or str(self.error))
        return InvalidRecord("other records of its batch were refused, and so it was not written")

    # ---- who has looked ----

    def look(self, index: int) -> None:
        """Somebody learns, or waits to learn, what became of a record."""
        self._looked_at.add(index)

    def _see_told(self) -> None:
        """Who is going to be told has looked; who was added later has said so if they did."""
        root = self
        while root._parent is not None:
            root = root._parent
        for function, delivery in zip(root.told[::2], root.told[1::2], strict=True):
            if type(function) is not _AddedLater:
                delivery.mark_seen()

    def look_away(self, index: int) -> None:
        """They did not wait for it after all."""
        self._looked_at.discard(index)

    def unseen_failures(self) -> int:
        """How many of its records were lost without anybody having looked."""
        root, first = self, 0
        while root._parent is not None:
            first += root.first_index
            root = root._parent
        seen = sum(first <= index < first + self.record_count for index in root._looked_at)
        return self.record_count - seen


def _copy_of(error: MillstreamError) -> MillstreamError:
    """The same error for another reader.

    Whoever raises it hangs its frames on it. On the batch's own error they would stay as long as
    any handle of the batch does, and for good if such a handle is in one of the frames: handles
    are unknown to the garbage collector.
    """
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    made.__suppress_context__ = error.__suppress_context__
    return made


def _row_size(row: Record) -> int:
    return len(row.key or b"") + len(row.value or b"") + 16


class _AddedLater:
    """A function that was added to a handle, and not given to `send`."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[Delivery], object]) -> None:
        self._function = function

    def __call__(self, delivery: Delivery) -> object:
        return self._function(delivery)

    def __repr__(self) -> str:
        return repr(self._function)


def with_producer_state(records: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """The same batch from another producer, or in another place: its header and checksum change."""
    header = bytearray(records[:HEADER_SIZE])
    body = memoryview(records)[HEADER_SIZE:]
    _PRODUCER_STATE.pack_into(header, PRODUCER_ID_AT, producer_id, epoch, sequence)
    _CRC.pack_into(header, CRC_AT, crc32c(body, crc32c(header[ATTRIBUTES_AT:])))
    return b"".join((header, body))
