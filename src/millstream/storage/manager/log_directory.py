"""One log directory, usually one disk: its lock, its owner, its checkpoints, its logs' places.

`LogManager` has one per entry of `log.dirs`. A directory is either in service or failed; a failed
one is never written again by this process. It finds and names logs; it does not decide about them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import KafkaStorageError
from millstream.storage.background import Chores
from millstream.storage.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from millstream.storage.file_names import parse_partition_directory_name
from millstream.storage.filesystem import LOCK_FILE_NAME, TEMPORARY_SUFFIX
from millstream.storage.manager.flusher import GroupCommit
from millstream.storage.manager.log_slot import CheckpointedOffsets, LogSlot
from millstream.storage.manager.meta_properties import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from millstream.storage.manager.offset_checkpoint import OffsetCheckpoint
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.storage.background import Background
    from millstream.storage.filesystem import DirectoryLock, FileSystem
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)

_METADATA_TOPIC: Final = "__cluster_metadata"
_OWN_FILES: Final = frozenset(
    {
        RECOVERY_POINT_FILE,
        HIGH_WATERMARK_FILE,
        LOG_START_FILE,
        CLEANER_FILE,
        LOCK_FILE_NAME,
        META_PROPERTIES_FILE,
        CLEAN_SHUTDOWN_FILE,
        "bootstrap.checkpoint",
    }
)


def format_directory(
    filesystem: FileSystem, path: str, cluster_id: str, node_id: int, random: Random
) -> MetaProperties:
    """Take a fresh directory for a node of a cluster; refuse one that belongs to somebody."""
    _make_directory_durably(filesystem, path)
    lock = filesystem.lock_directory(path)
    try:
        found = read_meta_properties(filesystem, path)
        if found is not None:
            raise KafkaStorageError(
                f"{path} is formatted already, for node {found.node_id} of cluster "
                f"{found.cluster_id}"
            )
        meta = MetaProperties(cluster_id, node_id, Uuid.random(random))
        write_meta_properties(filesystem, path, meta)
        return meta
    finally:
        lock.release()


def _make_directory_durably(filesystem: FileSystem, path: str) -> None:
    """Create a directory with its missing parents, all of which survive a power loss."""
    missing = []
    while not filesystem.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if missing:
        filesystem.make_directory(missing[0])
    for each in reversed(missing):
        filesystem.sync_directory(path)
        path = each


class Inventory(NamedTuple):
    """What was found in a directory besides logs in use."""

    deleted: list[str]
    """Names of directories that wait for their removal."""
    strays: list[str]
    """Names of logs that an operator should look at."""


class LogDirectory:
    """One directory in service, from `lock` to `release`."""

    def __init__(
        self,
        filesystem: FileSystem,
        path: str,
        background: Background,
        *,
        on_failure: Callable[[LogDirectory, KafkaStorageError], object],
        on_error: Callable[[LogDirectory, Exception], object],
    ) -> None:
        """Touches nothing. `on_failure` hears of a failed fsync, `on_error` of failed chores."""
        self.filesystem = filesystem
        self.path = path
        self.meta: MetaProperties | None = None
        self.error: KafkaStorageError | None = None
        """Why it is out of service; None while all is well."""
        self.is_cordoned = False
        """Whether it takes no new logs; those it has go on."""
        self.was_clean = False
        self.previous_broker_epoch: int | None = None
        """The broker epoch of a process that stopped in order here just before."""
        self.logs: dict[TopicPartition, LogSlot] = {}
        """Its logs, future ones too: no partition has both in the same directory."""
        self.recovery_points = OffsetCheckpoint(filesystem, f"{path}/{RECOVERY_POINT_FILE}")
        self.log_starts = OffsetCheckpoint(filesystem, f"{path}/{LOG_START_FILE}")
        self.high_watermarks = OffsetCheckpoint(filesystem, f"{path}/{HIGH_WATERMARK_FILE}")
        self.cleaner_points = OffsetCheckpoint(filesystem, f"{path}/{CLEANER_FILE}")
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        """The first offset of each log that was never compacted."""
        run = background.run_for(path)
        self.commit = GroupCommit(
            directory=path,
            run=run,
            post=background.post,
            on_failure=lambda error: on_failure(self, error),
        )
        self.chores = Chores(
            run=run, post=background.post, on_error=lambda error: on_error(self, error)
        )
        self._lock: DirectoryLock | None = None

    @property
    def is_online(self) -> bool:
        """Whether it is in service."""
        return self.error is None

    @property
    def directory_id(self) -> Uuid | None:
        """Its id in the cluster; None if it could not be read."""
        return None if self.meta is None else self.meta.directory_id

    # Coming into service.

    def lock(self) -> None:
        """Take it for this process and see whose it is; None in `meta` if nobody's."""
        self.filesystem.make_directory(self.path)
        self._lock = self.filesystem.lock_directory(self.path)
        self.meta = read_meta_properties(self.filesystem, self.path)

    def complete_meta(self, cluster_id: str, node_id: int, random: Random) -> None:
        """Give a directory of older software what it lacks: its id."""
        assert self.meta is not None
        if self.meta.version != 1 or self.meta.directory_id is None:
            directory_id = self.meta.directory_id or Uuid.random(random)
            self.meta = MetaProperties(cluster_id, node_id, directory_id)
            write_meta_properties(self.filesystem, self.path, self.meta)

    def take_inventory(self) -> Inventory:
        """See how the last process left it and which logs there are; from now on it is dirty."""
        marker = read_clean_shutdown(self.filesystem, self.path)
        self.was_clean = marker is not None
        self.previous_broker_epoch = None if marker is None else marker.broker_epoch
        remove_clean_shutdown(self.filesystem, self.path)
        recovery_points = self.recovery_points.load()
        log_starts = self.log_starts.load()
        high_watermarks = self.high_watermarks.load()
        self.cleaner_offsets = self.cleaner_points.load()
        found = Inventory([], [])
        for status in self.filesystem.scan(self.path):
            name = status.name
            parsed = parse_partition_directory_name(name) if status.is_directory else None
            if parsed is None:
                self._pass_over(name)
            elif parsed.state == "delete":
                found.deleted.append(name)
            elif parsed.state == "stray":
                found.strays.append(name)
            elif parsed.partition.topic != _METADATA_TOPIC:
                partition = parsed.partition
                offsets = CheckpointedOffsets(
                    recovery_points.get(partition, 0),
                    log_starts.get(partition, 0),
                    high_watermarks.get(partition, 0),
                )
                self._add_found(partition, name, offsets, is_future=parsed.state == "future")
        return found

    def _add_found(
        self,
        partition: TopicPartition,
        name: str,
        offsets: CheckpointedOffsets,
        *,
        is_future: bool,
    ) -> None:
        other = self.logs.get(partition)
        if other is not None and (is_future or not other.is_future):
            _logger.error("%s/%s is passed over: %s is there too", self.path, name, other.name)
            return
        self.logs[partition] = LogSlot(self, partition, name, offsets, is_future=is_future)

    def _pass_over(self, name: str) -> None:
        if name not in _OWN_FILES and not name.endswith(TEMPORARY_SUFFIX):
            _logger.info("%s/%s is not a log and is left alone", self.path, name)

    # In service.

    def new_slot(self, partition: TopicPartition, name: str, *, is_future: bool = False) -> LogSlot:
        """A place for a log that does not exist yet, of which no checkpoint knows anything."""
        self._forget_checkpointed(partition)
        slot = LogSlot(self, partition, name, CheckpointedOffsets(), is_future=is_future)
        slot.is_clean = True
        self.logs[partition] = slot
        return slot

    def _forget_checkpointed(self, partition: TopicPartition) -> None:
        """No new log may be taken, after a crash, for one of the same name that was deleted."""
        self.cleaner_offsets.pop(partition, None)
        tables = (
            (self.recovery_points, self.recovery_point_table),
            (self.log_starts, self.log_start_table),
            (self.high_watermarks, self.high_watermark_table),
            (self.cleaner_points, self.cleaner_table),
        )
        for checkpoint, table in tables:
            if checkpoint.mentions(partition):
                checkpoint.write(table())

    def recovery_point_table(self) -> dict[TopicPartition, int]:
        """What `recovery-point-offset-checkpoint` should say."""
        return {partition: slot.recovery_point for partition, slot in self.logs.items()}

    def log_start_table(self) -> dict[TopicPartition, int]:
        """What `log-start-offset-checkpoint` should say: only what the files do not."""
        return {
            partition: start
            for partition, slot in self.logs.items()
            if (start := slot.hidden_log_start) is not None
        }

    def high_watermark_table(self) -> dict[TopicPartition, int]:
        """What `replication-offset-checkpoint` should say."""
        return {partition: slot.high_watermark for partition, slot in self.logs.items()}

    def cleaner_table(self) -> dict[TopicPartition, int]:
        """What `cleaner-offset-checkpoint` should say."""
        return {
            partition: offset
            for partition, offset in self.cleaner_offsets.items()
            if partition in self.logs
        }

    def is_known(
        self, checkpoint: OffsetCheckpoint, offset_of: Callable[[LogSlot], int | None]
    ) -> bool:
        """Whether an offset of each log is what it was when this was asked the last time."""
        slots = list(self.logs.values())
        return checkpoint.is_known(slots, list(map(offset_of, slots)))

    def checkpoint_soon(
        self, checkpoint: OffsetCheckpoint, table: dict[TopicPartition, int]
    ) -> None:
        """Have a table written by the directory's thread, if it has changed."""
        write = checkpoint.take(table)
        if write is not None:
            self.chores.add(f"writing {checkpoint.path}", write)

    # Going out of service.

    def write_clean_stop(self, broker_epoch: int) -> None:
        """Every log is closed: write what the next start relies on, the marker last of all."""
        self.recovery_points.write(self.recovery_point_table())
        self.log_starts.write(self.log_start_table())
        self.high_watermarks.write(self.high_watermark_table())
        self.cleaner_points.write(self.cleaner_table())
        write_clean_shutdown(self.filesystem, self.path, broker_epoch)

    def close_workers(self, reason: KafkaStorageError) -> None:
        """Begin nothing more; whoever waits for the disk gets the reason."""
        self.chores.close()
        self.commit.close(reason)

    def release(self) -> None:
        """Let other processes have it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __repr__(self) -> str:
        return f"LogDirectory({self.path})"
