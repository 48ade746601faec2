"""Start and stop: owners, locks, markers, recovery, and what a crash between steps leaves."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InconsistentClusterId, KafkaStorageError
from millstream.storage.checkpoint import (
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from millstream.storage.filesystem import write_atomically
from millstream.storage.log_directory import format_directory
from millstream.storage.log_recovery import LogRecovery, RecoveryProgress
from millstream.storage.meta_properties import (
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import TopicPartition
from tests.unit.storage.manager_harness import (
    CLUSTER_ID,
    NODE_ID,
    ORDERS,
    Broker,
    append,
    names_in,
    restarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log_slot import LogSlot
    from millstream.storage.unified_log import UnifiedLog


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


# Owners.


def test_formatting_gives_each_directory_an_id_once(broker: Broker) -> None:
    metas = [read_meta_properties(broker.filesystem, path) for path in broker.paths]

    assert [(meta.cluster_id, meta.node_id) for meta in metas if meta] == [
        (CLUSTER_ID, NODE_ID)
    ] * 2
    assert len({meta.directory_id for meta in metas if meta}) == 2
    with pytest.raises(KafkaStorageError, match="is formatted already, for node 1 of cluster"):
        broker.format()


def test_a_directory_that_was_never_formatted_is_refused(
    filesystem: FileSystem, directory: str
) -> None:
    with pytest.raises(KafkaStorageError, match=r"has no meta\.properties: format it first"):
        Broker(filesystem, (directory,)).start()

    format_directory(filesystem, directory, CLUSTER_ID, NODE_ID, Random(1))  # It is not locked.


def test_a_directory_of_another_cluster_is_refused(broker: Broker) -> None:
    meta = read_meta_properties(broker.filesystem, broker.paths[1])
    assert meta is not None
    other = MetaProperties("another-cluster", NODE_ID, meta.directory_id)
    write_meta_properties(broker.filesystem, broker.paths[1], other)

    with pytest.raises(InconsistentClusterId, match="belongs to cluster another-cluster"):
        broker.start()


def test_a_directory_of_older_software_gets_an_id(broker: Broker) -> None:
    old = f"version=0\nbroker.id={NODE_ID}\n".encode()
    write_atomically(broker.filesystem, f"{broker.paths[0]}/{META_PROPERTIES_FILE}", old)

    manager = broker.start()

    meta = read_meta_properties(broker.filesystem, broker.paths[0])
    assert meta is not None
    assert meta == MetaProperties(CLUSTER_ID, NODE_ID, manager.directories[0].directory_id)
    assert meta.directory_id is not None


def test_directories_in_use_are_refused_until_they_are_free(broker: Broker) -> None:
    broker.start()

    with pytest.raises(KafkaStorageError, match="one is in use by"):
        restarted(broker).start()
    broker.manager.stop()

    restarted(broker).start()


# A clean stop and what follows.


def test_after_a_clean_stop_logs_are_opened_when_they_are_asked_for(broker: Broker) -> None:
    manager = broker.start()
    for number in range(4):
        append(manager.get_or_create(TopicPartition("t", number), is_new=True), number)
    assert manager.stop(broker_epoch=5) == {}
    again = restarted(broker)

    again.start()

    assert touched_logs(again) == []
    assert again.manager.previous_broker_epoch == 5
    assert len(again.manager.partitions) == 4
    assert again.progress == []
    log = again.manager.get(TopicPartition("t", 3))
    assert log is not None
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (3, 3, 3)
    assert touched_logs(again) == [TopicPartition("t", 3)]


def test_the_marker_is_there_only_while_nobody_uses_the_directory(broker: Broker) -> None:
    marker = f"{broker.paths[0]}/{CLEAN_SHUTDOWN_FILE}"
    broker.start()
    assert not broker.filesystem.exists(marker)

    broker.manager.stop()
    assert broker.filesystem.exists(marker)

    restarted(broker).start()
    assert not broker.filesystem.exists(marker)


def test_a_log_that_was_never_opened_keeps_its_checkpoints(broker: Broker) -> None:
    manager = broker.start()
    append(manager.get_or_create(ORDERS, is_new=True), 6)
    manager.stop()
    second = restarted(broker)
    second.start()

    second.manager.stop()

    path = broker.paths[0]
    assert read_offsets(broker.filesystem, f"{path}/{RECOVERY_POINT_FILE}") == {ORDERS: 6}
    assert read_offsets(broker.filesystem, f"{path}/{HIGH_WATERMARK_FILE}") == {ORDERS: 6}


def test_a_log_start_is_kept_over_a_clean_stop(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log, 3)
    log.raise_log_start_offset(2)
    manager.stop()

    log = restarted(broker).start().get_or_create(ORDERS)

    assert log.log_start_offset == 2


def test_waiting_commits_hear_of_the_stop(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(ORDERS, is_new=True)
    append(log)
    answers = broker.commit(log)

    manager.stop()
    broker.settle()

    assert [type(answer) for answer in answers] == [KafkaStorageError]


# An unclean one.


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
    caplog.set_level(logging.INFO, "millstream.storage.log_recovery")

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


# What else is in a directory.


def test_foreign_files_and_directories_are_left_alone(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    path = broker.paths[0]
    for name in ("lost+found", "no-number-x", "t-0.00000000000000000000000000000000-stray"):
        broker.filesystem.make_directory(f"{path}/{name}")
    write_atomically(broker.filesystem, f"{path}/notes.txt", b"mine")
    write_atomically(broker.filesystem, f"{path}/t-1", b"a file, no log")
    broker.filesystem.make_directory(f"{path}/__cluster_metadata-0")
    before = names_in(broker.filesystem, path)
    caplog.set_level(logging.INFO, "millstream.storage")

    manager = broker.start()

    assert manager.partitions == []
    assert names_in(broker.filesystem, path) >= before
    text = "\n".join(caplog.messages)
    for name in ("lost+found", "no-number-x", "notes.txt", "t-1"):
        assert f"{path}/{name} is not a log and is left alone" in text
    assert "is a stray log and is not used" in text
    assert "meta.properties" not in text


def test_of_two_logs_of_a_partition_the_longer_one_is_kept_and_none_removed(
    broker: Broker,
) -> None:
    manager = broker.start()
    first = manager.directories[0].directory_id
    append(manager.get_or_create(ORDERS, is_new=True, directory_id=first), 3)
    manager.stop()
    alone = Broker(broker.filesystem, broker.paths[1:], broker.clock)
    append(alone.start().get_or_create(ORDERS, is_new=True), 5)
    alone.manager.stop()
    both = restarted(broker)

    log = both.start().get_or_create(ORDERS)

    assert log.log_end_offset == 5
    assert both.manager.directory_of(ORDERS).path == broker.paths[1]
    assert any(name.endswith("-stray") for name in names_in(broker.filesystem, broker.paths[0]))
    both.manager.stop()
    assert restarted(both).start().get_or_create(ORDERS).log_end_offset == 5


# Power losses.


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
