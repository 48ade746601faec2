"""How far the metadata log is certainly on disk, in a small file beside it.

`MetadataLog` writes it after every sync and reads it when it opens. It is what tells rot from a
torn tail: a crash damages only what was never synced, so damage below this offset is no crash's
doing. Two slots are written in turn, each with a number and a checksum: a slot that is torn leaves
the other, which says less. It never claims too much, and so may lag behind the log: it is itself
synced when the log is opened, cut or closed, and otherwise once in a while.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from millstream.records.kernel import crc32c
from millstream.storage.filesystem import directory_of

if TYPE_CHECKING:
    from millstream.storage.filesystem import File, FileSystem

SYNCED_OFFSET_FILE: Final = "millstream-synced-offset"
_CONTENT: Final = Struct(">qq")  # A number that grows, the offset.
_CRC: Final = Struct(">I")
_SLOT_BYTES: Final = _CONTENT.size + _CRC.size


class SyncedOffset:
    """The file of one directory. `read` it before the first `write`."""

    __slots__ = ("_file", "_filesystem", "_number", "_offset", "path")

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self.path = f"{directory}/{SYNCED_OFFSET_FILE}"
        self._filesystem = filesystem
        self._file: File | None = None
        self._number = 0
        self._offset: int | None = None

    def read(self) -> int | None:
        """What it says; None if there is none, or none that can be believed."""
        try:
            data = self._filesystem.read_bytes(self.path)
        except FileNotFoundError:
            return None
        slots = [slot for at in (0, _SLOT_BYTES) if (slot := _parse(data, at)) is not None]
        if slots:
            self._number, self._offset = max(slots)
        return self._offset

    def write(self, offset: int, *, is_durable: bool = False) -> None:
        """The log is on disk up to an offset; with `is_durable` this is on disk, too."""
        if offset != self._offset:
            content = _CONTENT.pack(self._number + 1, offset)
            position = (self._number + 1) % 2 * _SLOT_BYTES
            self._opened().pwrite(content + _CRC.pack(crc32c(content)), position)
            self._number, self._offset = self._number + 1, offset
        if is_durable:
            self._opened().sync()

    def lower(self, offset: int) -> None:
        """What is at or after an offset is about to be cut off: claim no more, from now on."""
        if self._offset is not None and offset < self._offset:
            self.write(offset, is_durable=True)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> File:
        if self._file is None:
            is_new = not self._filesystem.exists(self.path)
            self._file = self._filesystem.open(self.path, create=True)
            if is_new:
                self._filesystem.sync_directory(directory_of(self.path))
        return self._file


def _parse(data: bytes, at: int) -> tuple[int, int] | None:
    content = data[at : at + _CONTENT.size]
    stored = data[at + _CONTENT.size : at + _SLOT_BYTES]
    if len(stored) < _CRC.size or _CRC.unpack(stored)[0] != crc32c(content):
        return None
    number, offset = _CONTENT.unpack(content)
    return (number, offset) if number > 0 else None
