"""`python -m tests.simulation.clients.transactions_run`: transactions with faults, many times."""

from __future__ import annotations

import sys

from tests.simulation.clients.transaction_world import TransactionWorld
from tests.simulation.seeds import run_seeds

if __name__ == "__main__":
    sys.exit(run_seeds(__doc__, TransactionWorld, "millstream"))
