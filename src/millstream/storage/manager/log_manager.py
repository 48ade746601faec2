"""All the logs of a broker: its directories, their start and stop, and the logs by partition.

The broker makes one, or a program that uses storage as a library. It creates, finds, cuts, moves
and deletes logs; what a log contains is the log's business. The owner's thread calls everything;
`tick` is to be called when `next_deadline_ms` has come.

    manager = LogManager(LogManagerConfig(log_dirs=("data",)), ...)
    manager.start()
    log = manager.get_or_create(TopicPartition("orders", 0), topic_id, is_new=True)
    ...
    manager.stop()
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.errors import ApiError, InconsistentTopicId, KafkaStorageError
from millstream.storage.faults import storage_error
from millstream.storage.file_names import partition_directory_name
from millstream.storage.log.log_lifecycle import LogLifecycle
from millstream.storage.manager.log_dir_description import describe_directory
from millstream.storage.manager.log_moves import LogMoves
from millstream.storage.manager.log_registry import LogRegistry
from millstream.storage.manager.log_startup import LogShutdown, LogStartup
from millstream.storage.manager.log_tasks import LogTasks
from millstream.storage.manager.meta_properties import write_partition_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from random import Random

    from millstream.clock import Clock
    from millstream.storage.background import Background
    from millstream.storage.cleaner.cleaning_control import CleaningControl
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.segment import LogSegment
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.broker_config import LogManagerConfig
    from millstream.storage.manager.flusher import Completion
    from millstream.storage.manager.log_dir_description import LogDirDescription
    from millstream.storage.manager.log_directory import LogDirectory
    from millstream.storage.manager.log_recovery import RecoveryProgress
    from millstream.storage.manager.log_registry import DirectoryFailure
    from millstream.storage.manager.log_slot import LogSlot
    from millstream.types import TopicPartition, Uuid

_logger = logging.getLogger(__name__)


class LogManager:
    """The logs of one broker."""

    def __init__(
        self,
        config: LogManagerConfig,
        *,
        cluster_id: str,
        node_id: int,
        filesystem: FileSystem,
        clock: Clock,
        random: Random,
        background: Background,
        config_for: Callable[[str], LogConfig],
        on_directory_failure: Callable[[DirectoryFailure], None],
        on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
        on_deadline: Callable[[], None] = lambda: None,
    ) -> None:
        """Touches nothing. `config_for` gives a topic's settings, also on worker threads.

        `on_deadline` hears that `next_deadline_ms` was brought forward by what a log did.
        """
        self._registry = LogRegistry(
            config,
            filesystem=filesystem,
            clock=clock,
            random=random,
            background=background,
            config_for=config_for,
            on_failure=on_directory_failure,
        )
        self._post = background.post
        self._tasks = LogTasks(self._registry, on_deadline)
        self._lifecycle = LogLifecycle(self._registry, self._tasks)
        self.moves = LogMoves(self._registry, self._lifecycle)
        """Moves of logs from one directory to another."""
        self._startup = LogStartup(
            self._registry, self._lifecycle, background, cluster_id, node_id, on_progress
        )
        self._shutdown = LogShutdown(self._registry, background)

    # Start and stop.

    def start(self) -> None:
        """Take the directories, and recover what the last process did not close in order.

        Logs that were closed in order are opened when they are first asked for. A directory that
        cannot be read is left out, and its failure told; none at all is an error.
        """
        self.take_directories()
        self.recover()

    def take_directories(self) -> None:
        """The first half of `start`, which takes no time: whose they are, and what is in them."""
        self._startup.take()

    def recover(self) -> None:
        """The other half, for which a broker with much to recover has a thread of its own.

        Nobody else uses the logs meanwhile.
        """
        self._startup.recover()
        self._tasks.start()

    def stop(self, broker_epoch: int = -1) -> dict[str, Exception]:
        """Close every log and leave the directories clean; those that could not be, and why."""
        return self._shutdown.run(broker_epoch)

    def abandon(self) -> None:
        """Let go of everything as it is: the next start recovers, as after a crash."""
        self._shutdown.abandon()

    @property
    def previous_broker_epoch(self) -> int | None:
        """The broker epoch of the last process; None unless it left every directory clean."""
        directories = self._registry.directories.values()
        epochs = {each.previous_broker_epoch for each in directories}
        return epochs.pop() if len(epochs) == 1 else None

    # The directories.

    @property
    def directories(self) -> list[LogDirectory]:
        """All of them, in the order of `log.dirs`, failed ones too."""
        return list(self._registry.directories.values())

    def directory_of(self, partition: TopicPartition) -> LogDirectory:
        """The directory that a partition's log is in."""
        return self._registry.require(partition).directory

    def cordon(self, paths: Collection[str]) -> None:
        """Put no new logs into these directories, and again into all others."""
        for directory in self.directories:
            directory.is_cordoned = directory.path in paths

    def describe(self) -> list[LogDirDescription]:
        """What each directory holds, and how much room there is."""
        return [describe_directory(self._registry, each) for each in self.directories]

    def note_error(self, log: UnifiedLog, error: Exception) -> bool:
        """A log's user met an error: whether its directory is out of service now.

        Everybody who gets a `KafkaStorageError` from a log tells it here. A full disk is an error
        to the producer and nothing else.
        """
        return self._registry.note_error(self._registry.directory_of(log), error)

    # Logs by partition.

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those that have a log in service."""
        return list(self._registry.current)

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        """A partition's log; None if there is none, an error if its directory has failed."""
        slot = self._registry.current.get(partition)
        if slot is not None:
            return slot.log or self._registry.open(slot)
        if partition in self._registry.offline:
            raise self._registry.absence(partition)
        return None

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: Uuid | None = None,
        *,
        is_new: bool = False,
        directory_id: Uuid | None = None,
    ) -> UnifiedLog:
        """A partition's log, made if it does not exist yet.

        A log of another topic id is of a topic that was deleted and made again meanwhile: an error,
        until `mark_stray` has put it aside. Unless the partition `is_new`, its log may be in a
        directory that has failed; then none is made either.
        """
        registry = self._registry
        slot = registry.current.get(partition)
        if slot is not None:
            self._require_topic_id(slot, topic_id)
            return registry.open(slot)
        failed = [each.path for each in self.directories if not each.is_online]
        if partition in registry.offline or (failed and not is_new):
            raise KafkaStorageError(
                f"no log is made for {partition}: it may be in {', '.join(failed)}, "
                "which is out of service"
            )
        directory = self._lifecycle.directory_for_new(partition, directory_id)
        name = partition_directory_name(partition)
        return self._lifecycle.create(directory, partition, name, topic_id)

    def topic_id_of(self, partition: TopicPartition) -> Uuid | None:
        """The topic id that a partition's log was made for; None if it was made without."""
        return self._registry.require(partition).topic_id

    def delete(self, partition: TopicPartition) -> bool:
        """Take a log out of service; its files go after `file.delete.delay.ms`. False if none."""
        self.moves.cancel(partition)
        slot = self._registry.current.get(partition)
        if slot is None:
            return False
        self._lifecycle.delete(slot)
        return True

    def mark_stray(self, partition: TopicPartition) -> None:
        """Put a log aside that this broker should not have; its files stay."""
        self.moves.cancel(partition)
        self._lifecycle.mark_stray(self._registry.require(partition))

    def truncate_to(self, partition: TopicPartition, offset: int) -> bool:
        """Cut a log, and the future one that follows it; False if nothing was cut."""
        future = self._registry.future.get(partition)
        if future is not None:
            self._lifecycle.truncate(future, offset)
        return self._lifecycle.truncate(self._registry.require(partition), offset)

    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, log_start_offset: int | None = None
    ) -> None:
        """Drop every record of a log and go on at an offset."""
        start = offset if log_start_offset is None else log_start_offset
        future = self._registry.future.get(partition)
        if future is not None:
            self._lifecycle.truncate(future, offset, start)
        self._lifecycle.truncate(self._registry.require(partition), offset, start)

    def truncate(self, partition: TopicPartition, offset: int, done: Completion) -> None:
        """The same as `truncate_to`, for who goes on with the log when it is on disk.

        `done` is called later, with what kept the log from being cut.
        """
        self._attempt(lambda: self.truncate_to(partition, offset), done)

    def restart(self, partition: TopicPartition, offset: int, done: Completion) -> None:
        """The same as `truncate_fully_and_start_at`; `done` as with `truncate`."""
        self._attempt(lambda: self.truncate_fully_and_start_at(partition, offset), done)

    def _attempt(self, act: Callable[[], object], done: Completion) -> None:
        error: ApiError | None = None
        try:
            act()
        except ApiError as caught:
            error = caught
        self._post(lambda: done(error))

    def _require_topic_id(self, slot: LogSlot, topic_id: Uuid | None) -> None:
        if topic_id is None:
            return
        try:
            found = slot.topic_id
            if found is None:
                write_partition_metadata(self._registry.filesystem, slot.path, topic_id)
        except OSError as cause:
            error = storage_error(slot.path, "reading the topic id", cause)
            error.__cause__ = cause
            self._registry.note_error(slot.directory, error)
            raise error from cause
        if found is not None and found != topic_id:
            raise InconsistentTopicId(
                f"{slot.path} is of topic id {found}, not {topic_id}: the topic was deleted and "
                "made again"
            )

    # Durability.

    def commit(self, log: UnifiedLog, offset: int, done: Completion) -> None:
        """Call `done` when everything before an offset is on disk: `millstream.durability=disk`.

        The logs of a directory that wait at the same time share one round of fsync.
        """
        self._registry.directory_of(log).commit.wait(log, offset, done)

    def flush(self, log: UnifiedLog) -> None:
        """Sync a log soon, though nobody waits: an append answered that it `wants_flush`."""
        self._registry.directory_of(log).commit.flush(log)

    def when_commits_settled(self, done: Callable[[], None]) -> None:
        """Call `done` when everybody who waits for a disk now has been answered."""
        left = len(self._registry.directories)

        def settled() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for directory in self._registry.directories.values():
            directory.commit.when_settled(settled)

    # Settings.

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """A topic has new settings: give them to its logs. `config_for` has them already."""
        cleaner = self._registry.cleaner
        for slot in self._registry.slots():
            if slot.partition.topic == topic and slot.log is not None:
                if slot.log.config.is_compacted and not config.is_compacted:
                    cleaner.pause(slot.partition)
                    cleaner.resume(slot.partition)
                slot.log.update_config(config)
                self._registry.note_config(slot)

    def update_config(self, config: LogManagerConfig) -> None:
        """Take new settings of the broker; those of `log.dirs` at the next start only."""
        self._registry.config = config
        self._tasks.update_config()
        for slot in self._registry.slots():
            if slot.log is not None:
                producers = slot.log.producers
                producers.expiration_ms = config.producer_id_expiration_ms
                producers.verifies_transactions = config.transaction_partition_verification_enable

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, on the monotonic clock; None if never."""
        return self._tasks.next_deadline_ms()

    def tick(self) -> None:
        """Do what is due, but not for long: more may be due at once."""
        self._tasks.tick()

    # Compaction.

    @property
    def cleaner(self) -> CleaningControl:
        """What keeps compaction away from logs that are changed."""
        return self._registry.cleaner

    @cleaner.setter
    def cleaner(self, cleaner: CleaningControl) -> None:
        self._registry.cleaner = cleaner

    def compacted_logs(self) -> list[TopicPartition]:
        """The partitions whose topic is compacted, whether their logs are open or not."""
        registry = self._registry
        topics = {partition.topic for partition in registry.current}
        compacted = {topic for topic in topics if registry.config_for(topic).is_compacted}
        return [each for each in registry.current if each.topic in compacted]

    def cleaner_offset(self, partition: TopicPartition) -> int | None:
        """The first offset of a log that was never compacted; None if that is its start."""
        return self.directory_of(partition).cleaner_offsets.get(partition)

    def set_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """A log is compacted up to an offset; its directory's thread writes that soon."""
        directory = self.directory_of(partition)
        directory.cleaner_offsets[partition] = offset
        directory.checkpoint_soon(directory.cleaner_points, directory.cleaner_table())

    def discard_segments(self, log: UnifiedLog, segments: Iterable[LogSegment]) -> None:
        """Remove the `.deleted` files of segments that a log has let go, after its delay."""
        self._tasks.discard(log, segments)
