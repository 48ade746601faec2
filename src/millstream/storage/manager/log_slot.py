"""One log of a log directory, open or not yet.

`LogDirectory` has one for each partition it holds. After a clean stop a log is opened when it is
first asked for; until then its slot knows what the checkpoints said, which is still true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.storage.file_names import LOG, parse_segment_file_name
from millstream.storage.manager.meta_properties import read_partition_metadata

if TYPE_CHECKING:
    from millstream.errors import KafkaStorageError
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_directory import LogDirectory
    from millstream.types import TopicPartition, Uuid


class CheckpointedOffsets(NamedTuple):
    """What the checkpoints of a directory say about one log."""

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0


class LogSlot:
    """The place of a log in its directory."""

    __slots__ = (
        "_size",
        "_topic_id",
        "checkpointed",
        "directory",
        "fault",
        "idle_end_offset",
        "is_clean",
        "is_future",
        "log",
        "name",
        "partition",
    )

    def __init__(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        name: str,
        checkpointed: CheckpointedOffsets,
        *,
        is_future: bool = False,
    ) -> None:
        self.directory = directory
        self.partition = partition
        self.name = name
        self.is_future = is_future
        """It is being filled, to take the place of the partition's log in another directory."""
        self.checkpointed = checkpointed
        self.log: UnifiedLog | None = None
        self.is_clean = directory.was_clean
        """Whether it need not be recovered when it is opened."""
        self.fault: KafkaStorageError | None = None
        """Why it could not be loaded at the start, and is not recovered."""
        self.idle_end_offset = -1
        """Where the log ended when retention last came by."""
        self._topic_id: Uuid | None = None
        self._size: int | None = None

    @property
    def path(self) -> str:
        """The log's own directory."""
        return f"{self.directory.path}/{self.name}"

    @property
    def recovery_point(self) -> int:
        """Everything before it is on disk."""
        return self.checkpointed.recovery_point if self.log is None else self.log.recovery_point

    @property
    def hidden_log_start(self) -> int | None:
        """The log start, if the files alone do not tell it."""
        if self.log is None:
            return self.checkpointed.log_start_offset or None
        start = self.log.log_start_offset
        return start if start > self.log.segments.first.base_offset else None

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed."""
        return self.checkpointed.high_watermark if self.log is None else self.log.high_watermark

    @property
    def size(self) -> int:
        """Bytes of records; a log that is not open does not change, so it is looked at once."""
        if self.log is not None:
            return self.log.size
        if self._size is None:
            self._size = self.bytes_from(0)
        return self._size

    def bytes_from(self, offset: int) -> int:
        """Bytes in the segment with an offset and in all later ones, by a look at the files."""
        found = {
            name.base_offset: status.size
            for status in self.directory.filesystem.scan(self.path)
            if (name := parse_segment_file_name(status.name)) is not None
            and (name.extension, name.suffix) == (LOG, "")
        }
        first = max((base for base in found if base <= offset), default=0)
        return sum(size for base, size in found.items() if base >= first)

    @property
    def topic_id(self) -> Uuid | None:
        """The id in `partition.metadata`; None if there is none."""
        if self._topic_id is None:
            self._topic_id = read_partition_metadata(self.directory.filesystem, self.path)
        return self._topic_id

    def __repr__(self) -> str:
        return f"LogSlot({self.path})"
