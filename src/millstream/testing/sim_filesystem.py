"""A file system in memory that fails as disks do, from one seed.

It passes the same tests as `storage.disk.DiskFileSystem`. A test writes through it, then asks for
`after_kill()` (the process died: everything written is there) or `after_power_loss()` (the machine
died: only what was synced is certain). It knows five more faults: bit flips, a full disk, a slow
disk and failing calls (both through `before_operation`), and a directory that stopped working.
"""

from __future__ import annotations

import errno
import os
from copy import deepcopy
from typing import TYPE_CHECKING, TypeAlias

from millstream.errors import KafkaStorageError
from millstream.storage.filesystem import LOCK_FILE_NAME, DiskUsage, FileStatus
from millstream.testing.sim_disk import SimDirectory, SimInode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.clock import Clock
    from millstream.types import ReadableBuffer

OperationHook: TypeAlias = "Callable[[str, str, int], None]"
"""Called with the operation's name, its path and its bytes, before the operation."""

_UNLIMITED = 1 << 62


class SimFileMap:
    """A read-only view of a file's content."""

    __slots__ = ("buffer",)

    def __init__(self, inode: SimInode, size: int) -> None:
        if size > len(inode.content):
            raise ValueError("mmap length is greater than file size")
        self.buffer = memoryview(inode.content)[:size].toreadonly()

    def close(self) -> None:
        """Give the view back; until then the file cannot change its size."""
        self.buffer.release()


class SimFile:
    """An open file of a `SimFileSystem`."""

    __slots__ = ("_filesystem", "_inode", "path")

    def __init__(self, filesystem: SimFileSystem, inode: SimInode, path: str) -> None:
        self._filesystem = filesystem
        self._inode: SimInode | None = inode
        self.path = path

    def fileno(self) -> int:
        """There is no descriptor."""
        return -1

    def size(self) -> int:
        """The length of the content."""
        return len(self._use("size", 0).content)

    def pread(self, length: int, position: int) -> bytes:
        """A copy of a part."""
        return bytes(self._use("read", length).content[position : position + length])

    def pread_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """A copy into the caller's memory."""
        view = memoryview(buffer)
        data = self.pread(len(view), position)
        view[: len(data)] = data
        return len(data)

    def pwrite(self, data: ReadableBuffer, position: int) -> None:
        """Write what there is room for, then raise ENOSPC if that was not all."""
        inode = self._use("write", len(data))
        room = max(inode.allocated - position, 0) + self._filesystem.free_bytes
        written = min(len(data), room)
        with memoryview(data) as view:
            inode.write(view[:written], position, self._filesystem.now_ms)
        if written < len(data):
            raise _os_error(errno.ENOSPC, self.path)

    def pwritev(self, buffers: Sequence[ReadableBuffer], position: int) -> None:
        """As one write."""
        self.pwrite(b"".join(buffers), position)

    def append(self, data: ReadableBuffer, position: int) -> None:
        """A write like others."""
        self.pwrite(data, position)

    def trim(self, size: int) -> None:
        """Cut, if there is something to cut."""
        if self.size() != size:
            self.truncate(size)

    def truncate(self, size: int) -> None:
        """Cut, or extend with a hole."""
        self._use("truncate", 0).truncate(size, self._filesystem.now_ms)

    def allocate(self, size: int) -> None:
        """Reserve room on the disk."""
        inode = self._use("allocate", size)
        if size - inode.allocated > self._filesystem.free_bytes:
            raise _os_error(errno.ENOSPC, self.path)
        if size > len(inode.content):
            inode.truncate(size, self._filesystem.now_ms)
        inode.allocated = max(inode.allocated, size)

    def sync(self) -> None:
        """Make the content certain."""
        self._use("sync", 0).sync()

    def map(self, size: int) -> SimFileMap:
        """A view that shows later writes too."""
        return SimFileMap(self._use("map", size), size)

    def close(self) -> None:
        """Later use fails as with a closed descriptor."""
        self._inode = None

    def _use(self, operation: str, size: int) -> SimInode:
        if self._inode is None:
            raise _os_error(errno.EBADF, self.path)
        self._filesystem.begin(operation, self.path, size)
        return self._inode


class SimDirectoryLock:
    """The right to a directory, among the users of one `SimFileSystem`."""

    __slots__ = ("_held", "_path")

    def __init__(self, held: set[str], path: str) -> None:
        if path in held:
            raise KafkaStorageError(f"{path} is in use by another process")
        held.add(path)
        self._held = held
        self._path = path

    def release(self) -> None:
        """Let others have it; again is fine."""
        self._held.discard(self._path)


