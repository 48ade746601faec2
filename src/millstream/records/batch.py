"""`RecordBatch`: a v2 batch seen in place, and `split_batches`, which finds batches in bytes.

Brokers check, number and stamp batches through it without looking inside; readers get records from
it. One unpack of 61 bytes and no copy; the checksum is only computed when somebody asks. It never
writes records: that is `RecordBatchBuilder`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from millstream.errors import CorruptMessage
from millstream.records.compression import DECOMPRESSED_SIZE_MAX, Compression, decompress
from millstream.records.kernel import crc32c, decode_records, find_since
from millstream.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    TimestampType,
)
from millstream.records.legacy import LegacyBatch
from millstream.types import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.records.kernel import Record
    from millstream.types import ReadableBuffer

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_UINT32 = Struct(">I")
_SEQUENCES = 1 << 31
"""Sequence numbers count from 0 to 2**31 - 1 and begin again."""


class RecordBatch:
    """The header of the v2 batch at `start` of a buffer, and the way to its records."""

    __slots__ = (
        "_view",
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size: int
    """Bytes of the whole batch."""

    def __init__(self, buffer: ReadableBuffer, start: int = 0) -> None:
        view = memoryview(buffer)
        left = len(view) - start
        if left < HEADER_SIZE:
            raise CorruptMessage(f"a batch has at least {HEADER_SIZE} bytes, here are {left}")
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = HEADER.unpack_from(view, start)
        if self.magic != MAGIC:
            raise CorruptMessage(
                f"the batch has magic {self.magic}, not {MAGIC}; split_batches reads older ones"
            )
        if length < LENGTH_MIN:
            raise CorruptMessage(f"the batch's length is {length}, below {LENGTH_MIN}")
        self.size = LOG_OVERHEAD + length
        if self.size > left:
            raise CorruptMessage(f"the batch has {self.size} bytes, but {left} are here")
        self._view = view[start : start + self.size]

    @property
    def view(self) -> memoryview:
        """The bytes of the batch, in place."""
        return self._view

    @property
    def compression(self) -> Compression:
        """The codec of the records; UnsupportedCompressionType if it is not known."""
        return Compression.of_attributes(self.attributes)

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps."""
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction, or the marker that ends one."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether its records are for the machinery and not for applications."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop tombstones and markers; it then stands in `base_timestamp`."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_offset(self) -> int:
        """The offset of its last record, whether or not compaction left that one."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after it."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record; -1 if it has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    def is_intact(self) -> bool:
        """Whether the checksum is right."""
        return self.crc == self._computed_crc()

    def check_crc(self) -> None:
        """Raise CorruptMessage if the checksum is wrong."""
        if self.crc != (computed := self._computed_crc()):
            raise CorruptMessage(
                f"the batch at offset {self.base_offset} has checksum {self.crc:08x}, "
                f"its bytes give {computed:08x}"
            )

    def body(self, size_limit: int = DECOMPRESSED_SIZE_MAX) -> ReadableBuffer:
        """The encoded records, decompressed; in place where they are not compressed."""
        encoded = self._view[HEADER_SIZE:]
        # Compaction may leave a batch without records, and nothing is not compressed nothing.
        return decompress(self.compression, encoded, size_limit) if encoded else encoded

    def records(
        self,
        from_offset: int = 0,
        to_offset: int = INT64_MAX,
        size_limit: int = DECOMPRESSED_SIZE_MAX,
    ) -> list[Record]:
        """The records with from_offset <= offset < to_offset. Does not check the checksum."""
        is_stamped = self.attributes & LOG_APPEND_TIME_BIT
        return decode_records(
            self.body(size_limit),
            self.record_count,
            self.base_offset,
            self.base_timestamp,
            self.max_timestamp if is_stamped else None,
            from_offset,
            to_offset,
        )

    def find_since(self, timestamp: int, from_offset: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record from an offset on that is not earlier, or None.

        No record is made: a batch may have millions.
        """
        is_stamped = self.attributes & LOG_APPEND_TIME_BIT
        if is_stamped and self.max_timestamp < timestamp:
            return None
        found = find_since(
            self.body(),
            self.record_count,
            0 if is_stamped else self.base_timestamp,
            INT64_MIN if is_stamped else timestamp,
            max(from_offset - self.base_offset, 0),
        )
        if found is None:
            return None
        return self.base_offset + found[0], self.max_timestamp if is_stamped else found[1]

    def patch(self, base_offset: int, leader_epoch: int) -> None:
        """Give the batch its place in a log, in place. The checksum does not cover either."""
        _INT64.pack_into(self._view, BASE_OFFSET_AT, base_offset)
        _INT32.pack_into(self._view, LEADER_EPOCH_AT, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def stamp(self, timestamp_type: TimestampType, max_timestamp: int) -> None:
        """Set who set the timestamps and the newest of them, in place, and a new checksum."""
        attributes = self.attributes & ~LOG_APPEND_TIME_BIT | timestamp_type << 3
        _INT16.pack_into(self._view, ATTRIBUTES_AT, attributes)
        _INT64.pack_into(self._view, MAX_TIMESTAMP_AT, max_timestamp)
        self.attributes = attributes
        self.max_timestamp = max_timestamp
        self.crc = self._computed_crc()
        _UINT32.pack_into(self._view, CRC_AT, self.crc)

    def _computed_crc(self) -> int:
        return crc32c(self._view[ATTRIBUTES_AT:])

    def __repr__(self) -> str:
        return (
            f"RecordBatch(base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"record_count={self.record_count}, size={self.size})"
        )


def split_batches(buffer: ReadableBuffer) -> Iterator[RecordBatch | LegacyBatch]:
    """The complete batches of a buffer, in order; messages of old formats as LegacyBatch.

    An incomplete batch at the end is left out, because a fetch may cut one off. A header that
    cannot be one raises CorruptMessage.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position > MAGIC_AT:
        magic = view[position + MAGIC_AT]
        if magic > MAGIC:
            raise CorruptMessage(f"byte {position}: a batch of magic {magic}, which is not known")
        (length,) = _INT32.unpack_from(view, position + LENGTH_AT)
        length_min = LENGTH_MIN if magic == MAGIC else LegacyBatch.LENGTH_MIN[magic]
        if length < length_min:
            raise CorruptMessage(
                f"byte {position}: a batch of length {length}, below {length_min} for magic {magic}"
            )
        end = position + LOG_OVERHEAD + length
        if end > len(view):
            return
        yield RecordBatch(view, position) if magic == MAGIC else LegacyBatch(view, position)
        position = end
