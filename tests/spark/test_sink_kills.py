"""A few kills of the exactly-once soak; `make soak-spark` has many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.exactly_once_soak import MOMENTS, RestartingBroker, Soak, draw_plan

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

PLAN = {
    "0-0-marked": "task",
    "0-1-committing": "broker",
    "0-2-committed": "task",
    "1-0-producing": "zombie",
    "1-1-initialized": "task",
}


def test_every_row_is_committed_once_whatever_is_killed(tmp_path: Path) -> None:
    home = tmp_path / "soak"
    home.mkdir()
    broker = RestartingBroker(home)
    try:
        outcome = Soak(home, broker.address, PLAN, seed=1).run()
    finally:
        broker.close()

    assert outcome.kills == {"task": 3, "broker": 1, "zombie": 1}
    assert outcome.drivers == 2
    assert outcome.written > outcome.rows


def test_a_plan_has_as_many_kills_as_asked_for_and_all_steps() -> None:
    plan = draw_plan(seed=5, kills=100)

    assert len(plan) == 100
    assert {moment.split("-")[2] for moment in plan} >= set(MOMENTS)
    assert set(plan.values()) == {"task", "broker", "driver", "zombie"}
    assert draw_plan(seed=5, kills=100) == plan
