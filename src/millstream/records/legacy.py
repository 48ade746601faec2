"""Messages of the formats 0 and 1, which logs and fetches of old clusters still hold.

Read only: nothing in Millstream writes them. A message is either one record, or a wrapper whose
value is a compressed set of messages. `split_batches` finds them; the records they give are the
same `Record` as everywhere.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from millstream.errors import CorruptMessage, UnsupportedCompressionType
from millstream.records.compression import DECOMPRESSED_SIZE_MAX, Compression, decompress
from millstream.records.kernel import Record
from millstream.records.layout import (
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)
from millstream.records.lz4_header import with_valid_checksum
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

_START = Struct(">qiIBb")  # offset, length, checksum, magic, attributes
_TIMESTAMP = Struct(">q")
_SIZE = Struct(">i")


class _Message(NamedTuple):
    """One message as it stands in the bytes."""

    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: memoryview | None
    view: memoryview

    @property
    def computed_crc(self) -> int:
        return zlib.crc32(self.view[MAGIC_AT:])

    @property
    def codec_id(self) -> int:
        return self.attributes & 0x07


class LegacyBatch:
    """The message of an old format at `start` of a buffer, and the way to its records.

    It answers the questions that `RecordBatch` answers, as far as the old formats have an answer.
    """

    LENGTH_MIN: ClassVar[tuple[int, int]] = (14, 22)
    """The smallest length of a message, by its magic."""

    __slots__ = ("_message",)

    leader_epoch: ClassVar[int] = NO_LEADER_EPOCH
    producer_id: ClassVar[int] = NO_PRODUCER_ID
    producer_epoch: ClassVar[int] = NO_PRODUCER_EPOCH
    base_sequence: ClassVar[int] = NO_SEQUENCE
    last_sequence: ClassVar[int] = NO_SEQUENCE
    is_transactional: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    delete_horizon_ms: ClassVar[None] = None

    def __init__(self, buffer: ReadableBuffer, start: int = 0) -> None:
        self._message = _read_message(memoryview(buffer), start)

    @property
    def magic(self) -> int:
        """0 or 1."""
        return self._message.magic

    @property
    def crc(self) -> int:
        """The CRC-32 (not CRC-32C) that the message carries."""
        return self._message.crc

    @property
    def attributes(self) -> int:
        """Codec and timestamp type."""
        return self._message.attributes

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return len(self._message.view)

    @property
    def view(self) -> memoryview:
        """The bytes of the message, in place."""
        return self._message.view

    @property
    def compression(self) -> Compression:
        """The codec of the inner messages; NONE if the message is a record itself."""
        codec = Compression.of_attributes(self._message.attributes)
        if codec == Compression.ZSTD:
            raise UnsupportedCompressionType(f"messages of format {self.magic} know no zstd")
        return codec

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps. Format 0 has none and says CREATE_TIME."""
        is_stamped = self.magic and self._message.attributes & LOG_APPEND_TIME_BIT
        return TimestampType.LOG_APPEND_TIME if is_stamped else TimestampType.CREATE_TIME

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp; -1 in format 0."""
        return self._message.timestamp

    @property
    def base_offset(self) -> int:
        """The first record's offset. A wrapper must be decompressed to know it."""
        return self.records(from_offset=-INT64_MAX - 1)[0].offset

    @property
    def last_offset(self) -> int:
        """The last record's offset, which is the message's own."""
        return self._message.offset

    @property
    def next_offset(self) -> int:
        """The first offset after it."""
        return self._message.offset + 1

    def is_intact(self) -> bool:
        """Whether the checksum is right."""
        return self._message.crc == self._message.computed_crc

    def check_crc(self) -> None:
        """Raise CorruptMessage if the checksum is wrong."""
        _check_crc(self._message)

    def records(
        self,
        from_offset: int = 0,
        to_offset: int = INT64_MAX,
        size_limit: int = DECOMPRESSED_SIZE_MAX,
    ) -> list[Record]:
        """The records with from_offset <= offset < to_offset.

        The checksums of inner messages are checked, the message's own is not.
        """
        if self.compression == Compression.NONE:
            found = [_record(self._message, self._message.offset, self._message.timestamp)]
        else:
            found = self._inner_records(size_limit)
        return [record for record in found if from_offset <= record.offset < to_offset]

    def find_since(self, timestamp: int, from_offset: int) -> tuple[int, int] | None:
        """As `RecordBatch.find_since`."""
        for record in self.records(from_offset):
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
        return None

    def _inner_records(self, size_limit: int) -> list[Record]:
        wrapper = self._message
        messages = self._inner_messages(size_limit)
        # Format 1 counts inner offsets from 0, and the wrapper has the last one's real offset.
        base_offset = wrapper.offset - messages[-1].offset if wrapper.magic else 0
        is_stamped = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        return [
            _record(
                message,
                base_offset + message.offset,
                wrapper.timestamp if is_stamped else message.timestamp,
            )
            for message in messages
        ]

    def _inner_messages(self, size_limit: int) -> list[_Message]:
        wrapper = self._message
        if wrapper.value is None:
            raise _corrupt(wrapper.offset, "is compressed but has no value")
        compressed: ReadableBuffer = wrapper.value
        if wrapper.magic == 0 and self.compression == Compression.LZ4:
            compressed = with_valid_checksum(compressed)
        data = memoryview(decompress(self.compression, compressed, size_limit))
        messages: list[_Message] = []
        position = 0
        while position < len(data):
            message = _read_message(data, position)
            _check_crc(message)
            if message.magic != wrapper.magic:
                raise _corrupt(wrapper.offset, f"holds a message of format {message.magic}")
            if message.codec_id:
                raise _corrupt(wrapper.offset, "holds a message that is compressed again")
            messages.append(message)
            position += len(message.view)
        if not messages:
            raise _corrupt(wrapper.offset, "is compressed but holds no message")
        return messages

    def __repr__(self) -> str:
        return f"LegacyBatch(last_offset={self.last_offset}, magic={self.magic}, size={self.size})"