class SimFileSystem:
    """One disk of one machine, until the machine or the process dies.

    `capacity_bytes` limits what all files together may hold; it may be changed at any time.
    """

    def __init__(
        self,
        random: Random,
        *,
        clock: Clock | None = None,
        capacity_bytes: int | None = None,
        before_operation: OperationHook | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.before_operation = before_operation
        self._random = random
        self._clock = clock
        self._root = SimDirectory()
        self._locks: set[str] = set()
        self._failed_directories: set[str] = set()
        self._is_dead = False

    @property
    def now_ms(self) -> int:
        """The time for modification times; it stands at 0 without a clock."""
        return self._clock.wall_ms() if self._clock is not None else 0

    @property
    def free_bytes(self) -> int:
        """The room that is left."""
        if self.capacity_bytes is None:
            return _UNLIMITED
        return max(self.capacity_bytes - self._root.allocated_bytes(), 0)

    @property
    def used_bytes(self) -> int:
        """The room that all files take."""
        return self._root.allocated_bytes()

    # Faults.

    def after_kill(self) -> SimFileSystem:
        """What the next process finds after `kill -9`: every write and name, no lock.

        A copy: the dead process's objects may still hold views of the old files.
        """
        return self._successor(deepcopy(self._root))

    def after_power_loss(self) -> SimFileSystem:
        """What the next process finds after the machine lost power.

        Any part of what was not synced may be there or not, sector by sector and name by name.
        """
        return self._successor(self._root.after_power_loss(self._random))

    def flip_bit(self, path: str, position: int | None = None) -> int:
        """Change one bit of a file on disk, at a random place unless told; returns the byte."""
        inode = self._inode(path)
        chosen = self._random.randrange(len(inode.content)) if position is None else position
        inode.flip(chosen, self._random.randrange(8))
        return chosen

    def fail_directory(self, path: str) -> None:
        """From now on every call below a directory ends in EIO."""
        self._failed_directories.add(path)

    def repair_directory(self, path: str) -> None:
        """Undo `fail_directory`."""
        self._failed_directories.discard(path)

    def begin(self, operation: str, path: str, size: int = 0) -> None:
        """What happens before each operation: the hook, then the faults."""
        if self._is_dead:
            raise _os_error(errno.EIO, path)
        if self.before_operation is not None:
            self.before_operation(operation, path, size)
        for failed in self._failed_directories:
            if path == failed or path.startswith(f"{failed}/"):
                raise _os_error(errno.EIO, path)

    # The surface of `FileSystem`.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open for reading and writing."""
        self.begin("open", path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, SimDirectory):
            raise _os_error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _os_error(errno.ENOENT, path)
            node = SimInode(self.now_ms)
            directory.link(name, node)
        return SimFile(self, node, path)

    def read_bytes(self, path: str) -> bytes:
        """The whole file."""
        self.begin("read", path)
        return bytes(self._inode(path).content)

    def exists(self, path: str) -> bool:
        """Whether the name is there."""
        self.begin("exists", path)
        return self._find(path) is not None

    def scan(self, path: str) -> list[FileStatus]:
        """The entries, in a random order: nobody may rely on one."""
        self.begin("scan", path)
        found = [
            FileStatus(name, len(node.content), node.modified_ms, False)
            if isinstance(node, SimInode)
            else FileStatus(name, 0, 0, True)
            for name, node in self._directory(path).entries.items()
        ]
        self._random.shuffle(found)
        return found

    def make_directory(self, path: str) -> None:
        """With its parents."""
        self.begin("make_directory", path)
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = SimDirectory()
                directory.link(name, node)
            if not isinstance(node, SimDirectory):
                raise _os_error(errno.EEXIST, path)
            directory = node

    def rename(self, old: str, new: str) -> None:
        """Within one directory; a file replaces a file."""
        self.begin("rename", old)
        directory, old_name = self._parent(old)
        new_directory, new_name = self._parent(new)
        if new_directory is not directory:
            raise _os_error(errno.EXDEV, old)
        if old_name not in directory.entries:
            raise _os_error(errno.ENOENT, old)
        replaced = directory.entries.get(new_name)
        if isinstance(replaced, SimDirectory) and replaced.entries:
            raise _os_error(errno.ENOTEMPTY, new)
        directory.rename(old_name, new_name)

    def remove(self, path: str) -> None:
        """Remove a file; open handles keep working."""
        self.begin("remove", path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, SimDirectory):
            raise _os_error(errno.EISDIR, path)
        if node is not None:
            directory.unlink(name)

    def remove_directory(self, path: str) -> None:
        """Name by name, as a real one goes."""
        self.begin("remove_directory", path)
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, SimInode):
            raise _os_error(errno.ENOTDIR, path)
        for name in list(node.entries):
            if isinstance(node.entries[name], SimDirectory):
                self.remove_directory(f"{path}/{name}")
            else:
                node.unlink(name)
        directory, own_name = self._parent(path)
        directory.unlink(own_name)

    def sync_directory(self, path: str) -> None:
        """Make the names certain."""
        self.begin("sync_directory", path)
        self._directory(path).sync()

    def usage(self, path: str) -> DiskUsage:
        """The capacity and what is left of it."""
        self.begin("usage", path)
        total = _UNLIMITED if self.capacity_bytes is None else self.capacity_bytes
        return DiskUsage(total, self.free_bytes)

    def lock_directory(self, path: str) -> SimDirectoryLock:
        """Among the users of this object; the lock file appears as with the real one."""
        lock = SimDirectoryLock(self._locks, path)
        self.open(f"{path}/{LOCK_FILE_NAME}", create=True)
        return lock

    def _successor(self, root: SimDirectory) -> SimFileSystem:
        self._is_dead = True
        successor = SimFileSystem(
            self._random,
            clock=self._clock,
            capacity_bytes=self.capacity_bytes,
            before_operation=self.before_operation,
        )
        successor._root = root
        successor._failed_directories = self._failed_directories
        return successor

    def _find(self, path: str) -> SimDirectory | SimInode | None:
        node: SimDirectory | SimInode | None = self._root
        for name in _names(path):
            if not isinstance(node, SimDirectory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> SimDirectory:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, SimInode):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def _inode(self, path: str) -> SimInode:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, SimDirectory):
            raise _os_error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[SimDirectory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
