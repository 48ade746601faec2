"""A slice of the cleaner's simulation, and a crash at every single access to the disk."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.storage.log.config import LogConfig
from tests.simulation.storage.checks import check_producers
from tests.simulation.storage.cleaner_checks import committed_reads
from tests.simulation.storage.cleaner_simulation import CleanerSimulation
from tests.simulation.storage.cleaner_world import CleanerWorld, small_map
from tests.simulation.storage.harness import Crash

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = 25
OPERATIONS_MAX = 2000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_life_with_crashes(seed: int) -> None:
    CleanerSimulation(seed).run(100)


@pytest.mark.parametrize("seed", [640], ids=["an emptied marker is all that is left of a producer"])
def test_a_life_that_once_went_wrong(seed: int) -> None:
    CleanerSimulation(seed).run(150)


def build_world(*, flushes_at_roll: bool = True) -> CleanerWorld:
    """Several segments with superseded values, tombstones, commits and aborts.

    Three of them fit into one segment by the time they are cleaned.
    """
    world = CleanerWorld(
        Random(5),
        LogConfig(
            cleanup_policy=("compact",),
            internal_segment_bytes=700,
            index_interval_bytes=150,
            segment_index_bytes=4000,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=1000,
        ),
        small_map(1000),
    )
    world.flushes_at_roll = flushes_at_roll
    for number in range(8):
        key = b"k%d" % (number % 5)
        world.append([(key, b"v" * 20), (b"once-%d" % number, b"w" * 9)], producer_id=1)
        world.append([(key, b"x" * 20), (b"gone-%d" % number, b"y")], producer_id=101)
        world.append([(b"k0", None if number % 4 == 3 else b"z")], producer_id=102)
        world.end_transaction(101, is_abort=number % 2 == 0)
        if number % 3 == 2:
            world.end_transaction(102, is_abort=False)
    world.end_transaction(102, is_abort=True)
    world.append([(b"end", b"")])
    world.raise_high_watermark(world.log.log_end_offset)
    world.change_config(internal_segment_bytes=3000)
    return world


def flushed_world() -> CleanerWorld:
    """The same, with everything on disk."""
    world = build_world()
    world.log.flush()
    world.harness.checkpoint()
    return world


def world_with_horizons() -> CleanerWorld:
    """The same after a pass, when the horizons of its tombstones and markers have passed."""
    world = flushed_world()
    world.clean()
    world.unlink_discarded()
    world.harness.clock.advance(2000)
    world.change_config(internal_segment_bytes=700)
    for number in range(12):
        world.append([(b"k1", b"%d" % number * 30), (b"later", b"." * 90)])
    world.raise_high_watermark(world.log.log_end_offset)
    world.change_config(internal_segment_bytes=3000)
    world.log.flush()
    world.harness.checkpoint()
    world.write_cleaner_offset()
    return world


def clean_and_unlink(world: CleanerWorld) -> None:
    """A pass, and the end of what it replaced."""
    world.clean()
    world.unlink_discarded()


def count_accesses(work: Callable[[], None], world: CleanerWorld) -> int:
    """How many accesses to the disk some work has."""
    count = 0

    def on_access(operation: str, path: str, size: int) -> None:
        nonlocal count
        count += 1

    world.harness.filesystem.before_operation = on_access
    work()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("is_power_loss", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("build", [flushed_world, world_with_horizons])
def test_a_crash_at_any_access_to_the_disk_costs_nothing(
    build: Callable[[], CleanerWorld], is_power_loss: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    reference = build()
    total = count_accesses(lambda: clean_and_unlink(reference), reference)
    expected = committed_reads(reference.log, 0, 1 << 20)
    assert total > 100
    for crash_at in range(total):
        world = build()
        world.reseed_disk(crash_at)
        world.harness.crash_within(crash_at)
        with pytest.raises(Crash):
            clean_and_unlink(world)
        if is_power_loss:
            world.restart_after_power_loss()
        else:
            world.restart_after_kill()
        try:
            world.check()
            check_producers(world.log, world.model, 0)
            world.clean()
            world.check()
        except BaseException as error:
            error.add_note(f"after a crash at access {crash_at}")
            raise
        # The pass is done again as if nothing had happened.
        assert committed_reads(world.log, 0, 1 << 20) == expected


@pytest.mark.parametrize("seed", range(20))
def test_what_supersedes_is_on_disk_before_what_it_supersedes_goes(seed: int) -> None:
    world = build_world(flushes_at_roll=False)
    world.reseed_disk(seed)
    assert world.log.recovery_point == 0
    world.clean()
    (stats,) = world.cleaned
    world.restart_after_power_loss()
    assert world.log.log_end_offset >= stats.end_offset
    assert world.history.clean_end == stats.end_offset
    world.check()


def test_no_transaction_is_open_for_ever_whose_marker_was_compacted_away() -> None:
    world = build_world()
    world.append([(b"k0", b"aborted")], producer_id=101)
    world.roll()  # The producer snapshot of this moment knows the open transaction.
    world.end_transaction(101, is_abort=True)
    world.log.flush()
    world.harness.checkpoint()
    for _ in range(3):
        world.roll()
        world.append([(b"k0", b"newer")])
        world.roll()
        world.raise_high_watermark(world.log.log_end_offset)
        world.change_config(internal_segment_bytes=1)  # Every segment is cleaned alone.
        world.clean()
        world.change_config(internal_segment_bytes=3000)
        world.harness.clock.advance(20_000)
    world.restart_after_kill()
    assert world.log.last_stable_offset == world.log.log_end_offset
    world.check()
