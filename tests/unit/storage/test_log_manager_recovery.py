"""Starts after a crash: every log is recovered, in parallel, and nothing committed is lost."""

from __future__ import annotations

import errno
import logging
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.storage.checkpoint import LEADER_EPOCH_FILE, RECOVERY_POINT_FILE, read_offsets
from millstream.storage.filesystem import write_atomically
from millstream.storage.manager.log_recovery import LogRecovery, RecoveryProgress
from millstream.storage.manager.meta_properties import (
    CLEAN_SHUTDOWN_FILE,
)
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import TopicPartition
from tests.unit.storage.manager_harness import (
    ORDERS,
    Broker,
    append,
    restarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.manager.log_slot import LogSlot


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> Broker:
    """Two directories, formatted."""
    return Broker(filesystem, (f"{directory}/one", f"{directory}/two")).format()


def touched_logs(broker: Broker) -> list[TopicPartition]:
    """The partitions whose logs are open."""
    return [
        partition
        for directory in broker.manager.directories
        for partition, slot in directory.logs.items()
        if slot.log is not None
    ]


def test_after_a_crash_every_log_is_recovered_with_progress(broker: Broker) -> None:
    manager = broker.start()
    for number in range(4):
        append(manager.get_or_create(TopicPartition("t", number), is_new=True), 9)
    manager.abandon()
    again = restarted(broker)

    again.start()

    assert len(touched_logs(again)) == 4
    last = again.progress[-1]
    assert (last.logs_done, last.logs_total) == (4, 4)
    assert last.bytes_done == last.bytes_total > 0
    assert [each.logs_done for each in again.progress] == sorted(
        each.logs_done for each in again.progress
    )
    assert again.manager.previous_broker_epoch is None
    assert str(RecoveryProgress(1, 2, 3 << 20, 4 << 20)) == "1 of 2 logs, 3 of 4 MiB"


def test_progress_is_logged_at_most_once_a_second(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    manager = broker.start()
    for number in range(5):
        append(manager.get_or_create(TopicPartition("t", number), is_new=True), 3)
    manager.abandon()
    again = restarted(broker)
    seen = again.progress

    def on_progress(progress: RecoveryProgress) -> None:
        seen.append(progress)
        again.clock.advance(400)

    again.manager._startup._on_progress = on_progress
    caplog.set_level(logging.INFO, "millstream.storage.manager.log_recovery")

    again.start()

    lines = [each for each in caplog.messages if each.startswith("recovering: ")]
    assert 0 < len(lines) <= len(seen) * 400 // 1000


def test_recovery_runs_on_the_threads_of_each_directory(broker: Broker) -> None:
    manager = broker.start()
    for number in range(6):
        append(manager.get_or_create(TopicPartition("t", number), is_new=True), 5)
    slots = {each: list(each.logs.values()) for each in manager.directories}
    results: dict[LogSlot, UnifiedLog | KafkaStorageError] = {}
    recovery = LogRecovery(
        load=broker.manager._registry.load,
        on_result=results.__setitem__,
        on_progress=lambda _: None,
        clock=broker.clock,
    )
    for directory in slots:
        for slot in slots[directory]:
            assert slot.log is not None
            slot.log.close()

    recovery.run(slots, ThreadPoolExecutor, 2)

    assert len(results) == 6
    assert recovery.progress.logs_done == 6


def test_recovery_is_the_same_twice(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 9)
    manager.abandon()
    second = restarted(broker)
    second.start()
    second.manager.abandon()

    log = restarted(broker).start().get_or_create(ORDERS)

    assert log.log_end_offset == 9


def test_a_log_that_cannot_be_loaded_stays_out_alone_and_keeps_the_directory_unclean(
    broker: Broker,
) -> None:
    manager = broker.start()
    bad = TopicPartition("bad", 0)
    append(manager.get_or_create(ORDERS, is_new=True), 2)
    directory_id = manager.directory_of(ORDERS).directory_id
    log = manager.get_or_create(bad, is_new=True, directory_id=directory_id)
    append(log, 2)
    manager.abandon()
    write_atomically(broker.filesystem, f"{log.directory}/{LEADER_EPOCH_FILE}", b"nonsense")
    again = restarted(broker)

    again.start()

    assert again.manager.get_or_create(ORDERS).log_end_offset == 2
    with pytest.raises(KafkaStorageError, match=r"leader-epoch-checkpoint"):
        again.manager.get(bad)
    assert again.failures == []
    again.pass_time(400_000)  # Retention passes it by.
    assert list(again.manager.stop()) == [again.paths[0]]
    assert not broker.filesystem.exists(f"{broker.paths[0]}/{CLEAN_SHUTDOWN_FILE}")
    assert broker.filesystem.exists(f"{broker.paths[1]}/{CLEAN_SHUTDOWN_FILE}")


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_a_damaged_checkpoint_costs_work_but_no_records(broker: Broker, name: str) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 9)
    manager.stop()
    write_atomically(broker.filesystem, f"{broker.paths[0]}/{name}", b"0\n7\nnonsense")

    log = restarted(broker).start().get_or_create(ORDERS)

    assert log.log_end_offset == 9


def test_an_error_of_our_own_while_a_log_is_loaded_keeps_that_log_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 2)
    append(manager.get_or_create(TopicPartition("other", 0), is_new=True), 2)
    manager.abandon()
    again = restarted(broker)
    load = again.manager._registry.load

    def stumble(slot: LogSlot, progress: Callable[[int, int], None] | None = None) -> UnifiedLog:
        if slot.partition == ORDERS:
            raise ZeroDivisionError
        return load(slot, progress)

    monkeypatch.setattr(again.manager._registry, "load", stumble)
    again.start()

    with pytest.raises(KafkaStorageError, match="orders-0 cannot be loaded"):
        again.manager.get(ORDERS)
    assert again.manager.get(TopicPartition("other", 0)) is not None


