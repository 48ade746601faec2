"""Directories that nobody needs after the test, and the file system that treats them so.

`EmbeddedBroker` keeps its data in one. It is removed when its owner says so, or when the owner is
forgotten, or at the end of the process: of the one that made it, not of a forked child.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Final

from millstream.errors import InvalidArgument
from millstream.storage.disk import DiskFile, DiskFileSystem

MEMORY_DIRECTORY: Final = "/dev/shm"


class UnsyncedFile(DiskFile):
    """A file whose content is never awaited on disk."""

    __slots__ = ()

    def sync(self) -> None:
        """Nothing: the page cache survives the process, and the directory does not."""


class UnsyncedFileSystem(DiskFileSystem):
    """The machine's file systems without a single fsync.

    Whatever is written survives the death of the process, not that of the machine.
    """

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> UnsyncedFile:
        """Open for reading and writing, not inherited by child processes."""
        return UnsyncedFile(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0))

    def sync_directory(self, path: str) -> None:
        """Nothing, as for files."""


class ScratchDirectory:
    """A new directory of its own, on disk or in memory, for as long as it is needed."""

    def __init__(self, *, in_memory: bool = False) -> None:
        if in_memory and not os.access(MEMORY_DIRECTORY, os.W_OK | os.X_OK):
            raise InvalidArgument(
                f"there is no file system in memory on this machine ({MEMORY_DIRECTORY}): leave "
                "in_memory out, or give a directory that is in memory"
            )
        parent = MEMORY_DIRECTORY if in_memory else None
        self.path = tempfile.mkdtemp(prefix="millstream-", dir=parent)
        self._remove = weakref.finalize(self, _remove, self.path, os.getpid())

    def remove(self) -> None:
        """Remove it with everything in it; again is fine."""
        self._remove()


def _remove(path: str, owner_pid: int) -> None:
    if os.getpid() == owner_pid and Path(path).exists():
        shutil.rmtree(path, ignore_errors=True)
