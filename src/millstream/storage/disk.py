"""The real file system behind the disk seam: POSIX calls and nothing between.

The only module of storage that talks to `os`. `LogManager` makes one; what each method promises is
written at its protocol in `filesystem`.
"""
# ruff: noqa: PTH103, PTH105, PTH108, PTH116
# Paths are strings, here and in everything above: a Path per call costs more than the call.

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

from millstream import _accel
from millstream.errors import KafkaStorageError
from millstream.storage.filesystem import LOCK_FILE_NAME, DiskUsage, FileStatus
from millstream.storage.log.log_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.types import ReadableBuffer

_preallocate: Callable[[int, int, int], bool] | None = None
if _accel.find("broker.preallocation"):
    from millstream._accel.broker.preallocation import preallocate as _preallocate

PREALLOCATION_SINCE_BYTES: Final = 4 * 1024 * 1024
"""Smaller files get none: a broker may have thousands of them."""
PREALLOCATION_PART: Final = 8
"""A file is given an eighth of its size in advance,"""
PREALLOCATION_BYTES_MAX: Final = 16 * 1024 * 1024
"""and no more than this."""
SPARE_BYTES_MAX: Final = 32 * 1024
"""What a file may have of the disk beyond its content: the end of its last block, and its tree."""
_BLOCK_BYTES: Final = 512  # The unit of st_blocks, whatever a block is on the disk.


def _full_sync(descriptor: int) -> None:
    """Sync the content; on macOS only F_FULLFSYNC goes past the drive's own cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        fcntl.fcntl(descriptor, full)
    else:
        os.fdatasync(descriptor)


class DiskFileMap:
    """A shared mapping of a real file."""

    __slots__ = ("buffer",)

    def __init__(self, descriptor: int, size: int) -> None:
        self.buffer = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Unmap."""
        self.buffer.close()


