"""Runs many seeds of whole clusters: `python -m tests.simulation.cluster.run --seeds 2000`.

A seed that fails is named and can be run alone with `--seeds 1 --start SEED --trace`.
"""

from __future__ import annotations

import os
import sys

from tests.simulation.cluster.chaos import Chaos
from tests.simulation.seeds import run_seeds

if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of what a seed must decide.
        module = "tests.simulation.cluster.run"
        arguments = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(run_seeds(__doc__, Chaos, "millstream"))
