"""Runs many seeds of whole clusters with a writer of records, whose loss would be noticed.

A seed that fails is named and can be run alone with `--seeds 1 --start SEED --trace`.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.simulation.cluster.chaos import Chaos
from tests.simulation.seeds import fix_hashes, run_seeds

if __name__ == "__main__":
    fix_hashes("tests.simulation.cluster.records_run")
    sys.exit(run_seeds(__doc__, partial(Chaos, writes=True), "millstream"))
