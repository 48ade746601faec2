"""Logs that move from one directory to another, and what the directories say about themselves."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument, KafkaStorageError, LogDirNotFound
from millstream.storage.checkpoint import LEADER_EPOCH_FILE
from millstream.storage.cleaner.cleaning_control import NoCleaning
from millstream.storage.filesystem import write_atomically
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import TopicPartition
from tests.unit.storage.manager_harness import (
    ORDERS,
    TOPIC_ID,
    Broker,
    append,
    names_in,
    restarted,
)

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> Broker:
    """Three directories in service, the first with twenty records of a log."""
    paths = tuple(f"{directory}/{name}" for name in ("one", "two", "three"))
    broker = Broker(filesystem, paths).format()
    append(broker.start().get_or_create(ORDERS, TOPIC_ID, is_new=True), 20)
    return broker


def move(broker: Broker, partition: TopicPartition, path: str) -> None:
    """From the beginning to the end."""
    moves = broker.manager.moves
    moves.begin(partition, path)
    while moves.advance(partition, 200):
        pass
    moves.finish(partition)


def test_a_log_moves_with_its_records_and_its_topic_id(broker: Broker) -> None:
    manager = broker.manager
    log = manager.get_or_create(ORDERS)
    log.raise_log_start_offset(7)
    manager.set_cleaner_offset(ORDERS, 9)

    move(broker, ORDERS, broker.paths[1])

    moved = manager.get_or_create(ORDERS, TOPIC_ID)
    assert moved is not log
    assert log.is_closed
    assert moved.directory == f"{broker.paths[1]}/orders-0"
    assert (moved.log_start_offset, moved.log_end_offset, moved.high_watermark) == (7, 20, 20)
    assert moved.recovery_point == 20
    assert moved.epochs.latest_epoch == 1
    assert manager.cleaner_offset(ORDERS) == 9
    assert manager.moves.get(ORDERS) is None
    append(moved)
    assert manager.stop() == {}
    again = restarted(broker).start()
    assert again.get_or_create(ORDERS).log_end_offset == 21
    assert again.directory_of(ORDERS).path == broker.paths[1]


def test_a_future_log_is_not_finished_before_it_has_everything(broker: Broker) -> None:
    moves = broker.manager.moves
    future = moves.begin(ORDERS, broker.paths[1])
    assert moves.get(ORDERS) is future
    assert moves.begin(ORDERS, broker.paths[1]) is future

    with pytest.raises(InvalidArgument, match="it cannot take its place yet"):
        moves.finish(ORDERS)

    assert moves.advance(ORDERS, 1) == 19
    lag = broker.manager.describe()[1].logs[0]
    assert (lag.is_future, lag.offset_lag) == (True, 19)


def test_a_move_survives_a_restart(broker: Broker) -> None:
    moves = broker.manager.moves
    moves.begin(ORDERS, broker.paths[1])
    moves.advance(ORDERS, 500)
    broker.manager.stop()
    again = restarted(broker)
    again.start()

    future = again.manager.moves.get(ORDERS)

    assert future is not None
    assert 0 < future.log_end_offset < 20
    assert again.manager.directory_of(ORDERS).path == broker.paths[0]
    move(again, ORDERS, broker.paths[1])
    assert again.manager.directory_of(ORDERS).path == broker.paths[1]


def test_a_move_elsewhere_gives_the_first_one_up(broker: Broker) -> None:
    moves = broker.manager.moves
    moves.begin(ORDERS, broker.paths[1])

    future = moves.begin(ORDERS, broker.paths[2])

    assert future is not None
    assert future.directory.startswith(broker.paths[2])
    assert any("-delete" in each for each in names_in(broker.filesystem, broker.paths[1]))
    assert moves.begin(ORDERS, broker.paths[0]) is None  # It is there: nothing to do.
    assert moves.get(ORDERS) is None


def test_a_move_can_be_cancelled(broker: Broker) -> None:
    moves = broker.manager.moves
    moves.begin(ORDERS, broker.paths[1])

    assert moves.cancel(ORDERS)

    assert not moves.cancel(ORDERS)
    with pytest.raises(InvalidArgument, match="orders-0 is not being moved"):
        moves.advance(ORDERS, 1)


def test_a_move_to_an_unknown_directory_is_refused(broker: Broker) -> None:
    with pytest.raises(LogDirNotFound, match="none of this broker's"):
        broker.manager.moves.begin(ORDERS, "/elsewhere")


def test_a_deleted_log_takes_its_future_with_it(broker: Broker) -> None:
    broker.manager.moves.begin(ORDERS, broker.paths[1])

    broker.manager.delete(ORDERS)
    broker.pass_time(2_000)

    left = [each for path in broker.paths for each in names_in(broker.filesystem, path)]
    assert not any("orders" in each for each in left)


def test_a_future_log_is_cut_with_the_log_it_follows(broker: Broker) -> None:
    manager = broker.manager
    future = manager.moves.begin(ORDERS, broker.paths[1])
    assert future is not None
    while manager.moves.advance(ORDERS, 1_000):
        pass

    manager.truncate_to(ORDERS, 5)
    assert future.log_end_offset == 5
    manager.truncate_fully_and_start_at(ORDERS, 50)
    assert future.log_end_offset == 50
    append(manager.get_or_create(ORDERS), 2)

    move(broker, ORDERS, broker.paths[1])
    assert manager.get_or_create(ORDERS).log_end_offset == 52


def test_a_future_log_whose_source_begins_later_now_begins_there_too(broker: Broker) -> None:
    manager = broker.manager
    future = manager.moves.begin(ORDERS, broker.paths[1])
    assert future is not None
    manager.moves.advance(ORDERS, 100)

    manager.get_or_create(ORDERS).raise_log_start_offset(15)
    while manager.moves.advance(ORDERS, 1_000):
        pass

    assert (future.log_start_offset, future.log_end_offset) == (15, 20)


def test_a_future_log_in_the_same_directory_as_the_log_is_passed_over(broker: Broker) -> None:
    name = "orders-0.0123456789abcdef0123456789abcdef-future"
    broker.manager.stop()
    broker.filesystem.make_directory(f"{broker.paths[0]}/{name}")
    again = restarted(broker)

    manager = again.start()

    assert manager.moves.get(ORDERS) is None
    assert manager.get_or_create(ORDERS).log_end_offset == 20
    assert name in names_in(broker.filesystem, broker.paths[0])


# Faults.


class CountingCleaner(NoCleaning):
    """Knows how many pauses are open."""

    pauses = 0

    def pause(self, partition: TopicPartition) -> None:
        self.pauses += 1

    def resume(self, partition: TopicPartition) -> None:
        self.pauses -= 1


def simulated() -> tuple[SimFileSystem, Broker]:
    disk = SimFileSystem(Random(1))
    broker = Broker(disk, ("/data/one", "/data/two")).format()
    append(broker.start().get_or_create(ORDERS, is_new=True), 20)
    return disk, broker


def fail_renames_in(disk: SimFileSystem, path: str) -> None:
    def hook(operation: str, target: str, _: int) -> None:
        if operation == "rename" and target.startswith(f"{path}/orders"):
            raise OSError(errno.EIO, "injected", target)

    disk.before_operation = hook


def test_a_swap_whose_new_directory_fails_leaves_the_old_log_in_service() -> None:
    disk, broker = simulated()
    broker.manager.cleaner = cleaner = CountingCleaner()
    broker.manager.moves.begin(ORDERS, "/data/two")
    while broker.manager.moves.advance(ORDERS, 1_000):
        pass
    fail_renames_in(disk, "/data/two")

    with pytest.raises(KafkaStorageError):
        broker.manager.moves.finish(ORDERS)

    assert cleaner.pauses == 0
    assert [failure.path for failure in broker.failures] == ["/data/two"]
    assert append(broker.manager.get_or_create(ORDERS)) == 21


def test_a_copy_that_fails_takes_the_directory_of_the_copy_offline() -> None:
    disk, broker = simulated()
    broker.manager.moves.begin(ORDERS, "/data/two")
    disk.fail_directory("/data/two")

    with pytest.raises(KafkaStorageError):
        broker.manager.moves.advance(ORDERS, 1_000)

    assert [failure.path for failure in broker.failures] == ["/data/two"]
    assert broker.manager.get(ORDERS) is not None


def test_a_swap_whose_old_directory_fails_leaves_the_new_log_in_service() -> None:
    disk, broker = simulated()
    fail_renames_in(disk, "/data/one")

    move(broker, ORDERS, "/data/two")

    assert [failure.path for failure in broker.failures] == ["/data/one"]
    assert append(broker.manager.get_or_create(ORDERS)) == 21


def test_a_swap_that_a_crash_interrupts_loses_nothing() -> None:
    disk, broker = simulated()
    fail_renames_in(disk, "/data/one")
    move(broker, ORDERS, "/data/two")
    append(broker.manager.get_or_create(ORDERS), 3)
    disk.before_operation = None

    again = restarted(broker, disk.after_kill())
    log = again.start().get_or_create(ORDERS)

    assert log.log_end_offset == 23
    assert again.manager.directory_of(ORDERS).path == "/data/two"


def test_a_move_to_a_failed_directory_is_refused() -> None:
    disk, broker = simulated()
    disk.fail_directory("/data/two")
    with pytest.raises(KafkaStorageError):
        broker.manager.moves.begin(ORDERS, "/data/two")

    with pytest.raises(KafkaStorageError, match="/data/two is out of service"):
        broker.manager.moves.begin(ORDERS, "/data/two")

    assert broker.manager.moves.get(ORDERS) is None


# Descriptions.


def test_directories_describe_their_room_and_their_logs(broker: Broker) -> None:
    manager = broker.manager
    other = TopicPartition("other", 0)
    append(manager.get_or_create(other, is_new=True), 2)
    sizes = {ORDERS: manager.get_or_create(ORDERS).size, other: manager.get_or_create(other).size}
    manager.stop()
    again = restarted(broker)
    again.start()

    described = again.manager.describe()

    assert [each.path for each in described] == list(broker.paths)
    assert all(each.total_bytes >= each.usable_bytes > 0 for each in described)
    assert all(each.error is None for each in described)
    found = {log.partition: log.size for each in described for log in each.logs}
    assert found == sizes
    assert [each.logs for each in again.manager.describe()] == [each.logs for each in described]
    again.manager.get_or_create(ORDERS)
    assert {log.partition: log.size for each in again.manager.describe() for log in each.logs} == (
        sizes
    )


def test_a_log_that_cannot_be_loaded_is_described_by_its_size(broker: Broker) -> None:
    broker.manager.moves.begin(ORDERS, broker.paths[1])
    log = broker.manager.get_or_create(ORDERS)
    broker.manager.abandon()
    write_atomically(broker.filesystem, f"{log.directory}/{LEADER_EPOCH_FILE}", b"nonsense")
    again = restarted(broker)
    again.start()

    current, future, _ = again.manager.describe()

    assert current.logs[0].size == log.size
    assert (future.logs[0].is_future, future.logs[0].offset_lag) == (True, 0)


def test_a_failed_directory_describes_its_error() -> None:
    disk, broker = simulated()
    disk.fail_directory("/data/one")

    one, two = broker.manager.describe()

    assert one.error is not None
    assert (one.total_bytes, one.logs) == (-1, ())
    assert two.error is None
    assert broker.manager.describe()[0].error is one.error
    assert [failure.path for failure in broker.failures] == ["/data/one"]


def test_a_move_goes_on_in_the_next_process(broker: Broker) -> None:
    broker.manager.moves.begin(ORDERS, broker.paths[1])
    assert broker.manager.moves.advance(ORDERS, 300) > 0
    broker.manager.abandon()

    again = restarted(broker)
    moves = again.start().moves

    assert moves.partitions == (ORDERS,)
    assert moves.resume(ORDERS)
    while moves.advance(ORDERS, 300):
        pass
    assert moves.finish(ORDERS).log_end_offset == 20
    assert again.manager.directory_of(ORDERS).path == broker.paths[1]


@pytest.mark.parametrize("seed", range(20))
def test_what_only_the_future_log_still_has_is_cut_before_the_move_goes_on(seed: int) -> None:
    disk = SimFileSystem(Random(seed))
    broker = Broker(disk, ("/one", "/two")).format()
    log = broker.start().get_or_create(ORDERS, TOPIC_ID, is_new=True)
    append(log, 10)
    log.flush()
    append(log, 10)
    moves = broker.manager.moves
    future = moves.begin(ORDERS, "/two" if "/one/" in log.directory else "/one")
    assert future is not None
    while moves.advance(ORDERS, 300):
        pass
    future.flush()

    again = restarted(broker, disk.after_power_loss())
    log = again.start().get_or_create(ORDERS, TOPIC_ID)
    moves = again.manager.moves
    assert moves.resume(ORDERS)
    end = append(log, 3)
    while moves.advance(ORDERS, 300):
        pass

    assert moves.finish(ORDERS).log_end_offset == end >= 13


def test_a_future_log_stays_while_the_log_in_use_is_out_of_service(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    moves = broker.manager.moves
    moves.begin(ORDERS, broker.paths[1])
    failed = broker.manager.directory_of(ORDERS)
    broker.manager._registry.fail(failed, KafkaStorageError("gone"))

    assert not moves.resume(ORDERS)

    assert moves.get(ORDERS) is not None
    assert "its log is not in service" in caplog.text