class DiskFile(FileState):
    """A real open file."""

    __slots__ = ("path",)

    def __init__(self, path: str, flags: int) -> None:
        super().__init__()
        self.path = path
        self.descriptor = os.open(path, flags, 0o644)

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor."""
        return self.descriptor

    def size(self) -> int:
        """By `fstat`."""
        return os.fstat(self.descriptor).st_size

    def pread(self, length: int, position: int) -> bytes:
        """One system call, unless it was cut short."""
        data = os.pread(self.descriptor, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length and (data := os.pread(self.descriptor, length - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Straight into the caller's memory."""
        view = memoryview(buffer)
        got = 0
        while got < len(view):
            count = os.preadv(self.descriptor, [view[got:]], position + got)
            if count == 0:
                break
            got += count
        return got

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """One system call, unless it was cut short."""
        written = os.pwrite(self.descriptor, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(self.descriptor, view[written:], position + written)

    def pwritev(self, buffers: Sequence[ReadableBuffer], position: int) -> None:
        """One system call, unless it was cut short."""
        total = sum(map(len, buffers))
        written = os.pwritev(self.descriptor, buffers, position)
        if written != total:
            # Rare (a full disk, a signal): one copy makes the rest simple.
            self.pwrite(memoryview(b"".join(buffers))[written:], position + written)

    def append(self, data: ReadableBuffer, position: int) -> None:
        """One system call, unless the file needs blocks."""
        end = position + len(data)
        if end > self.preallocated_end:
            self.preallocate(position, end)
        self.pwrite(data, position)

    def preallocate(self, position: int, end: int) -> None:
        """Take blocks for an append, and for those to come; without them it costs more, no less.

        Whether there is room at all the write finds out.
        """
        wanted_end = end + min(end // PREALLOCATION_PART, PREALLOCATION_BYTES_MAX)
        if end < PREALLOCATION_SINCE_BYTES:
            self.preallocated_end = PREALLOCATION_SINCE_BYTES
        elif _preallocate is not None and _preallocate(
            self.descriptor, position, wanted_end - position
        ):
            self.preallocated_end = wanted_end
        else:
            self.preallocated_end = sys.maxsize

    def trim(self, size: int) -> None:
        """By `ftruncate`, if the size is another or blocks were taken, by whomever."""
        status = os.fstat(self.descriptor)
        taken = status.st_blocks * _BLOCK_BYTES - size
        if status.st_size != size or taken > SPARE_BYTES_MAX:
            self.truncate(size)

    def truncate(self, size: int) -> None:
        """By `ftruncate`."""
        os.ftruncate(self.descriptor, size)
        self.preallocated_end = 0

    def allocate(self, size: int) -> None:
        """By `posix_fallocate`; where that is missing the file only gets its size."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.descriptor, 0, size)
        else:
            os.ftruncate(self.descriptor, max(size, self.size()))

    def sync(self) -> None:
        """By `fdatasync`: the content and the size."""
        _full_sync(self.descriptor)

    def map(self, size: int) -> DiskFileMap:
        """A shared mapping; it holds a descriptor of its own."""
        return DiskFileMap(self.descriptor, size)

    def close(self) -> None:
        """Close the descriptor; again is fine."""
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)


class DiskDirectoryLock:
    """A POSIX record lock on `.lock`, which Apache Kafka's own processes respect too.

    Such a lock does not keep out other parts of the same process, hence the set beside it.
    """

    __slots__ = ("_file", "_identity")

    _held: ClassVar[set[tuple[int, int]]] = set()
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, directory: str) -> None:
        status = os.stat(directory)
        identity = (status.st_dev, status.st_ino)
        with self._guard:
            # Checked before the file is opened: closing any descriptor of it drops the lock.
            if identity in self._held:
                raise KafkaStorageError(f"{directory} is in use by this same process")
            file = DiskFile(f"{directory}/{LOCK_FILE_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise KafkaStorageError(
                    f"{directory} is in use by another process ({_holder(file)} {LOCK_FILE_NAME}); "
                    "stop that process or give this one another directory"
                ) from error
            self._held.add(identity)
            # Only so that whoever is refused can be told; a full disk may well not take it.
            with suppress(OSError):
                file.truncate(0)
                file.pwrite(b"%d\n" % os.getpid(), 0)
        self._identity = identity
        self._file = file

    def release(self) -> None:
        """Drop the lock; again is fine."""
        with self._guard:
            if self._file.fileno() >= 0:
                self._held.discard(self._identity)
                self._file.close()


def _holder(lock_file: DiskFile) -> str:
    """Who has a lock file, as far as it says: Apache Kafka writes nothing into it."""
    text = lock_file.pread(32, 0).strip()
    return f"pid {text.decode()} holds" if text.isdigit() else "it holds"


class DiskFileSystem:
    """The machine's own file systems."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing, not inherited by child processes."""
        return DiskFile(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0))

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            parts = [os.read(descriptor, size + 1)]
            while parts[-1]:
                parts.append(os.read(descriptor, 1 << 20))
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        """Whether the name is there."""
        return os.path.lexists(path)

    def scan(self, path: str) -> list[FileStatus]:
        """By `scandir`; an entry that vanishes meanwhile is left out."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                modified_ms = status.st_mtime_ns // 1_000_000
                found.append(FileStatus(entry.name, status.st_size, modified_ms, entry.is_dir()))
        return found

    def make_directory(self, path: str) -> None:
        """With its parents."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Atomic on every POSIX file system."""
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """By `unlink`."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_directory(self, path: str) -> None:
        """The whole tree."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def sync_directory(self, path: str) -> None:
        """By `fsync` of the directory."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> DiskUsage:
        """By `statvfs`; free is what an ordinary user may still take."""
        status = os.statvfs(path)
        return DiskUsage(status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail)

    def lock_directory(self, path: str) -> DiskDirectoryLock:
        """Against other processes and other users of the directory in this one."""
        return DiskDirectoryLock(path)
