"""OffsetCommit, read straight from the frame, and its answer if nothing is refused.

Consumers commit all the time, and the answer to nearly all of them says the same of every
partition. Whatever has tagged fields, or is damaged, gives None and goes to the generated decoder,
which is the authority on what the bytes mean. The function has a compiled twin in
`_accel.broker.commit_frames`, which runs where it was built.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream import _accel
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.coordinator.group.offsets.commit import PartitionCommit, TopicCommit

    ReadCommit: TypeAlias = tuple[tuple[str, int, str, str | None, list[TopicCommit], int], bytes]
    """The fields of an `OffsetCommit`, and the whole frame that says that all went well."""

_THROTTLE_TIME_SINCE: Final = 3
_RETENTION_UNTIL: Final = 4
_LEADER_EPOCH_SINCE: Final = 6
_INSTANCE_ID_SINCE: Final = 7
_FLEXIBLE_SINCE: Final = 8
_TOPIC_IDS_SINCE: Final = 10
_NO_LEADER_EPOCH: Final = -1
_INTEGERS: Final = {2: Struct(">h"), 4: Struct(">i"), 8: Struct(">q")}
_HEAD: Final = Struct(">ii")


def read_commit(
    buffer: memoryview, at: int, end: int, version: int, correlation_id: int
) -> ReadCommit | None:
    """The request in `buffer[at:end]` of version 2 to 10, and the answer if nothing is refused."""
    if not 0 <= at <= end <= len(buffer):
        return None
    reader = _Reader(buffer[at:end], version)
    try:
        commit = reader.read()
    except (ValueError, IndexError):
        return None  # Damaged: the decoder will say how.
    return commit, _HEAD.pack(len(reader.answer) + 4, correlation_id) + reader.answer


class _Reader:
    """One request while it is read, and the answer as far as it is written."""

    __slots__ = ("_at", "_data", "_is_flexible", "_version", "answer")

    def __init__(self, data: memoryview, version: int) -> None:
        self._data = data
        self._at = 0
        self._version = version
        self._is_flexible = version >= _FLEXIBLE_SINCE
        self.answer = bytearray(self._is_flexible + 4 * (version >= _THROTTLE_TIME_SINCE))

    def read(self) -> tuple[str, int, str, str | None, list[TopicCommit], int]:
        """All of it; raises ValueError or IndexError if it is not of the common shape."""
        group_id = self._text()
        generation = self._integer(4)
        member_id = self._text()
        instance_id = None
        if self._version >= _INSTANCE_ID_SINCE:
            instance_id = self._nullable_text()
        retention_ms = self._integer(8) if self._version <= _RETENTION_UNTIL else -1
        topics = [self._topic() for _ in range(self._count())]
        self._end_struct()
        if self._at != len(self._data):
            raise ValueError("bytes are left")
        return group_id, generation, member_id, instance_id, topics, retention_ms

    def _topic(self) -> TopicCommit:
        start = self._at
        has_id = self._version >= _TOPIC_IDS_SINCE
        topic = bytes(self._take(Uuid.SIZE)) if has_id else self._text()
        self.answer += self._data[start : self._at]
        partitions = [self._partition() for _ in range(self._count())]
        self._end_struct()
        return topic, partitions

    def _partition(self) -> PartitionCommit:
        index, offset = self._integer(4), self._integer(8)
        epoch = self._integer(4) if self._version >= _LEADER_EPOCH_SINCE else _NO_LEADER_EPOCH
        metadata = self._nullable_text()
        self.answer += index.to_bytes(4, "big", signed=True) + bytes(2)
        self._end_struct()
        return index, offset, epoch, metadata

    def _end_struct(self) -> None:
        if self._is_flexible:
            if self._take(1)[0]:
                raise ValueError("tagged fields")
            self.answer.append(0)

    def _take(self, size: int) -> memoryview:
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise IndexError("cut off")
        return self._data[start : self._at]

    def _integer(self, size: int) -> int:
        value: int = _INTEGERS[size].unpack(self._take(size))[0]
        return value

    def _length(self, size: int) -> int:
        if not self._is_flexible:
            length = self._integer(size)
            if length < -1:
                raise ValueError("a negative length")
            return length
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value - 1
        raise ValueError("too long a varint")

    def _count(self) -> int:
        """How many elements follow, which the answer says, too."""
        start = self._at
        count = self._length(4)
        if count < 0:
            raise ValueError("no array")
        self.answer += self._data[start : self._at]
        return count

    def _text(self) -> str:
        text = self._nullable_text()
        if text is None:
            raise ValueError("no text")
        return text

    def _nullable_text(self) -> str | None:
        length = self._length(2)
        return None if length < 0 else str(self._take(length), "utf-8")


plain_read_commit = read_commit
"""The twin in Python, whichever runs."""
if not TYPE_CHECKING and _accel.COMPILED:
    from millstream._accel.broker.commit_frames import read_commit
