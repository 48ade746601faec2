"""A few kills of the exactly-once soak; `make soak-spark` has many."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.spark.exactly_once_soak import (
    MOMENTS,
    Outcome,
    RestartingBroker,
    Soak,
    draw_plan,
    faults,
)
from tests.spark.soak_job import Plan

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
    assert (outcome.drivers, broker.starts) == (2, 2)
    assert outcome.written > outcome.rows


def test_a_plan_has_as_many_kills_as_asked_for_and_all_steps() -> None:
    plan = draw_plan(seed=5, kills=100)

    assert len(plan) == 100
    assert {moment.split("-")[2] for moment in plan} >= set(MOMENTS)
    assert set(plan.values()) == {"task", "broker", "driver", "zombie"}
    assert draw_plan(seed=5, kills=100) == plan


def test_a_soak_with_fewer_kills_than_asked_for_has_failed() -> None:
    outcome = Outcome(Counter({"task": 3, "broker": 1}), brokers=2)

    assert faults(outcome, 4) == []
    assert faults(outcome, 5) == ["4 kills have happened, 5 were asked for"]


def test_a_soak_whose_broker_died_by_itself_has_failed() -> None:
    outcome = Outcome(Counter({"broker": 1}), brokers=3)

    assert faults(outcome, 1) == ["the broker was killed 1 times and had 3 lives"]


def test_a_kill_counts_when_it_has_happened_and_a_broker_dies_once(tmp_path: Path) -> None:
    for name in ("plan", "claimed", "done", "lives"):
        (tmp_path / name).mkdir()
    for moment in ("0-0-read", "0-1-read", "0-2-read"):
        (tmp_path / "plan" / moment).write_text("broker")
    plan = Plan(str(tmp_path), "localhost:1", "t", None, driver_group=0, seed=1)

    def fails() -> None:
        raise OSError("the broker is away")

    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as second:
        (tmp_path / "broker.pid").write_text(str(first.pid))
        with pytest.raises(OSError, match="away"):
            plan.visit("0-0-read", fails)
        assert list((tmp_path / "done").iterdir()) == []

        plan.visit("0-0-read")
        assert first.wait() < 0
        # The next one waits for another life.
        later = threading.Thread(target=plan.visit, args=("0-1-read",))
        later.start()
        (tmp_path / "next.pid").write_text(str(second.pid))
        (tmp_path / "next.pid").rename(tmp_path / "broker.pid")
        later.join()
        assert second.wait() < 0

    assert sorted(each.name for each in (tmp_path / "done").iterdir()) == ["0-0-read", "0-1-read"]
    assert [each.name for each in (tmp_path / "plan").iterdir()] == ["0-2-read"]
