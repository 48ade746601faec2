"""The fast path of Produce: what it takes, and what it leaves untouched to the full one."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from millstream import _accel
from millstream.errors import KafkaStorageError
from millstream.metadata.topics import NO_LEADER
from millstream.replica.append_service import AppendResult
from millstream.storage.log.config import LogConfig
from tests.unit.replica.fast_frames import fast_answers, frame_of, result_of, version_of
from tests.unit.replica.harness import LOCAL, World, asked, codes, sizes, topic_id
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from millstream.types import Uuid

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)


@pytest.fixture
def world() -> World:
    """A broker that leads t-0 alone, with one record in it: the epoch is on disk."""
    world = World()
    world.create()
    world.produce()
    return world


def append_fast(
    world: World, topic: str | Uuid = "t", index: int = 0, acks: int = -1
) -> AppendResult | None:
    """What the fast path answers; None if it declines."""
    frame = frame_of(topic, index, acks)
    received = bytes(frame)
    answers = fast_answers(world, frame)
    if not answers:
        assert frame == received, "what is declined is not touched"
        return None
    return result_of(answers[0], version_of(topic))


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("topic", ["t", topic_id("t")], ids=["name", "id"])
def test_an_ordinary_batch_is_taken_and_committed(
    world: World, topic: str | Uuid, acks: int
) -> None:
    assert append_fast(world, topic, acks=acks) == AppendResult(None, 1, -1, 0)

    log = world.partition().log
    assert (log.log_end_offset, log.high_watermark) == (2, 2)


def test_who_waits_for_records_is_woken(world: World) -> None:
    waiting = world.fetch(asked(1), max_wait_ms=500, min_bytes=1)
    assert waiting.is_pending

    append_fast(world)
    world.settle_wakes()

    assert sizes(waiting.value) == [len(batch_bytes())]


@pytest.mark.parametrize(
    ("topic", "index", "acks"),
    [("t", 0, 0), ("t", 0, 2), ("t", 7, 1), ("nowhere", 0, 1), (topic_id("nowhere"), 0, 1)],
    ids=["no answer", "acks", "partition", "topic", "topic id"],
)
def test_what_has_to_be_refused_is_left_to_the_full_path(
    world: World, topic: str | Uuid, index: int, acks: int
) -> None:
    assert append_fast(world, topic, index, acks) is None


def test_internal_topics_are_left_to_the_full_path(world: World) -> None:
    world.create("__consumer_offsets")

    assert append_fast(world, "__consumer_offsets") is None


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(durability="disk"),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(compression_type="gzip"),
        LogConfig(flush_messages=1),
        LogConfig(flush_ms=1),
        LogConfig(max_message_bytes=70),
    ],
    ids=str,
)
def test_settings_that_need_more_close_the_fast_path_until_they_change(
    world: World, config: LogConfig
) -> None:
    world.configure("t", config)
    assert append_fast(world) is None

    world.configure("t", LogConfig())
    assert append_fast(world) is not None


def test_a_broker_that_does_not_lead_takes_nothing(world: World) -> None:
    world.change(leader=NO_LEADER)

    assert append_fast(world) is None


def test_a_closed_log_takes_nothing(world: World) -> None:
    world.partition().log.abandon()

    assert append_fast(world) is None


def test_the_first_record_of_an_epoch_takes_the_full_path_which_notes_it(world: World) -> None:
    world.change(leader=NO_LEADER)
    world.change(leader=LOCAL)
    assert append_fast(world) is None

    world.produce()
    assert append_fast(world) is not None


def _fill_disk(operation: str, path: str, size: int) -> None:
    if operation == "write" and path.endswith(".log"):
        raise OSError(errno.ENOSPC, "no space left", path)


def test_a_disk_that_fails_is_the_answer_and_the_batch_has_never_been(world: World) -> None:
    world.filesystem.before_operation = _fill_disk
    refused = append_fast(world)
    world.filesystem.before_operation = None

    assert refused is not None
    assert codes([refused]) == [KafkaStorageError.code]
    assert world.partition().log.log_end_offset == 1
    accepted = append_fast(world)
    assert accepted is not None
    assert accepted.base_offset == 1
