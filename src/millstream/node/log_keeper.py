"""The logs of a broker with the time and the threads they need, and compaction where it is wanted.

`BrokerServer` has one. Nothing here decides about records or partitions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from millstream.storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.clock import Clock
    from millstream.node.config import NodeConfig
    from millstream.node.dynamic_config import DynamicConfig
    from millstream.node.timers import Timers
    from millstream.node.workers import Workers
    from millstream.storage.cleaner.cleaner import LogCleaner
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.config import LogConfig
    from millstream.storage.manager.log_recovery import RecoveryProgress
    from millstream.storage.manager.log_registry import DirectoryFailure

_logger = logging.getLogger(__name__)


class LogKeeper:
    """Keeps a `LogManager` going."""

    def __init__(
        self,
        config: NodeConfig,
        dynamic: DynamicConfig,
        *,
        cluster_id: str,
        filesystem: FileSystem,
        clock: Clock,
        random: Random,
        timers: Timers,
        workers: Workers,
        on_directory_failure: Callable[[DirectoryFailure], None],
    ) -> None:
        """Touches nothing."""
        self._dynamic = dynamic
        self._filesystem = filesystem
        self._clock = clock
        self._workers = workers
        self._alarm = timers.alarm(self._tick)
        self._cleaner_alarm = timers.alarm(self._tick_cleaner)
        self._cleaner: LogCleaner | None = None
        self._is_started = False
        self._is_recovered = False
        self._failures: list[DirectoryFailure] = []
        self._on_directory_failure = on_directory_failure
        self.logs = LogManager(
            config.logs,
            cluster_id=cluster_id,
            node_id=config.process.node_id,
            filesystem=filesystem,
            clock=clock,
            random=random,
            background=workers.background(),
            config_for=dynamic.for_topic,
            on_directory_failure=self._directory_failed,
            on_progress=_log_progress,
            on_deadline=self.arm,
        )

    def take_directories(self) -> None:
        """See whose the directories are and what is in them."""
        self.logs.take_directories()
        self._is_started = True

    async def recover(self) -> None:
        """Recover what the last process did not close in order, on a thread of its own.

        The node goes on meanwhile: it votes, and tells the controller that it is alive.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def recovered(result: Exception | None) -> None:
            if done.done():
                return
            if isinstance(result, Exception):
                self._is_started = False
                done.set_exception(result)
            else:
                done.set_result(None)

        self._workers.run("recovery", self.logs.recover, recovered)
        await done
        self._is_recovered = True
        for failure in self._failures:
            self._on_directory_failure(failure)
        self.arm()

    def _directory_failed(self, failure: DirectoryFailure) -> None:
        """While the logs are recovered that is on another thread, and told at the end of it."""
        if self._is_recovered:
            self._on_directory_failure(failure)
        else:
            self._failures.append(failure)

    def stop(self, broker_epoch: int) -> None:
        """Close the logs, so that the next start is quick."""
        if self._cleaner is not None:
            self._cleaner.close()
        if self._is_started:
            self._is_started = False
            self.logs.stop(broker_epoch)

    def abandon(self) -> None:
        """Let go of the logs as they are."""
        if self._is_started:
            self._is_started = False
            self.logs.abandon()

    def update_topic(self, topic: str, config: LogConfig) -> None:
        """A topic has these settings now."""
        if config.is_compacted and self._cleaner is None and self._dynamic.cleaner.enable:
            self._start_cleaner()
        self.logs.update_topic_config(topic, config)

    def update_broker(self) -> None:
        """The broker has other settings."""
        self.logs.update_config(self._dynamic.logs)
        if self._cleaner is not None:
            self._cleaner.update_config(self._dynamic.cleaner)

    def arm(self) -> None:
        """Wake up when the logs want to. What happens to them may bring that forward."""
        if self._is_recovered and self._is_started:
            self._alarm.set(self.logs.next_deadline_ms())

    def _tick(self) -> None:
        if self._is_started:
            self.logs.tick()
            self.arm()

    def _start_cleaner(self) -> None:
        """A broker without compacted topics has none: it costs memory and wakes up to look."""
        from millstream.storage.cleaner.cleaner import LogCleaner

        self._cleaner = LogCleaner(
            self.logs,
            self._dynamic.cleaner,
            filesystem=self._filesystem,
            clock=self._clock,
            run=lambda work: self._workers.submit("cleaner", work),
            post=self._workers.post,
            on_deadline=self._arm_cleaner,
        )
        self.logs.cleaner = self._cleaner
        self._arm_cleaner()

    def _tick_cleaner(self) -> None:
        if self._cleaner is not None and self._is_started:
            self._cleaner.tick()
            self._arm_cleaner()

    def _arm_cleaner(self) -> None:
        if self._cleaner is not None:
            self._cleaner_alarm.set(self._cleaner.next_deadline_ms())


def _log_progress(progress: RecoveryProgress) -> None:
    _logger.info("recovering logs: %s", progress)
