"""A broker whose logs do not change has nothing to write down, and is not woken to look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.storage.checkpoint import HIGH_WATERMARK_FILE, read_offsets
from millstream.storage.manager.broker_config import LogManagerConfig
from millstream.types import TopicPartition
from tests.unit.storage.manager_harness import ORDERS, Broker, append

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

DELAY_MS = LogManagerConfig().initial_task_delay_ms
INTERVAL_MS = LogManagerConfig().high_watermark_checkpoint_interval_ms
OTHERS = TopicPartition("others", 0)


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> Broker:
    """One log, and what happened to it is written down."""
    broker = Broker(filesystem, (f"{directory}/one",)).format()
    broker.start()
    append(broker.manager.get_or_create(ORDERS, is_new=True))
    broker.pass_time(DELAY_MS)
    broker.pass_time(INTERVAL_MS)
    broker.deadlines_brought_forward = 0
    return broker


def watermarks(broker: Broker) -> dict[TopicPartition, int]:
    """What the file says."""
    return read_offsets(broker.filesystem, f"{broker.paths[0]}/{HIGH_WATERMARK_FILE}")


def ms_until_next(broker: Broker) -> int:
    """How long the manager can be left alone."""
    deadline_ms = broker.manager.next_deadline_ms()
    assert deadline_ms is not None
    return deadline_ms - broker.clock.monotonic_ms()


def test_nobody_looks_at_watermarks_that_do_not_move(broker: Broker) -> None:
    assert ms_until_next(broker) > 5 * INTERVAL_MS


def test_the_first_that_moves_has_it_written_down_within_the_interval(broker: Broker) -> None:
    log = broker.manager.get(ORDERS)
    assert log is not None
    append(log)

    assert broker.deadlines_brought_forward == 1
    assert ms_until_next(broker) == INTERVAL_MS
    append(log)
    assert broker.deadlines_brought_forward == 1
    broker.pass_time(INTERVAL_MS)
    assert watermarks(broker) == {ORDERS: 3}


def test_logs_that_come_and_go_are_noticed(broker: Broker) -> None:
    broker.manager.get_or_create(OTHERS, is_new=True)
    assert broker.deadlines_brought_forward == 1
    broker.pass_time(INTERVAL_MS)
    assert watermarks(broker) == {ORDERS: 1, OTHERS: 0}
    broker.pass_time(INTERVAL_MS)

    broker.manager.delete(OTHERS)
    broker.pass_time(INTERVAL_MS)
    assert watermarks(broker) == {ORDERS: 1}


def test_after_news_it_becomes_quiet_again(broker: Broker) -> None:
    log = broker.manager.get(ORDERS)
    assert log is not None
    append(log)
    broker.pass_time(INTERVAL_MS)
    assert ms_until_next(broker) == INTERVAL_MS

    broker.pass_time(INTERVAL_MS)

    assert ms_until_next(broker) > INTERVAL_MS
