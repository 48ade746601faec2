"""Where reading begins, and looking offsets up."""

from __future__ import annotations

import pytest

from millstream.client.consumer.offset_lookup import FoundOffset
from millstream.client.consumer.starting_point import AtOffset
from millstream.errors import (
    NoOffsetForPartition,
    OffsetOutOfRangeWithoutReset,
    OperationTimeout,
    UnknownTopicOrPartition,
)
from millstream.protocol.api import ApiKey
from millstream.types import TopicPartition
from tests.unit.client.consumer.consumer_world import P0, ConsumerWorld, world_with


def test_latest_begins_at_the_end() -> None:
    world = world_with(b"a", auto_offset_reset="latest")
    assert world.position(P0) == 1

    world.brokers.logs[P0].append(b"b")

    assert world.poll() == [b"b"]


def test_the_first_records_wait_for_no_backoff_and_are_looked_up_once() -> None:
    world = world_with(b"a")

    assert world.poll() == [b"a"]

    assert world.cluster.clock.monotonic_ms() < world.session.config.retry_backoff_ms // 2
    assert world.cluster.count(ApiKey.LIST_OFFSETS) == 1


def test_a_duration_begins_so_long_ago() -> None:
    world = world_with(auto_offset_reset="by_duration:PT1H")
    now_ms = world.cluster.clock.wall_ms()
    log = world.brokers.logs[P0]
    log.append(b"old", timestamp=now_ms - 2 * 3_600_000)
    log.append(b"new", timestamp=now_ms - 60_000)

    assert world.poll() == [b"new"]


def test_without_a_place_to_begin_the_error_says_what_to_do() -> None:
    world = world_with(b"a", auto_offset_reset="none")

    for _ in range(2):
        with pytest.raises(NoOffsetForPartition, match=r"orders-0.*seek, or set"):
            world.poll()
    with pytest.raises(NoOffsetForPartition):
        world.position(P0)
    world.seek(P0, AtOffset(0))
    assert world.poll() == [b"a"]


def test_an_offset_that_is_gone_is_reset() -> None:
    world = world_with(b"a", b"b", b"c")
    log = world.brokers.logs[P0]
    log.start, log.batches = 2, log.batches[2:]
    world.seek(P0, AtOffset(1))

    assert world.poll() == [b"c"]


def test_an_offset_that_is_gone_is_an_error_without_a_reset() -> None:
    world = world_with(b"a", auto_offset_reset="none")
    world.seek(P0, AtOffset(17))

    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeWithoutReset, match="offset 17 is outside the log"):
            world.poll()
    world.seek(P0, AtOffset(0))
    assert world.poll() == [b"a"]


# ---- lookups ----


def test_offsets_are_looked_up_at_each_leader_at_once() -> None:
    world = ConsumerWorld(broker_count=2)
    p0, p1 = world.brokers.add_topic("orders", [1, 2])
    world.brokers.logs[p1].append(b"a", timestamp=5000)

    times = {p0: 4000, p1: 4000}
    found = world.perform(world.session.find_offsets(times, 30.0))

    assert found == {p0: None, p1: FoundOffset(0, 5000, -1)}
    assert world.cluster.count(ApiKey.LIST_OFFSETS) == 2


def test_a_lookup_follows_the_leader() -> None:
    world = ConsumerWorld(broker_count=2)
    (p0,) = world.brokers.add_topic("orders", [1])
    world.perform(world.session.find_offsets({p0: -1}, 30.0))
    world.cluster.topics["orders"].leaders[0] = 2

    found = world.perform(world.session.find_offsets({p0: -1}, 30.0))

    assert found[p0] is not None


def test_a_lookup_ends_with_an_error_that_names_what_is_missing() -> None:
    world = ConsumerWorld()
    (p0,) = world.brokers.add_topic("orders", [1])
    world.brokers.broken.add(1)

    with pytest.raises(OperationTimeout, match="the offsets of orders-0 could not be looked up"):
        world.perform(world.session.find_offsets({p0: -1}, 3.0))


def test_a_partition_that_does_not_exist_is_an_error_soon() -> None:
    world = ConsumerWorld()
    world.brokers.add_topic("orders", [1])

    with pytest.raises(UnknownTopicOrPartition, match="orders-5: topic 'orders' has 1 partitions"):
        world.perform(world.session.find_offsets({TopicPartition("orders", 5): -1}, 60.0))
    assert world.cluster.asked[-1].at_ms < 10_000


def test_lag_is_what_lies_before_the_end() -> None:
    world = world_with(b"a", b"b", b"c")
    assert world.poll(count=1) == [b"a"]

    assert world.perform(world.session.lag(P0, 30.0)) == 2


def test_lag_before_anything_was_fetched_is_looked_up() -> None:
    world = world_with(b"a", b"b")
    world.session.set_paused([P0], True)

    assert world.perform(world.session.lag(P0, 30.0)) == 2
