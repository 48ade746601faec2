"""A log on a simulated disk, opened and closed as the manager of logs does it.

It keeps the checkpoints and the clean-shutdown marker, and can crash the process or the machine in
the middle of any call.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from millstream.clock import ManualClock
from millstream.storage.checkpoint import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    write_offsets,
)
from millstream.storage.log.loader import LoadRequest
from millstream.storage.log.unified_log import UnifiedLog
from millstream.storage.manager.meta_properties import (
    read_clean_shutdown,
    remove_clean_shutdown,
    write_clean_shutdown,
)
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from millstream.storage.log.config import LogConfig

ROOT = "/data"
DIRECTORY = "/data/t-0"
PARTITION = TopicPartition("t", 0)


class Crash(BaseException):
    """The process is gone: no handler of the code under test may catch this."""


class LogHarness:
    """One partition's log through its lives."""

    def __init__(self, random: Random, config: LogConfig) -> None:
        self.random = random
        self.clock = ManualClock()
        self.config = config
        self.filesystem = SimFileSystem(Random(random.getrandbits(64)), clock=self.clock)
        self._operations_left = -1
        self.filesystem.before_operation = self._count_down
        self.filesystem.make_directory(DIRECTORY)
        self.filesystem.sync_directory(ROOT)
        self.filesystem.sync_directory("/")
        self.log = self.open()

    def open(self) -> UnifiedLog:
        """What a manager does at the start."""
        was_clean = read_clean_shutdown(self.filesystem, ROOT) is not None
        remove_clean_shutdown(self.filesystem, ROOT)
        self.log = UnifiedLog.open(
            LoadRequest(
                filesystem=self.filesystem,
                directory=DIRECTORY,
                config=self.config,
                now_ms=self.clock.wall_ms(),
                log_start_offset=self._checkpointed(LOG_START_FILE),
                recovery_point=self._checkpointed(RECOVERY_POINT_FILE),
                is_clean=was_clean,
                verifies_transactions=False,
            ),
            high_watermark=self._checkpointed(HIGH_WATERMARK_FILE),
            random=Random(1),
        )
        if self.log.recovery_point < self._checkpointed(RECOVERY_POINT_FILE):
            # Or the next start would trust what is appended now before it is on disk.
            self._write(RECOVERY_POINT_FILE, self.log.recovery_point)
        return self.log

    def close(self) -> None:
        """What a manager does at a clean stop."""
        self.log.close()
        self.checkpoint()
        write_clean_shutdown(self.filesystem, ROOT, 1)

    def checkpoint(self) -> None:
        """What a manager does every minute."""
        self._write(RECOVERY_POINT_FILE, self.log.recovery_point)
        self._write(LOG_START_FILE, self.log.log_start_offset)
        self._write(HIGH_WATERMARK_FILE, self.log.high_watermark)

    def before_truncation_to(self, offset: int) -> None:
        """What a manager does before it lets a log be truncated."""
        if offset < self.log.recovery_point:
            self.log.lower_recovery_point(offset)
            self._write(RECOVERY_POINT_FILE, self.log.recovery_point)
        if offset < self.log.log_start_offset:
            self._write(LOG_START_FILE, offset)

    def crash_within(self, operations: int) -> None:
        """Crash before the so-many-th operation on the disk from now."""
        self._operations_left = operations

    def survive(self) -> None:
        """Do not crash after all."""
        self._operations_left = -1

    def restart_after_kill(self) -> None:
        """The process died; the operating system did not."""
        self.survive()
        self.filesystem = self.filesystem.after_kill()

    def restart_after_power_loss(self) -> None:
        """The machine died."""
        self.survive()
        self.filesystem = self.filesystem.after_power_loss()

    def _count_down(self, operation: str, path: str, size: int) -> None:
        if self._operations_left >= 0:
            if self._operations_left == 0:
                raise Crash(f"before {operation} of {path}, {size} bytes")
            self._operations_left -= 1

    def _write(self, name: str, offset: int) -> None:
        write_offsets(self.filesystem, f"{ROOT}/{name}", {PARTITION: offset})

    def _checkpointed(self, name: str) -> int:
        return read_offsets(self.filesystem, f"{ROOT}/{name}").get(PARTITION, 0)
