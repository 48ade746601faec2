"""A fetch that cannot be answered yet waits: rule 5 of Fetch (facts 6.4)."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from millstream.storage.log.config import LogConfig
from tests.unit.replica.harness import (
    LOCAL,
    World,
    asked,
    error_codes,
    sizes,
)
from tests.unit.storage.batches import batch_bytes

BATCH = len(batch_bytes())


@pytest.fixture
def world() -> World:
    """A broker that leads three partitions alone; the first two have three batches each."""
    world = World()
    world.create(partitions=3)
    for _ in range(3):
        world.produce(batch_bytes(), batch_bytes())
    return world


@pytest.fixture
def replicated() -> World:
    """A broker that leads t-0 with a follower in sync."""
    world = World()
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    return world


@pytest.mark.parametrize(
    ("offsets", "options"),
    [
        pytest.param([3], {"max_wait_ms": 0}, id="no wait"),
        pytest.param([], {}, id="no partitions"),
        pytest.param([2], {}, id="enough bytes"),
        pytest.param([3], {"min_bytes": 0}, id="none needed"),
        pytest.param([3, 99], {}, id="an error"),
    ],
)
def test_rule_5_some_fetches_are_answered_at_once(
    world: World, offsets: list[int], options: dict[str, Any]
) -> None:
    partitions = [asked(offset, index=index) for index, offset in enumerate(offsets)]

    reply = world.fetch(*partitions, **{"max_wait_ms": 500, **options})

    assert not reply.is_pending


def test_rule_5_a_diverging_epoch_is_answered_at_once(world: World) -> None:
    world.change(leader=LOCAL)

    reply = world.fetch(asked(3, index=1), asked(4, fetched_epoch=0), max_wait_ms=500)

    assert not reply.is_pending


def test_rule_5_others_wait_for_enough_bytes(world: World) -> None:
    reply = world.fetch(asked(3), asked(3, index=1), min_bytes=2 * BATCH, max_wait_ms=500)
    world.produce()
    world.settle()
    assert reply.is_pending

    world.produce(index=1)
    world.settle()

    assert sizes(reply.value) == [BATCH, BATCH]


def test_rule_5_bytes_that_were_there_before_count(world: World) -> None:
    reply = world.fetch(asked(2), min_bytes=2 * BATCH, max_wait_ms=500)
    assert reply.is_pending

    world.produce()
    world.settle()

    assert sizes(reply.value) == [2 * BATCH]


def test_rule_5_a_timeout_is_exact_and_answers_with_what_there_is(world: World) -> None:
    reply = world.fetch(asked(2), min_bytes=2 * BATCH, max_wait_ms=500)
    world.pass_time(499)
    assert reply.is_pending

    world.pass_time(1)

    assert sizes(reply.value) == [BATCH]


def test_rule_5_several_appends_wake_a_fetch_once_with_all_records(world: World) -> None:
    reply = world.fetch(asked(3), max_wait_ms=500)

    world.produce()
    world.produce()
    world.settle()

    assert sizes(reply.value) == [2 * BATCH]


def test_rule_5_a_consumer_is_woken_by_the_high_watermark(replicated: World) -> None:
    reply = replicated.fetch(asked(0), max_wait_ms=500)
    replicated.produce(acks=1)
    replicated.settle()
    assert reply.is_pending

    replicated.follow(1)
    replicated.settle()

    assert sizes(reply.value) == [BATCH]


def test_rule_5_a_follower_is_woken_by_an_append(replicated: World) -> None:
    reply = replicated.fetch(asked(0), replica_id=2, replica_epoch=1, max_wait_ms=500)

    replicated.produce(acks=1)
    replicated.settle()

    assert sizes(reply.value) == [BATCH]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("resign", NotLeaderOrFollower.code),
        ("delete", UnknownTopicOrPartition.code),
        ("disk", KafkaStorageError.code),
        ("log start", OffsetOutOfRange.code),
        ("epoch", FencedLeaderEpoch.code),
    ],
)
def test_rule_5_what_ends_a_partition_ends_the_wait(event: str, code: int) -> None:
    world = World()
    world.create(partitions=2, replicas=(LOCAL, 2), isr=(LOCAL,))
    world.produce(batch_bytes(records=2), acks=1)
    reply = world.fetch(
        asked(1, leader_epoch=0), min_bytes=1 << 20, max_wait_ms=500, needs_leader=True
    )
    assert reply.is_pending

    match event:
        case "resign":
            world.change(leader=2)
            code = FencedLeaderEpoch.code  # The epoch is looked at first.
        case "epoch":
            world.change(leader=LOCAL)
        case "delete":
            world.remove()
        case "disk":
            world.filesystem.fail_directory("/disk1")
            world.produce(index=1, acks=1)
        case "log start":
            world.delete(2)
    world.settle()

    assert error_codes(reply.value) == [code]


def test_rule_5_a_fetch_on_an_older_segment_than_the_end_is_answered() -> None:
    world = World()
    world.create(config=LogConfig(internal_segment_bytes=BATCH))
    world.produce()
    reply = world.fetch(asked(0), min_bytes=1 << 20, max_wait_ms=500)

    world.produce()
    world.settle()

    assert sizes(reply.value) == [BATCH]


def test_rule_5_a_fetch_that_is_read_again_notes_a_followers_progress_once(
    replicated: World,
) -> None:
    replicated.produce(acks=1)
    reply = replicated.fetch(asked(1), replica_id=2, replica_epoch=1, max_wait_ms=500)
    caught_up_ms = replicated.partition().followers[2].last_caught_up_ms

    replicated.clock.advance(100)
    replicated.produce(acks=1)
    replicated.settle()

    assert not reply.is_pending
    assert replicated.partition().followers[2].last_caught_up_ms == caught_up_ms
