"""The disk seam: everything storage asks of a file system, and nothing more.

`storage.disk.DiskFileSystem` is the real one; `millstream.testing.SimFileSystem` is the same in
memory, with faults; one test suite runs on both. Errors are the operating system's `OSError`, and
the callers know what they mean. Nothing here knows records. Paths are plain strings: ten thousand
logs have a hundred thousand of them.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types import ReadableBuffer

MappedBuffer: TypeAlias = mmap.mmap | memoryview
"""Mapped file content, for `struct.unpack_from`."""

LOCK_FILE_NAME: Final = ".lock"
TEMPORARY_SUFFIX: Final = ".tmp"


class FileMap(Protocol):
    """A file's content as memory, to read; it shows what `pwrite` writes.

    Writing through a mapping would end the process with SIGBUS when the disk is full, so there
    is no such thing. While a map is open the file must not change its size.
    """

    @property
    def buffer(self) -> MappedBuffer:
        """The content."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class File(Protocol):
    """An open file. Its descriptor is closed when the last reference to it goes."""

    @property
    def path(self) -> str:
        """The name it was opened by; a later rename does not change it."""
        ...

    def fileno(self) -> int:
        """The descriptor for `os.sendfile`; -1 if there is none, then read instead."""
        ...

    def size(self) -> int:
        """How many bytes the file has."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill the buffer from a position; how many bytes there were."""
        ...

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """Write all of it, or raise with some prefix of it written."""
        ...

    def pwritev(self, buffers: Sequence[ReadableBuffer], position: int) -> None:
        """Write several buffers one after the other, or raise with some prefix written."""
        ...

    def append(self, data: ReadableBuffer, position: int) -> None:
        """As `pwrite`, at the end of a file that grows: it may take more room than it needs yet."""
        ...

    def trim(self, size: int) -> None:
        """Have the file be of a size, and give back what it has of the disk beyond that."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros (that take no room on disk)."""
        ...

    def allocate(self, size: int) -> None:
        """Reserve room on disk up to a size, so that writes below it find no full disk."""
        ...

    def sync(self) -> None:
        """Return when the content, though not necessarily the name, is on disk."""
        ...

    def map(self, size: int) -> FileMap:
        """Map the first `size` bytes, all of which must exist."""
        ...

    def close(self) -> None:
        """Close now, for an owner who knows that nobody else has a reference."""
        ...


class FileStatus(NamedTuple):
    """One entry of a directory."""

    name: str
    size: int
    modified_ms: int
    is_directory: bool


class DiskUsage(NamedTuple):
    """The room on the disk of a directory."""

    total_bytes: int
    free_bytes: int


class DirectoryLock(Protocol):
    """The exclusive right to a directory."""

    def release(self) -> None:
        """Let others have it."""
        ...


class FileSystem(Protocol):
    """The operations on names. None of them is durable before `sync_directory`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; without `create` the file must exist."""
        ...

    def read_bytes(self, path: str) -> bytes:
        """The whole content of a small file."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""
        ...

    def scan(self, path: str) -> list[FileStatus]:
        """The entries of a directory, in no particular order."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; one that exists is fine."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name in the same directory, replacing a file there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that does not exist is fine."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory with everything in it; one that does not exist is fine."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in a directory are on disk."""
        ...

    def usage(self, path: str) -> DiskUsage:
        """The room on the disk that holds a directory."""
        ...

    def lock_directory(self, path: str) -> DirectoryLock:
        """Take a directory for this process, or raise `KafkaStorageError` that says who has it."""
        ...


class FileSlice:
    """Bytes of a file that somebody will send or read later.

    It keeps the file open, so it stays valid after its segment was deleted.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def read(self) -> bytes:
        """The bytes. Fewer than `length` means the file was cut underneath."""
        return self.file.pread(self.length, self.position)

    def fileno(self) -> int:
        """The descriptor for `sendfile`; -1 where there is none and `read` must do."""
        return self.file.fileno()

    def __len__(self) -> int:
        return self.length


def write_atomically(
    filesystem: FileSystem, path: str, data: ReadableBuffer, *, sync: bool = True
) -> None:
    """Replace a small file so that a crash leaves the old content or the new, on disk.

    Without `sync` that holds when the process dies; after a power loss it may be empty or absent.
    """
    temporary = path + TEMPORARY_SUFFIX
    filesystem.remove(temporary)
    file = filesystem.open(temporary, create=True)
    try:
        file.pwrite(data, 0)
        if sync:
            file.sync()
    finally:
        file.close()
    filesystem.rename(temporary, path)
    if sync:
        filesystem.sync_directory(directory_of(path))


def directory_of(path: str) -> str:
    """The directory a path is in."""
    return path.rpartition("/")[0] or "/"
