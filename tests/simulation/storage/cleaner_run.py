"""Many seeds of the cleaner's simulation: python -m tests.simulation.storage.cleaner_run --seeds N

A failing seed is printed with its story and reproduces with --start SEED --seeds 1.
"""

from __future__ import annotations

import argparse
import logging
import sys

from tests.simulation.storage.cleaner_simulation import CleanerSimulation


def main() -> int:
    """Run the seeds; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=150, help="operations per seed")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    passes = 0
    for seed in range(arguments.start, arguments.start + arguments.seeds):
        simulation = CleanerSimulation(seed)
        try:
            simulation.run(arguments.steps)
        except BaseException:
            sys.stderr.write(f"seed {seed} fails after: {', '.join(simulation.story)}\n")
            raise
        passes += len(simulation.world.cleaned)
    sys.stdout.write(f"{arguments.seeds} seeds, {passes} passes of the cleaner, no fault\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
