"""What a log directory holds, in numbers: the answer to DescribeLogDirs.

`LogManager.describe` makes them. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import KafkaStorageError

if TYPE_CHECKING:
    from millstream.storage.manager.log_directory import LogDirectory
    from millstream.storage.manager.log_registry import LogRegistry
    from millstream.storage.manager.log_slot import LogSlot
    from millstream.types import TopicPartition, Uuid


@dataclass(frozen=True, slots=True)
class LogDescription:
    """One log of a directory."""

    partition: TopicPartition
    size: int
    offset_lag: int
    """How far a future log is behind the one it replaces; else how far behind its leader."""
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One directory; of a failed one only the error is known."""

    path: str
    directory_id: Uuid | None
    error: KafkaStorageError | None
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False
    logs: tuple[LogDescription, ...] = ()


def describe_directory(registry: LogRegistry, directory: LogDirectory) -> LogDirDescription:
    """Look at a directory; a look that fails because the disk has failed takes it offline."""
    if directory.is_online:
        try:
            usage = registry.filesystem.usage(directory.path)
            return LogDirDescription(
                directory.path,
                directory.directory_id,
                None,
                usage.total_bytes,
                usage.free_bytes,
                directory.is_cordoned,
                tuple(_describe_log(registry, slot) for slot in list(directory.logs.values())),
            )
        except OSError as error:
            registry.note_error(directory, error)
    reason = directory.error or KafkaStorageError(f"{directory.path} cannot be looked at")
    return LogDirDescription(directory.path, directory.directory_id, reason)


def _describe_log(registry: LogRegistry, slot: LogSlot) -> LogDescription:
    return LogDescription(slot.partition, slot.size, _offset_lag(registry, slot), slot.is_future)


def _offset_lag(registry: LogRegistry, slot: LogSlot) -> int:
    current = registry.current.get(slot.partition)
    if not slot.is_future or current is None:
        return 0 if slot.log is None else max(slot.log.high_watermark - slot.log.log_end_offset, 0)
    try:
        return registry.open(current).log_end_offset - registry.open(slot).log_end_offset
    except KafkaStorageError:
        return 0  # One of the two cannot be read: there is no saying.
