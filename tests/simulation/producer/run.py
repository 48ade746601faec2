"""`python -m tests.simulation.producer.run --seeds 2000`: a producer and its faults, many times.

Each seed is played with the plain accumulator and with the compiled one.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.simulation.producer.world import ACCUMULATORS, ProducerWorld
from tests.simulation.seeds import run_seeds

if __name__ == "__main__":
    sys.exit(
        max(
            run_seeds(__doc__, partial(ProducerWorld, accumulator=accumulator), "millstream")
            for accumulator in ACCUMULATORS
        )
    )