@pytest.mark.parametrize("seed", range(25))
def test_what_was_committed_is_there_after_a_power_loss(seed: int) -> None:
    random = Random(seed)
    filesystem: FileSystem = SimFileSystem(random)
    broker = Broker(filesystem, ("/data/one", "/data/two")).format()
    committed: dict[TopicPartition, int] = {}
    for _ in range(3):
        manager = broker.start()
        for partition, offset in committed.items():
            log = manager.get(partition)
            assert log is not None
            assert log.log_end_offset >= offset
        for _ in range(30):
            partition = TopicPartition("t", random.randrange(4))
            log = manager.get_or_create(partition, is_new=True)
            append(log, random.randint(1, 4))
            answers = broker.commit(log)
            if random.random() < 0.5:
                broker.settle()
            if answers == [None]:
                committed[partition] = log.recovery_point
            if random.random() < 0.1:
                broker.pass_time(61_000)
        if random.random() < 0.3:
            assert manager.stop() == {}
        assert isinstance(broker.filesystem, SimFileSystem)
        broker = restarted(broker, broker.filesystem.after_power_loss())


def test_a_recovery_point_beyond_the_end_that_was_found_is_withdrawn_at_once(
    broker: Broker,
) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    end = append(log, 3)
    broker.commit(log)
    broker.settle()
    broker.pass_time(60_000)
    [path] = [each for each in broker.paths if read_recovery_point(broker, each) == end]
    manager.abandon()
    lose_the_end_of(broker.filesystem, f"{path}/{ORDERS}")
    again = restarted(broker)

    again.start()

    # New records will have these offsets; after another crash nobody may vouch for them.
    found = again.manager.get(ORDERS)
    assert found is not None
    assert found.log_end_offset == end - 1
    assert read_recovery_point(again, path) == end - 1


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_log_whose_recovery_point_cannot_be_withdrawn_is_not_served(is_clean: bool) -> None:
    filesystem, directory = SimFileSystem(Random(1)), "/data"
    filesystem.make_directory(directory)
    broker = Broker(filesystem, (f"{directory}/one",)).format()
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 3)
    manager.stop(1)
    lose_the_end_of(filesystem, f"{directory}/one/{ORDERS}")
    if not is_clean:
        filesystem.remove(f"{directory}/one/{CLEAN_SHUTDOWN_FILE}")
    again = restarted(broker)

    def refuse(operation: str, path: str, size: int) -> None:
        if operation == "write" and RECOVERY_POINT_FILE in path:
            raise OSError(errno.ENOSPC, "no space left", path)

    filesystem.before_operation = refuse
    again.start()

    with pytest.raises(KafkaStorageError, match="recovery point"):
        again.manager.get(ORDERS)


def read_recovery_point(broker: Broker, path: str) -> int | None:
    return read_offsets(broker.filesystem, f"{path}/{RECOVERY_POINT_FILE}").get(ORDERS)


def lose_the_end_of(filesystem: FileSystem, log_directory: str) -> None:
    """Cut off the last byte of a log, as a disk may that was not told to sync."""
    file = filesystem.open(f"{log_directory}/{'0' * 20}.log", create=False)
    file.truncate(file.size() - 1)
    file.close()
