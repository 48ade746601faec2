"""Seeded runs keep their promises. `python -m tests.simulation.membership.run` runs more seeds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.membership.reconciliation import Reconciliation
from tests.simulation.membership.world import SimWorld, run_seed

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Members that are put out say so, and here they are by the hundred."""
    logger = logging.getLogger("millstream")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@settings(max_examples=40, deadline=None)
@given(seed=integers(0, 2**32 - 1))
def test_no_partition_is_with_two_members_and_all_are_read_in_the_end(seed: int) -> None:
    run_seed(seed)


def test_a_seed_runs_the_same_way_twice() -> None:
    runs = []
    for _ in range(2):
        world = SimWorld(11)
        world.begin_trace()
        world.run()
        runs.append(world.trace)

    assert runs[0] == runs[1]
    assert len(runs[0]) > 10


# --- The simulation can fail ---


def test_members_that_keep_what_they_shall_give_back_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eager assignors rely on members that gave everything back."""
    monkeypatch.setattr(ConsumerConfig, "is_cooperative", True)

    with pytest.raises(AssertionError, match=" is with "):
        run_seeds_of("range")


def test_members_that_take_no_steps_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconciliation, "_receive", lambda self: None)

    with pytest.raises(AssertionError, match="are read"):
        run_seeds_of("consumer")


def run_seeds_of(kind: str) -> None:
    for seed in range(200):
        world = SimWorld(seed)
        if world._kind == kind:
            world.run()
