"""What is better and what is worse than in another revision."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

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


def test_the_median_of_all_runs_counts() -> None:
    now = [{"cpu_us": each} for each in (1.0, 9.0, 2.0)]

    rows = compare_revisions.compare(now, [{"cpu_us": 4.0}])

    assert rows["cpu_us"] == (2.0, 4.0, 2.0)


def test_a_checkout_without_an_environment_is_refused_with_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.compare_revisions", str(tmp_path), "records"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "run `make setup` in" in done.stderr
