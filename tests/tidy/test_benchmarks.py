"""Every benchmark is asked in the same way: `--quick`, `--json`, and `make bench` runs it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tools import tidy

if TYPE_CHECKING:
    from pathlib import Path

BENCHMARKS = sorted(
    path
    for path in (tidy.ROOT / "benchmarks").glob("*.py")
    if '__name__ == "__main__"' in path.read_text()
)


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("option", ["--quick", "--json"])
def test_each_benchmark_offers_the_options_of_the_house(path: Path, option: str) -> None:
    assert f'"{option}", action="store_true"' in path.read_text()


def test_make_bench_runs_each_benchmark() -> None:
    recipe = re.search(r"for question in (.*?);", (tidy.ROOT / "Makefile").read_text(), re.DOTALL)

    assert recipe is not None
    assert sorted(recipe[1].replace("\\\n", " ").split()) == [path.stem for path in BENCHMARKS]