def _corrupt(offset: int, problem: str) -> CorruptMessage:
    return CorruptMessage(f"the message at offset {offset} {problem}")


def _check_crc(message: _Message) -> None:
    if message.crc != (computed := message.computed_crc):
        raise _corrupt(
            message.offset, f"has checksum {message.crc:08x}, its bytes give {computed:08x}"
        )


def _record(message: _Message, offset: int, timestamp: int) -> Record:
    value = None if message.value is None else bytes(message.value)
    return Record(offset, timestamp, message.key, value)


def _read_message(view: memoryview, start: int) -> _Message:
    left = len(view) - start
    if left < _START.size:
        raise CorruptMessage(f"byte {start}: a message cut off after {left} bytes")
    offset, length, crc, magic, attributes = _START.unpack_from(view, start)
    if magic >= len(LegacyBatch.LENGTH_MIN):
        raise _corrupt(offset, f"has magic {magic}, which is no old format")
    if length < LegacyBatch.LENGTH_MIN[magic]:
        raise _corrupt(offset, f"has length {length}, which is too short")
    end = start + LOG_OVERHEAD + length
    if end > len(view):
        raise _corrupt(offset, f"has {LOG_OVERHEAD + length} bytes, but {left} are here")
    position = start + _START.size
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(view, position)
        position += _TIMESTAMP.size
    key, position = _read_sized(view, offset, position, end - _SIZE.size)
    value, position = _read_sized(view, offset, position, end)
    if position != end:
        raise _corrupt(offset, f"has {end - position} bytes left over")
    return _Message(
        offset,
        crc,
        magic,
        attributes,
        timestamp,
        None if key is None else bytes(key),
        value,
        view[start:end],
    )


def _read_sized(
    view: memoryview, offset: int, position: int, end: int
) -> tuple[memoryview | None, int]:
    """Bytes with their size in front, -1 for none, which must stop at `end` or before."""
    (size,) = _SIZE.unpack_from(view, position)
    position += _SIZE.size
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise _corrupt(offset, f"has a key or value of {size} bytes, with {end - position} left")
    return view[position : position + size], position + size
