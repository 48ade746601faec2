"""The long run: `python -m tests.simulation.storage.run --seeds 2000`.

Prints each seed that fails with its story, and ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback

from tests.simulation.storage.simulation import run_seed


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many (default 2000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--steps", type=int, default=60, help="operations per seed (default 60)")
    options = parser.parse_args(arguments)
    # Every recovery logs what it cuts, thousands of times here.
    logging.disable(logging.CRITICAL)
    failed = []
    for seed in range(options.start, options.start + options.seeds):
        try:
            run_seed(seed, options.steps)
        except Exception:
            failed.append(seed)
            sys.stdout.write(f"{traceback.format_exc()}\n")
    sys.stdout.write(f"{options.seeds} seeds from {options.start}: {len(failed)} failed {failed}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
