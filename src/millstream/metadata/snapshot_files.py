"""The snapshot files beside the metadata log: named by where they end, whole or not there at all.

`metadata_log` keeps one of these; the worker that writes a snapshot of an image calls
`write_snapshot_file`. A snapshot under way is called `.part` and is worth nothing after a crash.
What the files say is the business of `checkpoints`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from millstream.types import OffsetAndEpoch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.storage.filesystem import File, FileSystem
    from millstream.types import ReadableBuffer

EXTENSION: Final = ".checkpoint"
PART: Final = ".part"
"""Being written, or left by a process that died while it wrote."""
DELETED: Final = ".deleted"
"""Being deleted by Apache Kafka, which does it in two steps."""

BOOTSTRAP_SNAPSHOT: Final = OffsetAndEpoch(0, 0)
"""What formatting leaves: the quorum's first voters, before any record."""

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint(\.part|\.deleted)?", re.ASCII)


def snapshot_file_name(snapshot_id: OffsetAndEpoch) -> str:
    """Such as `00000000000000000042-0000000003.checkpoint`: end offset and epoch."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{EXTENSION}"


def write_snapshot_file(
    filesystem: FileSystem,
    directory: str,
    snapshot_id: OffsetAndEpoch,
    pieces: Iterable[ReadableBuffer],
) -> int:
    """Write a whole snapshot, durably, and say its size. May run on any thread."""
    path = f"{directory}/{snapshot_file_name(snapshot_id)}"
    filesystem.remove(path + PART)
    file = filesystem.open(path + PART, create=True)
    size = 0
    try:
        for piece in pieces:
            file.pwrite(piece, size)
            size += len(piece)
        file.sync()
    except OSError:
        # What has no room must not take what there is.
        with suppress(OSError):
            filesystem.remove(path + PART)
        raise
    finally:
        file.close()
    filesystem.rename(path + PART, path)
    filesystem.sync_directory(directory)
    return size


class SnapshotFiles:
    """The complete snapshots of a directory, and those that are being received."""

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        """Takes stock; what a crash left half-done is removed."""
        self._filesystem = filesystem
        self._directory = directory
        self._receiving: dict[OffsetAndEpoch, File] = {}
        self.sizes: dict[OffsetAndEpoch, int] = {}
        """Size in bytes by id."""
        self.modified_ms: dict[OffsetAndEpoch, int] = {}
        """When each was written, by the wall clock."""
        for status in filesystem.scan(directory):
            match = _NAME.fullmatch(status.name)
            if match is None:
                continue
            if match[3]:
                filesystem.remove(f"{directory}/{status.name}")
                continue
            snapshot_id = OffsetAndEpoch(int(match[2]), int(match[1]))
            self.sizes[snapshot_id] = status.size
            self.modified_ms[snapshot_id] = status.modified_ms

    @property
    def latest(self) -> OffsetAndEpoch | None:
        """The newest one."""
        return max(self.sizes, default=None)

    def note(self, snapshot_id: OffsetAndEpoch, size: int, wall_ms: int) -> None:
        """One was written whole by `write_snapshot_file`."""
        self.sizes[snapshot_id] = size
        self.modified_ms[snapshot_id] = wall_ms

    def read(self, snapshot_id: OffsetAndEpoch, position: int, length: int) -> bytes:
        """A piece of a complete one; empty at its end."""
        file = self._filesystem.open(self._path(snapshot_id))
        try:
            return file.pread(length, position)
        finally:
            file.close()

    def receive(self, snapshot_id: OffsetAndEpoch, position: int, data: ReadableBuffer) -> None:
        """Add to one that comes from another node; position 0 begins anew."""
        if position == 0:
            self._forget(snapshot_id)
            path = self._path(snapshot_id) + PART
            self._filesystem.remove(path)
            self._receiving[snapshot_id] = self._filesystem.open(path, create=True)
        self._receiving[snapshot_id].pwrite(data, position)

    def complete(self, snapshot_id: OffsetAndEpoch, wall_ms: int) -> None:
        """One has been received as a whole: make it count, durably."""
        file = self._receiving.pop(snapshot_id)
        file.sync()
        size = file.size()
        file.close()
        path = self._path(snapshot_id)
        self._filesystem.rename(path + PART, path)
        self._filesystem.sync_directory(self._directory)
        self.note(snapshot_id, size, wall_ms)

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Remove the older ones."""
        for older in [each for each in self.sizes if each < snapshot_id]:
            self._filesystem.remove(self._path(older))
            del self.sizes[older], self.modified_ms[older]

    def close(self) -> None:
        """Let go of what is being received."""
        for snapshot_id in list(self._receiving):
            self._forget(snapshot_id)

    def _forget(self, snapshot_id: OffsetAndEpoch) -> None:
        file = self._receiving.pop(snapshot_id, None)
        if file is not None:
            file.close()

    def _path(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot_file_name(snapshot_id)}"
