"""What a coordinator has built goes the way of every append, and its disk may fail."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.storage.log.config import LogConfig
from millstream.storage.log.producer_entry import AppendOrigin
from tests.unit.replica.harness import World, asked, codes, sizes
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from millstream.replica.append_service import AppendResult
    from tests.unit.replica.harness import Reply


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    world.produce()
    return world


def append_own(world: World) -> Reply[list[AppendResult]]:
    return world.produce(origin=AppendOrigin.COORDINATOR, allows_internal=True)


@pytest.mark.parametrize("codec", ["producer", "uncompressed"])
def test_a_compacted_topic_takes_its_coordinators_batch_and_commits_it(
    world: World, codec: str
) -> None:
    world.configure("t", LogConfig(cleanup_policy=("compact",), compression_type=codec))
    waiting = world.fetch(asked(1), max_wait_ms=500, min_bytes=1)

    assert append_own(world).value[0].base_offset == 1

    assert world.partition().log.high_watermark == 2
    world.settle_wakes()
    assert sizes(waiting.value) == [len(batch_bytes())]


def test_a_batch_that_must_be_on_disk_is_answered_when_it_is(world: World) -> None:
    world.configure("t", LogConfig(durability="disk"))

    reply = append_own(world)

    assert reply.is_pending
    world.settle()
    assert codes(reply.value) == [0]


def test_a_coordinator_is_told_of_a_disk_that_fails(world: World) -> None:
    def fill_disk(operation: str, path: str, size: int) -> None:
        if operation == "write" and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no space left", path)

    world.filesystem.before_operation = fill_disk

    assert codes(append_own(world).value) == [KafkaStorageError.code]
    assert world.partition().log.log_end_offset == 1
