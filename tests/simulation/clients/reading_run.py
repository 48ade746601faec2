"""`python -m tests.simulation.clients.reading_run`: producer to consumer, with faults by seed."""

from __future__ import annotations

import sys

from tests.simulation.clients.reading_world import ReadingWorld
from tests.simulation.seeds import run_seeds

if __name__ == "__main__":
    sys.exit(run_seeds(__doc__, ReadingWorld, "millstream"))
