"""A partition with followers on the fast path: the answer to acks=all waits for them."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.errors import KafkaStorageError, NotLeaderOrFollower, RequestTimedOut
from millstream.metadata.topics import NO_LEADER
from millstream.protocol.frame import encode_response
from millstream.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.replica.append_service import AppendResult
from tests.unit.replica.fast_frames import fast_answers, frame_of, result_of, version_of
from tests.unit.replica.harness import LOCAL, World, codes, topic_id

if TYPE_CHECKING:
    from millstream._accel.broker.fast_path import Deferred
    from millstream.types import Uuid

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)


@pytest.fixture
def world() -> World:
    """A broker that leads t-0, with two followers in sync that have its only record."""
    world = World()
    world.register(2)
    world.register(3)
    world.create(replicas=(LOCAL, 2, 3))
    world.produce(acks=1)
    world.follow(1, broker=2)
    world.follow(1, broker=3)
    world.settle()
    assert world.partition().log.high_watermark == 1
    return world


def append(world: World, **how: Any) -> Deferred:
    (answer,) = fast_answers(world, frame_of(**how))
    assert not isinstance(answer, bytes)
    deferred: Deferred = answer
    return deferred


def result(deferred: Deferred) -> AppendResult:
    assert deferred.response is not None
    return result_of(deferred.response)


def test_the_answer_comes_when_every_replica_in_sync_has_the_records(world: World) -> None:
    deferred = append(world)
    world.settle()
    assert (deferred.response, world.manager.waiting_count) == (None, 1)

    world.follow(2, broker=2)
    world.settle()
    assert deferred.response is None

    world.follow(2, broker=3)
    world.settle()
    assert result(deferred) == AppendResult(None, 1, -1, 0)
    assert (world.partition().log.high_watermark, world.manager.waiting_count) == (2, 0)


@pytest.mark.parametrize("topic", ["t", topic_id("t")], ids=["name", "id"])
def test_the_answer_is_the_one_of_the_encoder(world: World, topic: str | Uuid) -> None:
    deferred = append(world, topic=topic)
    for broker in (2, 3):
        world.follow(2, broker=broker)
    world.settle()

    placed = PartitionProduceResponse(index=0, base_offset=1, log_start_offset=0)
    answered = TopicProduceResponse(partition_responses=[placed])
    if isinstance(topic, str):
        answered.name = topic
    else:
        answered.topic_id = topic
    response = ProduceResponse(responses=[answered])
    assert deferred.response == encode_response(response, version_of(topic), 7)


def test_acks_of_the_leader_are_answered_at_once(world: World) -> None:
    (answer,) = fast_answers(world, frame_of(acks=1))

    assert result_of(answer) == AppendResult(None, 1, -1, 0)
    assert world.partition().log.high_watermark == 1


def test_one_fetch_answers_all_that_it_covers_in_their_order(world: World) -> None:
    given = fast_answers(world, *(frame_of() for _ in range(4)))
    full = world.produce()
    for broker in (2, 3):
        world.follow(4, broker=broker)
    world.settle()

    assert [result(each).base_offset for each in given[:3]] == [1, 2, 3]
    assert given[3].response is None
    assert full.is_pending
    for broker in (2, 3):
        world.follow(6, broker=broker)
    world.settle()
    assert result(given[3]).base_offset == 4
    assert codes(full.value) == [0]


def test_a_follower_that_does_not_come_is_a_timeout(world: World) -> None:
    deferred = append(world, timeout_ms=500)
    late = append(world, timeout_ms=900)

    world.pass_time(500)

    assert result(deferred).error.__class__ is RequestTimedOut
    assert late.response is None
    world.pass_time(400)
    assert result(late).error.__class__ is RequestTimedOut
    assert world.manager.next_deadline_ms() is not None, "followers are looked after"


def test_a_leader_that_changes_is_told_to_everybody_who_waits(world: World) -> None:
    deferred = append(world)

    world.change(leader=2, isr=[2, 3])
    world.settle()

    assert result(deferred).error.__class__ is NotLeaderOrFollower


def test_answers_do_not_outlive_a_leadership(world: World) -> None:
    deferred = append(world)

    world.change(leader=2, isr=[1, 2, 3])
    world.change(leader=LOCAL, isr=[1, 2, 3])
    for broker in (2, 3):
        world.follow(2, broker=broker)
    world.settle()

    assert result(deferred).error.__class__ is NotLeaderOrFollower


def test_a_broker_that_stops_answers_everybody(world: World) -> None:
    deferred = append(world)

    world.manager.stop()

    assert result(deferred).error.__class__ is RequestTimedOut


def test_the_last_replica_that_stops_need_not_make_clients_write_again(world: World) -> None:
    world.change(isr=[LOCAL])
    deferred = append(world)

    world.change(leader=NO_LEADER, isr=[LOCAL])
    world.settle()

    assert result(deferred) == AppendResult(None, 1, -1, 0)


def test_a_follower_that_leaves_the_isr_is_not_waited_for(world: World) -> None:
    deferred = append(world)
    world.follow(2, broker=2)
    world.fence(3)
    world.change(isr=[LOCAL, 2])
    world.settle()

    assert result(deferred) == AppendResult(None, 1, -1, 0)


def test_a_disk_that_fails_is_answered_at_once(world: World) -> None:
    def fill(operation: str, path: str, size: int) -> None:
        if operation == "write" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no space left", path)

    world.filesystem.before_operation = fill
    deferred = append(world)
    world.filesystem.before_operation = None

    assert result(deferred).error.__class__ is KafkaStorageError
    assert world.manager.waiting_count == 0
    assert world.partition().log.log_end_offset == 1
