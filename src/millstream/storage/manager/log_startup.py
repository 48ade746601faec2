"""How a broker's log directories come into service and how they leave it.

`LogManager` runs it. Start: lock, owner, marker, inventory, recovery. Stop: close every log, write
the checkpoints, and only then, as the last thing, the marker that says so. Whatever goes wrong on
the way leaves a directory without the marker, and the next start recovers it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.errors import KafkaStorageError
from millstream.storage.faults import storage_error
from millstream.storage.manager.log_moves import choose_between
from millstream.storage.manager.log_recovery import LogRecovery
from millstream.storage.manager.meta_properties import require_one_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.storage.background import Background
    from millstream.storage.log.log_lifecycle import LogLifecycle
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_directory import LogDirectory
    from millstream.storage.manager.log_recovery import RecoveryProgress
    from millstream.storage.manager.log_registry import LogRegistry
    from millstream.storage.manager.log_slot import LogSlot

_logger = logging.getLogger(__name__)


class LogStartup:
    """One start of all directories."""

    def __init__(
        self,
        registry: LogRegistry,
        lifecycle: LogLifecycle,
        background: Background,
        cluster_id: str,
        node_id: int,
        on_progress: Callable[[RecoveryProgress], None],
    ) -> None:
        self._registry = registry
        self._lifecycle = lifecycle
        self._background = background
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._on_progress = on_progress

    def take(self) -> None:
        """Take the directories and see what is in them; nothing stays locked if that fails."""
        with self._released_on_failure():
            self._lock_all()
            self._require_one_online()
            self._require_owner()
            for directory in self._registry.online_directories:
                self._attempt(directory, self._take_stock)

    def recover(self) -> None:
        """Bring what is in the directories into service; nothing stays locked if that fails."""
        with self._released_on_failure():
            self._recover()
            self._settle_duplicates()
            self._require_one_online()

    @contextmanager
    def _released_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for directory in self._registry.directories.values():
                directory.release()
            raise

    def _require_one_online(self) -> None:
        if not self._registry.online_directories:
            raise KafkaStorageError("no log directory is left in service")

    def _lock_all(self) -> None:
        for directory in self._registry.directories.values():
            self._attempt(directory, lambda each: each.lock())

    def _attempt(self, directory: LogDirectory, action: Callable[[LogDirectory], None]) -> None:
        """A disk that fails at the start is left out; the others go on."""
        try:
            action(directory)
        except OSError as cause:
            error = storage_error(directory.path, "starting", cause)
            error.__cause__ = cause
            self._registry.fail(directory, error)

    def _require_owner(self) -> None:
        online = self._registry.online_directories
        fresh = [directory.path for directory in online if directory.meta is None]
        if fresh:
            raise KafkaStorageError(
                f"{', '.join(fresh)} has no meta.properties: format it first, or check that the "
                "disk is mounted"
            )
        metas = {each.path: each.meta for each in online if each.meta is not None}
        require_one_owner(metas, self._cluster_id, self._node_id)
        for directory in online:
            self._attempt(directory, self._complete_meta)

    def _complete_meta(self, directory: LogDirectory) -> None:
        directory.complete_meta(self._cluster_id, self._node_id, self._registry.random)

    def _take_stock(self, directory: LogDirectory) -> None:
        found = directory.take_inventory()
        for name in found.deleted:
            self._lifecycle.remove_later(directory, name, 0)
        for name in found.strays:
            _logger.warning("%s/%s is a stray log and is not used", directory.path, name)
        if directory.logs:
            how = "clean" if directory.was_clean else "unclean"
            _logger.info("%s has %d logs and was left %s", directory.path, len(directory.logs), how)
        else:
            _logger.info("%s has no logs", directory.path)

    def _recover(self) -> None:
        registry = self._registry
        for directory in registry.online_directories:
            if not directory.was_clean and directory.logs:
                # What is recovered counts as being on disk, so its names must be there too.
                self._attempt(directory, lambda each: registry.filesystem.sync_directory(each.path))
        dirty: dict[LogDirectory, list[LogSlot]] = {
            directory: list(directory.logs.values())
            for directory in registry.online_directories
            if not directory.was_clean and directory.logs
        }
        recovery = LogRecovery(
            load=registry.load,
            on_result=self._take_result,
            on_progress=self._on_progress,
            clock=registry.clock,
        )
        threads = registry.config.num_recovery_threads_per_data_dir
        recovery.run(dirty, self._background.make_pool, threads)

    def _take_result(self, slot: LogSlot, result: UnifiedLog | KafkaStorageError) -> None:
        if not isinstance(result, KafkaStorageError):
            try:
                self._registry.publish(slot, result)
            except KafkaStorageError as error:
                result = error
            else:
                return
        if not self._registry.note_error(slot.directory, result):
            # The disk works but the log does not: it alone stays out of service.
            _logger.error("%s is out of service: %s", slot.path, result)
            slot.fault = result

    def _settle_duplicates(self) -> None:
        """Put all logs into service; of two that claim the same partition, one."""
        registry = self._registry
        for directory in registry.online_directories:
            for slot in list(directory.logs.values()):
                logs = registry.future if slot.is_future else registry.current
                other = logs.get(slot.partition)
                if other is None:
                    registry.add(slot)
                    continue
                kept, stray = choose_between(registry, slot, other)
                registry.remove(other)
                _logger.error("%s and %s are the same partition", kept.path, stray.path)
                self._lifecycle.mark_stray(stray)
                registry.add(kept)


class LogShutdown:
    """One stop of all directories."""

    def __init__(self, registry: LogRegistry, background: Background) -> None:
        self._registry = registry
        self._background = background

    def run(self, broker_epoch: int) -> dict[str, Exception]:
        """Close everything; the directories that were left unclean, and why."""
        reason = KafkaStorageError("the logs are being closed")
        failures: dict[str, Exception] = {}
        try:
            online = self._registry.online_directories
            for directory in online:
                directory.close_workers(reason)
            closed = [(each, self._begin_closing(each)) for each in online]
            for directory, wait in closed:
                try:
                    wait()
                    directory.write_clean_stop(broker_epoch)
                except (OSError, KafkaStorageError) as error:
                    _logger.warning("%s is left unclean: %s", directory.path, error)
                    failures[directory.path] = error
        finally:
            self._release()
        return failures

    def abandon(self) -> None:
        """Let go of everything and write nothing."""
        reason = KafkaStorageError("the logs have been abandoned")
        for directory in self._registry.directories.values():
            directory.close_workers(reason)
        for slot in self._registry.slots():
            if slot.log is not None:
                slot.log.abandon()
        self._release()

    def _begin_closing(self, directory: LogDirectory) -> Callable[[], None]:
        """Close a directory's logs on threads of its own; call what it gives to wait for them."""
        slots = list(directory.logs.values())
        pool = self._background.make_pool(self._registry.config.num_recovery_threads_per_data_dir)
        futures = [pool.submit(slot.log.close) for slot in slots if slot.log is not None]

        def wait() -> None:
            with pool:
                for future in futures:
                    future.result()
            for slot in slots:
                if slot.fault is not None:
                    raise slot.fault

        return wait

    def _release(self) -> None:
        for directory in self._registry.directories.values():
            directory.release()
        self._registry.current.clear()
        self._registry.future.clear()
