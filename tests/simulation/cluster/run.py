"""Runs many seeds of whole clusters: `python -m tests.simulation.cluster.run --seeds 2000`.

A seed that fails is named and can be run alone with `--seeds 1 --start SEED --trace`.
"""

from __future__ import annotations

import sys

from tests.simulation.cluster.chaos import Chaos
from tests.simulation.seeds import fix_hashes, run_seeds

if __name__ == "__main__":
    fix_hashes("tests.simulation.cluster.run")
    sys.exit(run_seeds(__doc__, Chaos, "millstream"))
