"""Disks that fail, are full or read-only: who is told, who goes on, and what is left on disk."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.storage.faults import is_disk_failure, is_disk_full
from millstream.storage.manager.meta_properties import CLEAN_SHUTDOWN_FILE
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import TopicPartition
from tests.unit.storage.manager_harness import ORDERS, Broker, append, names_in, restarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.log.unified_log import UnifiedLog

ONE, TWO = "/data/one", "/data/two"
SAFE = TopicPartition("safe", 0)


class FaultyBroker(Broker):
    """A broker with a log in each of two directories of a simulated disk."""

    def __init__(self) -> None:
        self.disk = SimFileSystem(Random(1))
        super().__init__(self.disk, (ONE, TWO))
        self.format()
        self.start()
        ids = {each.path: each.directory_id for each in self.manager.directories}
        self.orders = self.manager.get_or_create(ORDERS, is_new=True, directory_id=ids[ONE])
        self.safe = self.manager.get_or_create(SAFE, is_new=True, directory_id=ids[TWO])
        append(self.orders, 3)
        append(self.safe, 3)

    def fail_when(self, condition: Callable[[str, str], bool], number: int) -> None:
        """From now on operations below ONE end in an error."""

        def hook(operation: str, path: str, _: int) -> None:
            if path.startswith(ONE) and condition(operation, path):
                raise OSError(number, "injected", path)

        self.disk.before_operation = hook

    def produce(self, log: UnifiedLog) -> bool:
        """As a partition does: tell the manager about errors; whether the directory is gone."""
        try:
            append(log)
        except KafkaStorageError as error:
            return self.manager.note_error(log, error)
        return False


@pytest.fixture
def broker() -> FaultyBroker:
    """With three records in each log."""
    return FaultyBroker()


def assert_only_one_is_offline(broker: FaultyBroker) -> None:
    assert [failure.path for failure in broker.failures] == [ONE]
    assert broker.failures[0].partitions == (ORDERS,)
    assert not broker.failures[0].is_last
    assert broker.failures[0].directory_id == broker.manager.directories[0].directory_id
    with pytest.raises(KafkaStorageError, match="orders-0 is in /data/one, which is out of serv"):
        broker.manager.get(ORDERS)
    with pytest.raises(KafkaStorageError):
        broker.manager.get_or_create(ORDERS, is_new=True)
    assert broker.manager.partitions == [SAFE]
    assert append(broker.safe) == 4


def test_a_failed_write_takes_its_directory_offline_and_no_other(broker: FaultyBroker) -> None:
    broker.disk.fail_directory(ONE)

    assert broker.produce(broker.orders)

    assert_only_one_is_offline(broker)
    with pytest.raises(KafkaStorageError, match="the log is closed"):
        append(broker.orders)


def test_a_failed_fsync_takes_its_directory_offline(broker: FaultyBroker) -> None:
    answers = broker.commit(broker.orders)
    safe_answers = broker.commit(broker.safe)
    broker.fail_when(lambda operation, _: operation == "sync", errno.EIO)

    broker.settle()

    assert [type(answer) for answer in answers] == [KafkaStorageError]
    assert safe_answers == [None]
    assert_only_one_is_offline(broker)


def test_an_fsync_that_finds_the_disk_full_is_a_failure_too(broker: FaultyBroker) -> None:
    """The pages it could not write may be lost: the kernel promises nothing after that."""
    answers = broker.commit(broker.orders)
    broker.fail_when(lambda operation, _: operation == "sync", errno.ENOSPC)

    broker.settle()

    assert [type(answer) for answer in answers] == [KafkaStorageError]
    assert_only_one_is_offline(broker)


def test_commits_to_a_failed_directory_are_refused(broker: FaultyBroker) -> None:
    broker.disk.fail_directory(ONE)
    broker.produce(broker.orders)

    answers = broker.commit(broker.orders)
    broker.settle()

    assert [type(answer) for answer in answers] == [KafkaStorageError]


def test_a_full_disk_is_an_error_to_the_producer_only(broker: FaultyBroker) -> None:
    broker.disk.capacity_bytes = 0

    assert not broker.produce(broker.orders)
    assert broker.failures == []
    broker.disk.capacity_bytes = None

    assert append(broker.orders) == 4
    assert broker.manager.stop() == {}
    log = restarted(broker).start().get_or_create(ORDERS)
    assert log.log_end_offset == 4


def test_that_a_disk_is_full_is_said_now_and_then(
    broker: FaultyBroker, caplog: pytest.LogCaptureFixture
) -> None:
    directory = broker.manager.directories[0]
    full = OSError(errno.ENOSPC, "no space")

    for _ in range(3):
        assert broker.manager._registry.note_error(directory, full) is False
    assert len(caplog.messages) == 1
    broker.clock.advance(10_000)
    broker.manager._registry.note_error(directory, full)

    assert len(caplog.messages) == 2
    assert "until there is room again" in caplog.text


def test_a_checkpoint_that_finds_the_disk_full_is_written_later(broker: FaultyBroker) -> None:
    broker.orders.flush()
    broker.fail_when(lambda operation, path: ".tmp" in path and operation == "write", errno.ENOSPC)
    broker.pass_time(61_000)
    assert broker.failures == []
    broker.disk.before_operation = None

    broker.pass_time(61_000)
    broker.manager.abandon()

    again = restarted(broker)
    again.start()
    slot = again.manager.directories[0].logs[ORDERS]
    assert slot.checkpointed.recovery_point == 3


def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline(
    broker: FaultyBroker,
) -> None:
    broker.fail_when(lambda _, path: path.endswith(".tmp"), errno.EROFS)

    broker.pass_time(61_000)

    assert_only_one_is_offline(broker)


def test_a_removal_that_fails_takes_the_directory_offline(broker: FaultyBroker) -> None:
    other = TopicPartition("other", 0)
    directory_id = broker.manager.directories[0].directory_id
    broker.manager.get_or_create(other, is_new=True, directory_id=directory_id)
    broker.manager.delete(other)
    broker.fail_when(lambda operation, _: operation == "remove_directory", errno.EIO)

    broker.pass_time(2_000)

    assert_only_one_is_offline(broker)


def test_removals_of_a_failed_directory_are_dropped(broker: FaultyBroker) -> None:
    other = TopicPartition("other", 0)
    directory_id = broker.manager.directories[0].directory_id
    broker.manager.get_or_create(other, is_new=True, directory_id=directory_id)
    broker.manager.delete(other)
    broker.disk.fail_directory(ONE)
    broker.produce(broker.orders)

    broker.pass_time(2_000)

    assert_only_one_is_offline(broker)


def test_a_directory_that_fails_at_the_start_is_left_out(broker: FaultyBroker) -> None:
    broker.manager.stop()
    broker.disk.fail_directory(ONE)
    again = restarted(broker)

    manager = again.start()

    assert [failure.path for failure in again.failures] == [ONE]
    assert manager.partitions == [SAFE]
    with pytest.raises(KafkaStorageError, match="no log is made for orders-0: it may be in /data"):
        manager.get_or_create(ORDERS)
    fresh = manager.get_or_create(TopicPartition("fresh", 0), is_new=True)
    assert fresh.directory.startswith(TWO)
    assert manager.previous_broker_epoch is None


def test_a_directory_that_fails_in_recovery_is_left_out(broker: FaultyBroker) -> None:
    broker.manager.abandon()
    broker.fail_when(lambda operation, path: "orders-0" in path, errno.EIO)
    again = restarted(broker)

    manager = again.start()

    assert [failure.path for failure in again.failures] == [ONE]
    assert manager.partitions == [SAFE]
    with pytest.raises(KafkaStorageError, match="out of service"):
        manager.get(ORDERS)


def test_a_start_without_any_directory_is_an_error(broker: FaultyBroker) -> None:
    broker.manager.stop()
    broker.disk.fail_directory("/data")
    again = restarted(broker)

    with pytest.raises(KafkaStorageError, match="no log directory is left in service"):
        again.start()

    assert [failure.is_last for failure in again.failures] == [False, True]


def test_the_last_directory_that_fails_is_told_as_such(broker: FaultyBroker) -> None:
    broker.disk.fail_directory("/data")

    broker.produce(broker.orders)
    broker.produce(broker.safe)

    assert [failure.is_last for failure in broker.failures] == [False, True]
    with pytest.raises(KafkaStorageError, match="all have failed"):
        broker.manager._lifecycle.directory_for_new(ORDERS, None)


def test_a_log_that_cannot_be_opened_takes_its_directory_offline(broker: FaultyBroker) -> None:
    broker.manager.stop()
    again = restarted(broker)
    manager = again.start()
    broker.disk.fail_directory(ONE)

    with pytest.raises(KafkaStorageError):
        manager.get(ORDERS)

    assert [failure.path for failure in again.failures] == [ONE]


def test_a_log_that_could_not_be_made_leaves_nothing_behind(broker: FaultyBroker) -> None:
    directory_id = broker.manager.directories[0].directory_id
    broker.disk.capacity_bytes = 0
    fresh = TopicPartition("fresh", 0)

    with pytest.raises(KafkaStorageError, match="the disk is full"):
        broker.manager.get_or_create(fresh, directory_id, is_new=True, directory_id=directory_id)

    assert broker.failures == []
    assert "fresh-0" not in names_in(broker.disk, ONE)
    assert broker.manager.get(fresh) is None


@pytest.mark.parametrize("operation", ["rename", "sync_directory"])
def test_a_deletion_that_fails_takes_the_directory_offline(
    broker: FaultyBroker, operation: str
) -> None:
    broker.fail_when(lambda each, _: each == operation, errno.EIO)

    with pytest.raises(KafkaStorageError):
        broker.manager.delete(ORDERS)

    assert_only_one_is_offline(broker)


def test_too_many_open_files_are_not_the_disks_fault(broker: FaultyBroker) -> None:
    broker.fail_when(lambda each, _: each == "rename", errno.EMFILE)

    with pytest.raises(KafkaStorageError):
        broker.manager.delete(ORDERS)

    assert broker.failures == []
    assert broker.manager.get(ORDERS) is broker.orders


def test_a_truncation_that_fails_takes_the_directory_offline(broker: FaultyBroker) -> None:
    broker.fail_when(lambda each, _: each == "truncate", errno.EIO)

    with pytest.raises(KafkaStorageError):
        broker.manager.truncate_to(ORDERS, 1)

    assert_only_one_is_offline(broker)


def test_a_topic_id_that_cannot_be_written_takes_the_directory_offline(
    broker: FaultyBroker,
) -> None:
    directory_id = broker.manager.directories[0].directory_id
    broker.disk.fail_directory(ONE)

    with pytest.raises(KafkaStorageError, match="reading the topic id failed"):
        broker.manager.get_or_create(ORDERS, directory_id)

    assert_only_one_is_offline(broker)


def test_retention_that_meets_a_failed_disk_takes_it_offline(broker: FaultyBroker) -> None:
    broker.manager.stop()
    again = restarted(broker)
    again.start()
    broker.disk.fail_directory(ONE)

    again.pass_time(400_000)

    assert [failure.path for failure in again.failures] == [ONE]
    assert again.manager.get(SAFE) is not None


@pytest.mark.parametrize("name", ["orders-0", "offset-checkpoint", CLEAN_SHUTDOWN_FILE])
def test_a_stop_that_fails_half_way_leaves_no_marker(broker: FaultyBroker, name: str) -> None:
    broker.fail_when(lambda operation, path: name in path and operation == "write", errno.EIO)
    append_is_done = broker.orders.log_end_offset

    assert list(broker.manager.stop()) == [ONE]

    assert CLEAN_SHUTDOWN_FILE not in names_in(broker.disk, ONE)
    assert CLEAN_SHUTDOWN_FILE in names_in(broker.disk, TWO)
    broker.disk.before_operation = None
    log = restarted(broker).start().get_or_create(ORDERS)
    assert log.log_end_offset == append_is_done


def test_which_errors_are_the_disks_fault() -> None:
    full, broken = OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken")

    assert (is_disk_full(full), is_disk_failure(full)) == (True, False)
    assert (is_disk_full(broken), is_disk_failure(broken)) == (False, True)
    assert not is_disk_failure(OSError(errno.EMFILE, "many"))
    assert not is_disk_failure(KafkaStorageError("a file is damaged"))
    assert not is_disk_full(ValueError("no disk at all"))
