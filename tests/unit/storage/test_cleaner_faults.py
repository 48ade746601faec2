"""The cleaner where something goes wrong: damaged logs, full and failed disks, lost races."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.storage.manager.broker_config import CleanerConfig
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.cleaner_harness import BACKOFF_MS, OTHER, TABLE, CleaningBroker
from tests.unit.storage.manager_harness import names_in, restarted

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> CleaningBroker:
    return CleaningBroker(filesystem, directory)


class TestTrouble:
    def test_a_log_that_cannot_be_cleaned_does_not_stop_the_others(
        self, broker: CleaningBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker.write(60, TABLE)
        broker.write(60, OTHER)
        file = broker.log(TABLE).segments.first.open_file()
        file.pwrite(b"?", 80)
        broker.clean()
        assert list(broker.cleaner.uncleanable) == [TABLE]
        assert "table-0 is not compacted until the next start" in caplog.text
        assert len(broker.rows(OTHER)) < 60
        broker.cleaner.forget(TABLE)
        assert not broker.cleaner.uncleanable

    def test_a_batch_with_more_keys_than_memory_says_what_to_do(
        self, broker: CleaningBroker
    ) -> None:
        config = CleanerConfig()
        object.__setattr__(config, "dedupe_buffer_size", 3 * 24)
        broker.make_cleaner(config)
        broker.write_batch([b"k%d" % number for number in range(10)])
        broker.write(60)
        broker.clean()
        message = str(broker.cleaner.uncleanable[TABLE])
        assert "increase it, or decrease log.cleaner.threads" in message
        assert len(broker.rows()) == 70

    def test_a_full_disk_is_no_reason_to_give_up(self) -> None:
        filesystem = SimFileSystem(Random(1))
        broker = CleaningBroker(filesystem, "/data")
        broker.write(60)
        filesystem.capacity_bytes = 0
        broker.clean()
        assert not broker.cleaner.uncleanable
        assert not broker.failures
        filesystem.capacity_bytes = None
        broker.clock.advance(BACKOFF_MS)
        broker.clean()
        assert len(broker.cleaned) == 1

    def test_a_failed_disk_is_the_managers_business(self) -> None:
        filesystem = SimFileSystem(Random(1))
        broker = CleaningBroker(filesystem, "/data")
        broker.write(60)
        broker.cleaner.tick()
        filesystem.fail_directory("/data")
        broker.settle()
        assert len(broker.failures) == 1
        assert not broker.cleaner.is_busy(TABLE)


class FailingRenames:
    """A disk on which renames of some files fail once."""

    def __init__(self, suffix: str, number: int) -> None:
        self._suffix = suffix
        self._number = number

    def __call__(self, operation: str, path: str, size: int) -> None:
        if operation == "rename" and path.endswith(self._suffix) and self._number:
            number, self._number = self._number, 0
            raise OSError(number, "rename failed", path)


class TestSwapsThatFail:
    @pytest.fixture
    def sim(self) -> SimFileSystem:
        return SimFileSystem(Random(1))

    @pytest.fixture
    def broker(self, sim: SimFileSystem) -> CleaningBroker:
        broker = CleaningBroker(sim, "/data")
        broker.write(60)
        return broker

    def test_before_it_counts_nothing_has_happened(
        self, sim: SimFileSystem, broker: CleaningBroker
    ) -> None:
        sim.before_operation = FailingRenames(".index.cleaned", errno.ENOSPC)
        broker.cleaner.tick()
        broker.settle()
        assert len(broker.rows()) == 60
        assert not any(
            ".cleaned" in name or ".swap" in name for name in names_in(sim, "/data/table-0")
        )
        broker.clock.advance(BACKOFF_MS)
        broker.clean()
        assert len(broker.cleaned) == 1

    def test_after_it_counts_the_new_segment_is_the_log(
        self, sim: SimFileSystem, broker: CleaningBroker
    ) -> None:
        sim.before_operation = FailingRenames(".log", errno.ENOSPC)
        broker.cleaner.tick()
        broker.settle()
        assert len(broker.rows()) < 60
        rows = broker.rows()
        after = restarted(broker, sim.after_kill())
        log = after.start().get(TABLE)
        assert log is not None
        assert rows[-1][0] == log.log_end_offset - 1 == 59
        offsets = [
            record.offset
            for segment in log.segments
            for _, batch in segment.batches()
            for record in batch.records()
        ]
        assert offsets == [offset for offset, _ in rows]

    def test_a_failed_disk_takes_the_directory_offline(
        self, sim: SimFileSystem, broker: CleaningBroker
    ) -> None:
        sim.before_operation = FailingRenames(".log.cleaned", errno.EIO)
        broker.cleaner.tick()
        broker.settle()
        assert len(broker.failures) == 1


def test_segments_that_have_gone_meanwhile_end_the_pass(broker: CleaningBroker) -> None:
    broker.write(60)
    broker.cleaner.tick()
    broker.events.popleft()()
    log = broker.log()
    log.raise_log_start_offset(30)
    gone = log.delete_old_segments(broker.clock.wall_ms())
    assert gone
    broker.settle()
    assert not broker.cleaner.is_busy(TABLE)
    assert not broker.cleaned
    names = names_in(broker.filesystem, log.directory)
    assert not any(name.endswith(".cleaned") for name in names)
