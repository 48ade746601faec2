"""What happens from time to time, exactly when it is due, and never too much at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.storage.background import Chores
from millstream.storage.checkpoint import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
)
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.storage.manager.log_directory import LogDirectory
from millstream.storage.manager.log_tasks import Sweep
from millstream.storage.manager.offset_checkpoint import OffsetCheckpoint
from millstream.types import INT64_MAX, TopicPartition
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.manager_harness import ORDERS, Broker, append, names_in, restarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.filesystem import FileSystem

DELAY_MS = LogManagerConfig().initial_task_delay_ms


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> Broker:
    """One directory, in service."""
    broker = Broker(filesystem, (f"{directory}/one",)).format()
    broker.start()
    return broker


def test_nothing_is_due_before_the_initial_delay(broker: Broker) -> None:
    assert broker.manager.next_deadline_ms() == DELAY_MS
    before = names_in(broker.filesystem, broker.paths[0])
    append(broker.manager.get_or_create(ORDERS, is_new=True))

    broker.pass_time(DELAY_MS - 1)

    assert names_in(broker.filesystem, broker.paths[0]) - before == {"orders-0"}


def test_the_checkpoints_are_written_when_they_are_due(broker: Broker) -> None:
    log = broker.manager.get_or_create(ORDERS, is_new=True)
    append(log, 8)
    log.flush()
    log.raise_log_start_offset(7)

    broker.pass_time(DELAY_MS)

    path = broker.paths[0]
    assert read_offsets(broker.filesystem, f"{path}/{RECOVERY_POINT_FILE}") == {ORDERS: 8}
    assert read_offsets(broker.filesystem, f"{path}/{HIGH_WATERMARK_FILE}") == {ORDERS: 8}
    assert read_offsets(broker.filesystem, f"{path}/{LOG_START_FILE}") == {ORDERS: 7}
    append(log)
    broker.pass_time(4_999)
    assert read_offsets(broker.filesystem, f"{path}/{HIGH_WATERMARK_FILE}") == {ORDERS: 8}
    broker.pass_time(1)
    assert read_offsets(broker.filesystem, f"{path}/{HIGH_WATERMARK_FILE}") == {ORDERS: 9}


def test_a_table_that_has_not_changed_is_not_written_again(broker: Broker) -> None:
    append(broker.manager.get_or_create(ORDERS, is_new=True), 2)
    broker.pass_time(DELAY_MS)
    broker.filesystem.remove(f"{broker.paths[0]}/{HIGH_WATERMARK_FILE}")

    broker.pass_time(100_000)

    assert HIGH_WATERMARK_FILE not in names_in(broker.filesystem, broker.paths[0])


def test_retention_by_time_deletes_segments_and_later_their_files(broker: Broker) -> None:
    broker.configs["orders"] = LogConfig(
        internal_segment_bytes=100, retention_ms=100_000, file_delete_delay_ms=1_000
    )
    log = broker.manager.get_or_create(ORDERS, is_new=True)
    append(log, 3, now_ms=NOW_MS)
    broker.clock.advance(90_000)
    append(log, 2, now_ms=broker.clock.wall_ms())
    broker.clock.advance(20_000)

    broker.manager.tick()
    assert log.log_start_offset == 3
    deleted = [each for each in names_in(broker.filesystem, log.directory) if "deleted" in each]
    assert deleted
    broker.pass_time(1_001)

    names = names_in(broker.filesystem, log.directory)
    assert not [each for each in names if "deleted" in each]
    assert "00000000000000000003.log" in names


def test_retention_by_the_log_start_works_for_every_policy(broker: Broker) -> None:
    broker.configs["orders"] = LogConfig(internal_segment_bytes=100, cleanup_policy=("compact",))
    log = broker.manager.get_or_create(ORDERS, is_new=True)
    append(log, 5)
    log.raise_log_start_offset(3)

    broker.pass_time(DELAY_MS)

    assert log.segments.first.base_offset == 3


def test_old_segments_of_a_deleted_log_trouble_nobody(broker: Broker) -> None:
    broker.configs["orders"] = LogConfig(
        internal_segment_bytes=100, retention_bytes=100, file_delete_delay_ms=5_000
    )
    append(broker.manager.get_or_create(ORDERS, is_new=True), 5)
    broker.pass_time(DELAY_MS)
    broker.manager.delete(ORDERS)

    broker.pass_time(10_000)

    assert broker.failures == []
    assert not any("orders" in each for each in names_in(broker.filesystem, broker.paths[0]))


def test_a_pass_over_many_logs_is_cut_into_slices(broker: Broker) -> None:
    for number in range(40):
        append(broker.manager.get_or_create(TopicPartition("t", number), is_new=True))
    broker.manager.stop()
    again = restarted(broker)
    again.start()
    again.clock.advance(DELAY_MS)

    again.manager.tick()
    opened = [slot for slot in again.manager.directories[0].logs.values() if slot.log is not None]

    assert len(opened) == 16
    assert again.manager.next_deadline_ms() == again.clock.monotonic_ms()
    again.pass_time(0)
    slots = again.manager.directories[0].logs.values()
    assert all(slot.log is not None for slot in slots)


def test_a_log_that_goes_during_a_pass_is_left_out(broker: Broker) -> None:
    partitions = [TopicPartition("t", number) for number in range(20)]
    for partition in partitions:
        append(broker.manager.get_or_create(partition, is_new=True))
    broker.clock.advance(DELAY_MS)
    broker.manager.tick()

    for partition in partitions:
        broker.manager.delete(partition)
    broker.pass_time(10_000)

    assert broker.manager.partitions == []
    assert broker.failures == []


def test_an_idle_log_gives_its_descriptors_back(broker: Broker) -> None:
    log = broker.manager.get_or_create(ORDERS, is_new=True)
    append(log)
    released = []
    segment = log.segments.active
    file = segment.open_file()

    broker.pass_time(DELAY_MS)
    released.append(segment.file is not file)
    broker.pass_time(300_000)
    released.append(segment.file is not file)

    assert released == [False, True]
    assert append(log) == 2


def test_idle_producers_are_forgotten(broker: Broker) -> None:
    log = broker.manager.get_or_create(ORDERS, is_new=True)
    data = batch_bytes(0, pid=5, epoch=0, sequence=0)
    log.append_as_leader(bytearray(data), 1, NOW_MS)
    assert list(log.producers.producers) == [5]

    broker.pass_time(86_400_000 + 600_000)

    assert list(log.producers.producers) == []


def test_flush_ms_syncs_a_log_in_time_and_only_then(broker: Broker) -> None:
    broker.configs["orders"] = replace(broker.defaults, flush_ms=1_000)
    log = broker.manager.get_or_create(ORDERS, is_new=True)
    append(log, now_ms=broker.clock.wall_ms())

    broker.pass_time(999)
    assert log.recovery_point == 0
    broker.pass_time(1_001)

    assert log.recovery_point == 1
    broker.configs["orders"] = broker.defaults
    broker.manager.update_topic_config("orders", broker.defaults)
    append(log, now_ms=broker.clock.wall_ms())
    broker.pass_time(100_000)
    assert log.recovery_point == 1


def test_flush_syncs_although_nobody_waits(broker: Broker) -> None:
    broker.configs["orders"] = replace(broker.defaults, flush_messages=2)
    log = broker.manager.get_or_create(ORDERS, is_new=True)
    info = log.append_as_leader(bytearray(batch_bytes(0, records=2)), 1, NOW_MS)

    assert info.wants_flush
    broker.manager.flush(log)
    broker.settle()

    assert log.recovery_point == 2


def test_commits_of_several_logs_share_a_round(broker: Broker) -> None:
    logs = [
        broker.manager.get_or_create(TopicPartition("t", number), is_new=True)
        for number in range(3)
    ]
    for log in logs:
        append(log)

    answers = [broker.commit(log) for log in logs]
    broker.settle()

    assert answers == [[None]] * 3
    assert broker.manager.directories[0].commit.round_count == 1


def test_new_intervals_count_at_once(broker: Broker) -> None:
    broker.pass_time(DELAY_MS)
    append(broker.manager.get_or_create(ORDERS, is_new=True))
    config = LogManagerConfig(log_dirs=broker.paths, high_watermark_checkpoint_interval_ms=100)

    broker.manager.update_config(config)
    broker.pass_time(100)

    path = f"{broker.paths[0]}/{HIGH_WATERMARK_FILE}"
    assert read_offsets(broker.filesystem, path) == {ORDERS: 1}


def test_an_idle_broker_makes_no_tables(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def count_tables(name: str) -> None:
        make = getattr(LogDirectory, name)

        def counted(directory: LogDirectory) -> object:
            made.append(name)
            return make(directory)

        monkeypatch.setattr(LogDirectory, name, counted)

    log = broker.manager.get_or_create(ORDERS, is_new=True)
    append(log)
    broker.pass_time(DELAY_MS + 120_000)
    tables = ("recovery_point_table", "log_start_table", "high_watermark_table")
    for name in tables:
        count_tables(name)

    broker.pass_time(120_000)
    assert made == []

    append(log)
    log.flush()
    log.raise_log_start_offset(1)
    broker.pass_time(120_000)
    assert sorted(made) == sorted(tables)
    path = f"{broker.paths[0]}/{LOG_START_FILE}"
    assert read_offsets(broker.filesystem, path) == {ORDERS: 1}


def test_what_was_seen_counts_only_while_it_is_what_is_written(
    filesystem: FileSystem, directory: str
) -> None:
    checkpoint = OffsetCheckpoint(filesystem, f"{directory}/c")
    logs = [object(), object()]
    assert not checkpoint.is_known([*logs], [1, None])
    assert checkpoint.is_known([*logs], [1, None])

    assert not checkpoint.is_known([*logs], [1, 2])
    assert not checkpoint.is_known([object(), logs[1]], [1, 2])
    checkpoint.write({ORDERS: 1})
    assert not checkpoint.is_known([object(), logs[1]], [1, 2])


def test_what_could_not_be_written_is_tried_again(filesystem: FileSystem, directory: str) -> None:
    checkpoint = OffsetCheckpoint(filesystem, f"{directory}/no/c")
    write = checkpoint.take({ORDERS: 1})
    assert write is not None
    checkpoint.is_known([], [1])

    with pytest.raises(OSError, match="/no"):
        write()

    assert not checkpoint.is_known([], [1])


def test_without_a_start_nothing_is_ever_due(filesystem: FileSystem, directory: str) -> None:
    broker = Broker(filesystem, (directory,))

    broker.manager.update_config(LogManagerConfig(log_dirs=(directory,)))
    broker.manager.tick()

    assert broker.manager.next_deadline_ms() is None


def test_a_sweep_keeps_its_rhythm_when_its_interval_changes() -> None:
    visited: list[int] = []
    sweep = Sweep(lambda: range(20), visited.append, 100, 1_000)
    sweep.tick(999)
    assert visited == []
    sweep.tick(1_000)
    sweep.change_interval(50, 1_000)
    assert (len(visited), sweep.deadline_ms) == (16, 1_000)

    sweep.tick(1_001)
    assert (len(visited), sweep.deadline_ms) == (20, 1_050)
    sweep.change_interval(INT64_MAX, 1_010)

    assert sweep.deadline_ms == INT64_MAX


def test_a_chore_that_waits_is_replaced_by_a_later_one_of_its_name() -> None:
    queued: list[Callable[[], None]] = []
    done: list[str] = []
    chores = Chores(run=queued.append, post=lambda work: work(), on_error=lambda _: None)

    chores.add("a", lambda: done.append("first"))
    chores.add("b", lambda: done.append("old"))
    chores.add("b", lambda: done.append("new"))
    while queued:
        queued.pop(0)()

    assert done == ["first", "new"]


def test_a_chore_that_has_not_begun_when_its_directory_closes_is_dropped() -> None:
    queued: list[Callable[[], None]] = []
    done: list[str] = []
    chores = Chores(run=queued.append, post=lambda work: work(), on_error=lambda _: None)
    chores.add("a", lambda: done.append("a"))
    chores.add("b", lambda: done.append("b"))

    chores.close()
    chores.add("c", lambda: done.append("c"))
    while queued:
        queued.pop(0)()

    assert done == []
