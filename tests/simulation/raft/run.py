"""Runs many seeds: `python -m tests.simulation.raft.run --seeds 2000 --start 0`.

A seed that fails is named and can be run alone with `--seeds 1 --start SEED --trace`.
"""

from __future__ import annotations

import sys

from tests.simulation.raft.chaos import Chaos
from tests.simulation.seeds import run_seeds

if __name__ == "__main__":
    sys.exit(run_seeds(__doc__, Chaos, "millstream.raft"))
