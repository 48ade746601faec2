"""Runs many seeds: `python -m tests.simulation.coordinator.run --seeds 2000 --start 0`.

A seed that fails is named and can be run alone with `--seeds 1 --start SEED --trace`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.simulation.coordinator.world import World


def main() -> int:
    """Run the seeds that the command line names; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--trace", action="store_true", help="print the messages of a failure")
    arguments = parser.parse_args()
    logging.getLogger("millstream").setLevel(logging.ERROR)
    began = time.perf_counter()
    failed = []
    for seed in range(arguments.start, arguments.start + arguments.seeds):
        world = World(seed)
        world.network.trace = [] if arguments.trace else None
        try:
            world.run()
        except Exception:
            failed.append(seed)
            traceback.print_exc()
            for line in (world.network.trace or [])[-400:]:
                print(line)  # noqa: T201  # The output of a command.
            print(f"seed {seed} failed")  # noqa: T201
    seconds = time.perf_counter() - began
    print(f"{arguments.seeds} seeds in {seconds:.1f} s, failed: {failed or 'none'}")  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
