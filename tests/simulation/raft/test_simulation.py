"""Seeded clusters keep their promises; the longer runner is `python -m tests.simulation.raft.run`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from tests.simulation.raft.chaos import Chaos, run_seed

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOWN_SEEDS = [
    12,  # A leader removed itself and failed: nobody could be elected.
    514,  # The bootstrap servers were no voters any more and knew no leader.
    592,
    651,
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Refused answers are warnings of raft, and here they come by the hundred."""
    logger = logging.getLogger("millstream.raft")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("seed", KNOWN_SEEDS)
def test_a_seed_that_once_failed_does_not_fail_again(seed: int) -> None:
    run_seed(seed)


@pytest.mark.slow
@settings(max_examples=40)
@given(seed=integers(0, 2**32 - 1))
def test_committed_records_survive_whatever_happens(seed: int) -> None:
    run_seed(seed)


def test_a_seed_runs_the_same_way_twice() -> None:
    runs = []
    for _ in range(2):
        chaos = Chaos(7)
        chaos.cluster.wire_log = []
        chaos.run()
        runs.append(chaos.cluster.wire_log)

    assert runs[0] == runs[1]
    assert len(runs[0]) > 100
