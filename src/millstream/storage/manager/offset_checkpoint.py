"""One checkpoint file of one log directory: what it should say, and what it says on disk.

`LogDirectory` has four. The owner takes a picture of the offsets; a worker writes it, or the owner
itself where the next step relies on it. An older picture never overwrites a newer one, and a table
that has not changed is not written again.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from millstream.errors import KafkaStorageError
from millstream.storage.checkpoint import read_offsets, write_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.filesystem import FileSystem
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)


class OffsetCheckpoint:
    """An offset per partition, on disk."""

    __slots__ = (
        "_filesystem",
        "_lock",
        "_on_disk",
        "_picture",
        "_picture_number",
        "_seen",
        "_written_number",
        "path",
    )

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self.path = path
        self._filesystem = filesystem
        self._lock = threading.Lock()
        self._on_disk: dict[TopicPartition, int] = {}
        self._picture: dict[TopicPartition, int] | None = {}
        self._picture_number = 0
        self._written_number = 0
        self._seen: tuple[list[Any], list[int | None]] | None = None

    def load(self) -> dict[TopicPartition, int]:
        """What the last process wrote. A damaged file is logged and counts as empty.

        Each of the four tables only saves work or is rebuilt, so an empty one is safe.
        """
        try:
            self._on_disk = read_offsets(self._filesystem, self.path)
        except KafkaStorageError as error:
            _logger.warning("%s; going on without it", error)
            self._on_disk = {}
        self._picture = self._on_disk
        return dict(self._on_disk)

    def mentions(self, partition: TopicPartition) -> bool:
        """Whether the file says, or may say, something about a partition."""
        return partition in self._on_disk or partition in (self._picture or {})

    def highest(self, partition: TopicPartition) -> int:
        """The most that the file says, or will say once a picture on its way is written; or -1."""
        pending = (self._picture or {}).get(partition, -1)
        return max(self._on_disk.get(partition, -1), pending)

    def is_known(self, sources: list[Any], offsets: list[int | None]) -> bool:
        """Whether the same was given here before, and nothing was written since.

        An idle broker has the offsets of ten thousand logs compared every few seconds, and for that
        no table need be made. `sources` are the logs that the offsets are of, the same objects.
        """
        seen = (sources, offsets)
        is_known = seen == self._seen and self._picture is not None
        self._seen = seen
        return is_known

    def take(self, offsets: dict[TopicPartition, int]) -> Callable[[], None] | None:
        """A picture of the offsets, to be written on any thread; None if nothing has changed."""
        if offsets == self._picture:
            return None
        self._picture = offsets
        self._picture_number += 1
        number = self._picture_number
        return lambda: self._write(offsets, number)

    def write(self, offsets: dict[TopicPartition, int]) -> None:
        """Bring the offsets to disk before this returns."""
        self._seen = None
        self._picture = offsets
        self._picture_number += 1
        self._write(offsets, self._picture_number)

    def _write(self, offsets: dict[TopicPartition, int], number: int) -> None:
        with self._lock:
            if number < self._written_number:
                return
            try:
                write_offsets(self._filesystem, self.path, offsets)
            except OSError:
                # Whatever comes next is written, even if it is the same again.
                self._picture = None
                raise
            self._written_number = number
            self._on_disk = offsets
