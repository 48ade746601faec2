"""New logs: made without waiting for the disk, and never trusted before the disk has them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import TopicPartition, Uuid
from tests.unit.storage.manager_harness import ORDERS, TOPIC_ID, Broker, append, restarted

if TYPE_CHECKING:
    from collections.abc import Callable

OTHER_ID = Uuid(b"another topic id")
SYNCS = {"sync", "sync_directory"}


def make(seed: int = 1) -> tuple[Broker, SimFileSystem]:
    """A broker on a disk that can lose power."""
    filesystem = SimFileSystem(Random(seed))
    return Broker(filesystem, ("/data",)).format(), filesystem


def count_syncs(filesystem: SimFileSystem, act: Callable[[], object]) -> int:
    """How often something waits for the disk."""
    operations: list[str] = []
    filesystem.before_operation = lambda operation, *_: operations.append(operation)
    act()
    filesystem.before_operation = None
    return sum(operation in SYNCS for operation in operations)


def test_making_logs_waits_for_no_disk() -> None:
    broker, filesystem = make()
    manager = broker.start()

    def create() -> None:
        for number in range(20):
            log = manager.get_or_create(TopicPartition("t", number), TOPIC_ID, is_new=True)
            log.begin_epoch(3)

    assert count_syncs(filesystem, create) == 0


def test_closing_logs_that_nothing_happened_to_costs_the_same_for_any_number() -> None:
    def stop_with(logs: int) -> int:
        broker, filesystem = make()
        manager = broker.start()
        for number in range(logs):
            manager.get_or_create(TopicPartition("t", number), TOPIC_ID, is_new=True)
        append(manager.get_or_create(ORDERS, TOPIC_ID, is_new=True))
        return count_syncs(filesystem, lambda: manager.stop(1))

    assert stop_with(1) == stop_with(20)


def test_what_nothing_happened_to_is_there_after_a_clean_stop() -> None:
    broker, _ = make()
    end = append(broker.start().get_or_create(ORDERS, TOPIC_ID, is_new=True), 30)
    broker.manager.stop(1)
    for _ in range(2):
        broker = restarted(broker)
        log = broker.start().get_or_create(ORDERS, TOPIC_ID)
        log.begin_epoch(5)
        assert log.log_end_offset == end
        broker.manager.stop(1)

    assert restarted(broker).start().get_or_create(ORDERS, TOPIC_ID).log_end_offset == end


@pytest.mark.parametrize("seed", range(30))
def test_a_new_log_that_goes_with_the_power_is_made_again(seed: int) -> None:
    broker, filesystem = make(seed)
    log = broker.start().get_or_create(ORDERS, TOPIC_ID, is_new=True)
    if seed % 2:
        append(log, 3)

    again = restarted(broker, filesystem.after_power_loss())
    recovered = again.start().get_or_create(ORDERS, TOPIC_ID)

    assert recovered.log_end_offset <= 3
    append(recovered)
    again.manager.stop(1)


@pytest.mark.parametrize("seed", range(30))
def test_what_was_committed_to_a_new_log_stays(seed: int) -> None:
    broker, filesystem = make(seed)
    log = broker.start().get_or_create(ORDERS, TOPIC_ID, is_new=True)
    end = append(log, 2)
    answers = broker.commit(log)
    broker.settle()
    assert answers == [None]

    again = restarted(broker, filesystem.after_power_loss())
    manager = again.start()

    assert manager.topic_id_of(ORDERS) == TOPIC_ID
    assert manager.get_or_create(ORDERS, TOPIC_ID).log_end_offset >= end


@pytest.mark.parametrize("seed", range(30))
def test_a_topic_made_again_never_gets_the_records_of_the_old_one(seed: int) -> None:
    broker, filesystem = make(seed)
    manager = broker.start()
    log = manager.get_or_create(ORDERS, TOPIC_ID, is_new=True)
    append(log, 5)
    if seed % 2:
        broker.commit(log)
        broker.settle()
    manager.delete(ORDERS)
    manager.get_or_create(ORDERS, OTHER_ID, is_new=True)

    again = restarted(broker, filesystem.after_power_loss())
    recovered = again.start().get_or_create(ORDERS, OTHER_ID)

    assert recovered.log_end_offset == 0
