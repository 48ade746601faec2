"""What is better and what is worse than in another revision."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tools import compare_revisions

if TYPE_CHECKING:
    from pathlib import Path


def test_a_figure_is_a_number_or_the_half_of_a_pair_that_is_ours() -> None:
    results = {"a_us": 2, "b_us": {"ours": 3.5, "peer": 7.0}, "c_us": {"ours": None}, "d": "text"}

    assert compare_revisions.figures(results) == {"a_us": 2.0, "b_us": 3.5}


def test_above_one_is_better_for_rates_and_for_costs() -> None:
    now = [{"cpu_us": 10.0, "requests_per_second": 300.0, "new": 1.0}]
    before = [{"cpu_us": 20.0, "requests_per_second": 100.0}]

    rows = compare_revisions.compare(now, before)

    assert rows == {"cpu_us": (10.0, 20.0, 2.0), "requests_per_second": (300.0, 100.0, 3.0)}


@pytest.mark.parametrize(
    ("name", "grows"),
    [
        ("send_messages_per_second", True),
        ("send_messages_per_second@aiokafka", True),
        ("write_mb_s@kcat", True),
        ("send_cpu_us@aiokafka", False),
        ("idle_cpu_us_per_second", False),
        ("ready_ms", False),
    ],
)
def test_a_rate_is_known_by_its_name_whoever_it_was_measured_with(name: str, grows: bool) -> None:
    assert compare_revisions.should_grow(name) is grows


def test_figures_of_cpu_time_come_first() -> None:
    names = ["ready_ms", "send_cpu_us", "read_mb_s", "read_cpu_ns@kcat"]
    run = dict.fromkeys(names, 1.0)

    rows = compare_revisions.compare([run], [run])

    assert list(rows) == ["send_cpu_us", "read_cpu_ns@kcat", "ready_ms", "read_mb_s"]


def test_the_median_of_all_runs_counts() -> None:
    now = [{"cpu_us": each} for each in (1.0, 9.0, 2.0)]

    rows = compare_revisions.compare(now, [{"cpu_us": 4.0}])

    assert rows["cpu_us"] == (2.0, 4.0, 2.0)


def test_a_checkout_without_an_environment_is_refused_with_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.compare_revisions", str(tmp_path), "records"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "run `make setup` in" in done.stderr
