"""What goes wrong in a partition, and what the application hears of it."""

from __future__ import annotations

import pytest

from millstream.client.consumer.starting_point import AtOffset
from millstream.errors import (
    CorruptMessage,
    MessageTooLarge,
    TopicAuthorizationFailed,
)
from tests.unit.client.consumer.consumer_world import P0, ConsumerWorld, world_with


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103, -1])
def test_what_may_pass_is_tried_again(code: int) -> None:
    world = world_with(b"a")
    assert world.poll() == [b"a"]
    world.brokers.logs[P0].append(b"b")
    world.brokers.logs[P0].error_code = code
    assert world.poll(timeout=3.0) == []

    world.brokers.logs[P0].error_code = 0

    assert world.poll() == [b"b"]


def test_what_does_not_pass_is_raised_at_each_poll_until_it_does() -> None:
    world = world_with(b"a")
    assert world.poll() == [b"a"]
    world.brokers.logs[P0].error_code = 29

    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailed, match="not allowed to read topic 'orders'"):
            world.poll()
    world.brokers.logs[P0].append(b"b")
    world.brokers.logs[P0].error_code = 0
    assert world.poll_until(1) == [b"b"]


def test_records_before_an_error_are_given_first() -> None:
    world = ConsumerWorld()
    p0, p1 = world.brokers.add_topic("orders", [1, 1])
    world.session.assign([p0, p1])
    world.brokers.logs[p0].append(b"a")
    world.brokers.logs[p1].append(b"b")
    world.run_for(700)
    world.brokers.logs[p1].error_code = 29
    world.run_for(1_000)

    assert sorted(world.poll()) == [b"a", b"b"]
    with pytest.raises(TopicAuthorizationFailed):
        world.poll()


def test_a_corrupt_batch_is_raised_and_can_be_passed_by() -> None:
    world = world_with(b"a", b"b")
    log = world.brokers.logs[P0]
    first, last, epoch, data = log.batches[0]
    log.batches[0] = (first, last, epoch, data[:-1] + bytes([data[-1] ^ 1]))

    with pytest.raises(CorruptMessage):
        world.poll()
    world.seek(P0, AtOffset(1))
    assert world.poll() == [b"b"]


def test_bytes_that_are_no_batch_are_raised() -> None:
    world = world_with()
    world.brokers.logs[P0].append_batch(b"\0" * 16 + b"\x09" + b"\0" * 60, 1)

    with pytest.raises(CorruptMessage, match="magic 9"):
        world.poll()


def test_a_batch_that_does_not_fit_is_an_error_with_the_setting_to_raise() -> None:
    world = world_with(b"a")
    log = world.brokers.logs[P0]
    first, last, epoch, data = log.batches[0]
    log.batches[0] = (first, last, epoch, data[:-10])

    with pytest.raises(MessageTooLarge, match="max_partition_fetch_bytes"):
        world.poll()


def test_read_committed_leaves_aborted_records_out() -> None:
    world = world_with(isolation_level="read_committed")
    log = world.brokers.logs[P0]
    log.append(b"aborted", is_transactional=True, producer_id=7, producer_epoch=0)
    log.append(b"plain")
    log.aborted = [(7, 0)]

    assert world.poll() == [b"plain"]
    assert {each.isolation_level for each in world.brokers.fetches()} == {1}
