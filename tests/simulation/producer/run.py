"""`python -m tests.simulation.producer.run --seeds 2000`: a producer and its faults, many times."""

from __future__ import annotations

import sys

from tests.simulation.producer.world import ProducerWorld
from tests.simulation.seeds import run_seeds

if __name__ == "__main__":
    sys.exit(run_seeds(__doc__, ProducerWorld, "millstream"))
