"""Entries of the sparse indexes, added by the compiled lane: those that Python would have added."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from millstream import _accel
from millstream.storage import unified_log
from millstream.storage.config import LogConfig
from millstream.storage.express_lane import ExpressLane, PlainExpressLane
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.logs import open_log

if TYPE_CHECKING:
    from millstream.storage.unified_log import UnifiedLog

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

DIRECTORY = "/logs/t-0"
BATCHES = 1200


def filled(lane: Any, timestamp_of: Any, room: int) -> tuple[UnifiedLog, SimFileSystem]:
    """A log with an entry for each batch, and index files of so many bytes."""
    filesystem = SimFileSystem(Random(1))
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=room, segment_ms=10**9)
    with mock.patch.object(unified_log, "ExpressLane", lane):
        log = open_log(filesystem, DIRECTORY, config)
    for number in range(BATCHES):
        records = batch_bytes(timestamps=[timestamp_of(number)])
        if log.append_committed(bytearray(records), 0, NOW_MS) is None:
            log.append_as_leader(bytearray(records), 0, NOW_MS)
    return log, filesystem


def indexes_of(log: UnifiedLog, filesystem: SimFileSystem) -> dict[str, bytes]:
    log.close()
    names = [each.name for each in filesystem.scan(DIRECTORY) if each.name.endswith("index")]
    return {each: filesystem.read_bytes(f"{DIRECTORY}/{each}") for each in names}


@pytest.mark.parametrize("room", [1 << 20, 4096])
@pytest.mark.parametrize(
    "timestamp_of",
    [lambda number: NOW_MS + number, lambda number: NOW_MS, lambda number: NOW_MS - number],
    ids=["later", "same", "earlier"],
)
def test_both_lanes_leave_the_same_indexes(timestamp_of: Any, room: int) -> None:
    compiled, plain = (
        indexes_of(*filled(lane, timestamp_of, room)) for lane in (ExpressLane, PlainExpressLane)
    )

    assert compiled == plain
    assert any(compiled.values())
