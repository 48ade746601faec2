"""Did a benchmark get better or worse since another revision? Both run alternately, here and there.

    python -m tools.compare_revisions ../before broker --without-kafka --rounds 1
    make compare BEFORE=../before BENCH=broker ARGS='--without-kafka --rounds 1'

The other revision is a checkout with an environment of its own (`git worktree add ../before REV`,
`make setup` there). Each revision runs its own benchmark with its own interpreter, `--times` times
(three unless told), and they take turns in which begins. Of each figure of ours the median counts.
CPU time comes first: it is what a busy machine disturbs least. A ratio above 1
says that this revision is better; what lost more than `--tolerance` is named again at the end. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
CPU = "cpu"
"""What names of figures of CPU time have in them, `idle_cpu_us_per_second` among them."""
MORE_IS_BETTER = ("_per_second", "_per_s", "mb_s")
"""How names of figures end that should grow; all others are times, costs and sizes."""


def main() -> None:
    """Run both, print a table, tell what lost."""
    options, arguments = parse_arguments()
    trees = {"before": options.before.resolve(), "now": HERE}
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for number in range(options.times):
        names = list(trees) if number % 2 == 0 else list(reversed(trees))
        for name in names:
            taken[name].append(run(trees[name], options.benchmark, arguments))
    rows = compare(taken["now"], taken["before"])
    for row, (now, before, ratio) in rows.items():
        print(f"{row:52} now {now:14,.2f}   before {before:14,.2f}   {ratio:5.2f}x")
    lost = {row: found[2] for row, found in rows.items() if found[2] < 1 - options.tolerance}
    print(f"{len(lost)} of {len(rows)} figures lost more than {options.tolerance:.0%}")
    for row, ratio in sorted(lost.items(), key=lambda each: each[1]):
        print(f"  {row:50} {ratio:.2f}x")
    print(json.dumps({row: round(found[2], 3) for row, found in rows.items()}))


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """The command line; what is not known here is the benchmark's."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.compare_revisions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path, help="a checkout of the other revision")
    parser.add_argument("benchmark", help="its name, such as broker or clients")
    parser.add_argument("--times", type=int, default=3, help="how often each revision runs")
    parser.add_argument("--tolerance", type=float, default=0.05, help="a loss that is not told")
    options, arguments = parser.parse_known_args()
    if not (interpreter := python_of(options.before)).exists():
        parser.error(f"{interpreter} does not exist; run `make setup` in {options.before}")
    return options, arguments


def python_of(tree: Path) -> Path:
    """The interpreter of a checkout's own environment."""
    return tree / ".venv" / "bin" / "python"


def run(tree: Path, benchmark: str, arguments: list[str]) -> dict[str, float]:
    """The figures of one run in one checkout."""
    command = [str(python_of(tree)), "-m", f"benchmarks.{benchmark}", "--json", *arguments]
    print(f"{tree.name}: {' '.join(command[1:])}", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    return figures(json.loads(done.stdout.splitlines()[-1]))


def figures(results: dict[str, Any]) -> dict[str, float]:
    """Our own figures of a result: a number, or the `ours` of a pair."""
    ours = {
        name: found.get("ours") if isinstance(found, dict) else found
        for name, found in results.items()
    }
    return {name: float(value) for name, value in ours.items() if isinstance(value, int | float)}


def compare(
    now: list[dict[str, float]], before: list[dict[str, float]]
) -> dict[str, tuple[float, float, float]]:
    """For each figure that both have: both medians, and how many times better this revision is."""
    rows = {}
    for name in sorted(now[0], key=lambda each: CPU not in each):
        if name not in before[0]:
            continue
        ours = statistics.median(each[name] for each in now)
        theirs = statistics.median(each[name] for each in before)
        if ours > 0 and theirs > 0:
            rows[name] = (ours, theirs, ours / theirs if should_grow(name) else theirs / ours)
    return rows


def should_grow(name: str) -> bool:
    """Whether more is better; what follows an @ says with which peer: `mb_s@kcat`."""
    figure, _, _peer = name.partition("@")
    return figure.endswith(MORE_IS_BETTER) and CPU not in figure


if __name__ == "__main__":
    main()
