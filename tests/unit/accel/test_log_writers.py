"""Records of several partitions that are written by two threads: as if one had written them."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.storage.disk import DiskFileSystem
from tests.unit.server.test_fast_produce import (
    PARTITIONS,
    STORAGE_ERROR,
    answers_of,
    frame_of,
    new_broker,
    partition_answer,
)
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from tests.unit.server.harness import Broker

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

LARGE = 40_000
TURNS = 20
THREAD = "log writer"


def on_disk(path: Path) -> Broker:
    return new_broker(filesystem=DiskFileSystem(), directories=(str(path),))


def batch_of(turn: int, size: int = LARGE) -> bytes:
    return batch_bytes(value_bytes=size, timestamps=[NOW_MS + turn])


def turn_of(broker: Broker, turn: int, size: int = LARGE) -> list[bytearray]:
    """Two batches for each partition, in turns."""
    order = [*range(PARTITIONS), *range(PARTITIONS)]
    return [frame_of(broker, batch_of(turn, size), partition=index) for index in order]


def written(path: Path) -> dict[str, bytes]:
    return {each.parent.name: each.read_bytes() for each in path.rglob("orders-*/*.log")}


def threads() -> int:
    """How many helpers this process has."""
    tasks = Path("/proc/self/task").glob("*/comm")
    return sum(each.read_text().strip() == THREAD for each in tasks)


def test_logs_are_the_same_whoever_writes_them(tmp_path: Path) -> None:
    together, alone = on_disk(tmp_path / "together"), on_disk(tmp_path / "alone")

    for turn in range(TURNS):
        answers = answers_of(together, *turn_of(together, turn))
        one_by_one = [answers_of(alone, frame)[0] for frame in turn_of(alone, turn)]
        offsets, expected = (
            [partition_answer(each).base_offset for each in several]
            for several in (answers, one_by_one)
        )
        assert offsets == expected

    assert written(tmp_path / "together") == written(tmp_path / "alone")
    assert together.partition().log.log_end_offset == 2 + 2 * TURNS


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_helper_is_there_when_there_is_much_to_write_and_ends_with_the_lane(
    tmp_path: Path,
) -> None:
    gc.collect()  # What other tests left behind.
    before = threads()
    broker = on_disk(tmp_path)

    answers_of(broker, *turn_of(broker, 0, size=10))
    answers_of(broker, frame_of(broker, batch_of(0, 4 * LARGE)))
    assert threads() == before, "little is, or belongs to one file"

    answers_of(broker, *turn_of(broker, 0))
    assert threads() == before + 1

    del broker
    gc.collect()
    assert threads() == before


def test_one_file_that_cannot_be_written_fails_for_itself(tmp_path: Path) -> None:
    broker = on_disk(tmp_path)
    log: Any = broker.partition(index=1).log
    before = (log.log_end_offset, log.high_watermark, log.size)
    file = log.segments.active.open_file()
    file._descriptor, kept = -1, file._descriptor

    answers = [partition_answer(each) for each in answers_of(broker, *turn_of(broker, 0))]
    file._descriptor = kept

    assert [each.error_code for each in answers] == 2 * [0, STORAGE_ERROR, 0]
    assert (log.log_end_offset, log.high_watermark, log.size) == before
