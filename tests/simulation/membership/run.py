"""Runs many seeds: `python -m tests.simulation.membership.run --seeds 500 --start 0`.

A seed that fails is named and can be run alone with `--seeds 1 --start SEED --trace`.
"""

from __future__ import annotations

import sys

from tests.simulation.membership.world import SimWorld
from tests.simulation.seeds import run_seeds

if __name__ == "__main__":
    sys.exit(run_seeds(__doc__, SimWorld, "millstream"))
