"""The `.snapshot` files of a log: what it knew about its producers at an offset.

`ProducerStateManager` writes one at each roll and clean stop and reads the newest good one at the
start. Kafka's format: version, CRC-32C, then 46 bytes for each producer with its last batch. Behind
them, where Kafka does not look, are the batches before the last: a client that had several in
flight when the broker died repeats them all. The file is written in place: the checksum tells a
torn one.
"""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import KafkaStorageError
from millstream.records.kernel import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX: Final = ".snapshot"

_VERSION: Final = 1
_HEADER = Struct(">hIi")
_CHECKED_FROM: Final = 6
_ENTRY = Struct(">qhiqiqiq")
_EARLIER = Struct(">qiqiq")


class EarlierBatch(NamedTuple):
    """A batch before a producer's last one."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class SnapshotEntry(NamedTuple):
    """One producer, with its last batch; -1 stands for "none"."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int
    earlier: tuple[EarlierBatch, ...] = ()
    """Batches before the last one, oldest first."""


def render_snapshot(entries: Sequence[SnapshotEntry]) -> bytes:
    """The file's bytes."""
    data = bytearray(_HEADER.pack(_VERSION, 0, len(entries)))
    for entry in entries:
        data += _ENTRY.pack(*entry[:-1])
    for entry in entries:
        for batch in entry.earlier:
            data += _EARLIER.pack(entry.producer_id, *batch)
    data[2:6] = crc32c(memoryview(data)[_CHECKED_FROM:]).to_bytes(4, "big")
    return bytes(data)


def parse_snapshot(data: bytes, path: str) -> list[SnapshotEntry]:
    """The file's entries, or `KafkaStorageError` if a single bit is wrong."""
    if len(data) < _HEADER.size:
        raise KafkaStorageError(f"{path} is corrupt: it has only {len(data)} bytes")
    version, expected_crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise KafkaStorageError(f"{path}: snapshot version {version} is not known, only 1 is")
    actual_crc = crc32c(memoryview(data)[_CHECKED_FROM:])
    if actual_crc != expected_crc:
        raise KafkaStorageError(
            f"{path} is corrupt: its checksum is {actual_crc:08x}, it should be {expected_crc:08x}"
        )
    body = memoryview(data)[_HEADER.size :]
    last, rest = body[: max(count, 0) * _ENTRY.size], body[max(count, 0) * _ENTRY.size :]
    if count < 0 or len(last) != count * _ENTRY.size or len(rest) % _EARLIER.size:
        raise KafkaStorageError(f"{path} is corrupt: {count} entries do not fill {len(body)} bytes")
    earlier: dict[int, tuple[EarlierBatch, ...]] = {}
    for producer_id, *batch in _EARLIER.iter_unpack(rest):
        earlier[producer_id] = (*earlier.get(producer_id, ()), EarlierBatch(*batch))
    return [
        SnapshotEntry(*fields)._replace(earlier=earlier.get(fields[0], ()))
        for fields in _ENTRY.iter_unpack(last)
    ]


def snapshot_name(offset: int) -> str:
    """The file name of the snapshot that covers everything before an offset."""
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """The offset in a snapshot's file name; None if it is another file."""
    stem = name.removesuffix(SNAPSHOT_SUFFIX)
    is_snapshot = len(stem) == 20 and name.endswith(SNAPSHOT_SUFFIX) and stem.isdecimal()
    return int(stem) if is_snapshot else None


class SnapshotFiles:
    """The snapshots of one log, by the offset they cover up to."""

    __slots__ = ("_directory", "_filesystem", "_offsets")

    def __init__(self, filesystem: FileSystem, directory: str, offsets: Iterable[int] = ()) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Which snapshots there are, oldest first."""
        return tuple(self._offsets)

    def path(self, offset: int) -> str:
        """Where the snapshot of an offset is."""
        return f"{self._directory}/{snapshot_name(offset)}"

    def write(self, offset: int, entries: Sequence[SnapshotEntry], *, sync: bool) -> None:
        """Make a snapshot; with `sync` it is on disk when this returns."""
        data = render_snapshot(entries)
        file = self._filesystem.open(self.path(offset), create=True)
        file.pwrite(data, 0)
        file.truncate(len(data))
        if sync:
            file.sync()
            self._filesystem.sync_directory(self._directory)
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def sync(self, offset: int) -> None:
        """Bring a snapshot to disk later; one that is gone is fine."""
        try:
            self._filesystem.open(self.path(offset)).sync()
        except FileNotFoundError:
            return

    def read_newest(self) -> tuple[int, list[SnapshotEntry]] | None:
        """The newest snapshot that is whole; damaged ones are removed, with a warning."""
        while self._offsets:
            offset = self._offsets[-1]
            try:
                data = self._filesystem.read_bytes(self.path(offset))
                return offset, parse_snapshot(data, self.path(offset))
            except (KafkaStorageError, FileNotFoundError) as error:
                _logger.warning("dropping a producer snapshot, an older one serves: %s", error)
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        """Remove one, if it is there."""
        self._filesystem.remove(self.path(offset))
        if offset in self._offsets:
            self._offsets.remove(offset)

    def remove_where(self, is_unwanted: Callable[[int], bool]) -> None:
        """Remove all that match."""
        for offset in [each for each in self._offsets if is_unwanted(each)]:
            self.remove(offset)

    def remove_strays(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep the snapshots of segments and the newest one; a crash may leave others."""
        bases = set(segment_base_offsets)
        newest = self._offsets[-1] if self._offsets else -1
        self.remove_where(lambda offset: offset not in bases and offset != newest)

    def newest_at_most(self, offset: int) -> int | None:
        """The offset of the newest snapshot that covers nothing beyond another offset."""
        following = bisect_right(self._offsets, offset)
        return self._offsets[following - 1] if following else None

    def move_to(self, directory: str) -> None:
        """Follow a log whose directory was renamed."""
        self._directory = directory
