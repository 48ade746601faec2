"""What clients promise together, while connections break, brokers restart and leaders move."""

from __future__ import annotations

import pytest

from tests.simulation.clients.reading_world import ReadingWorld
from tests.simulation.clients.transaction_world import TransactionWorld


@pytest.mark.parametrize("seed", range(25))
def test_what_is_acknowledged_is_read_once_and_in_order(seed: int) -> None:
    ReadingWorld(seed).run()


@pytest.mark.parametrize("seed", range(15))
def test_committed_transactions_are_read_whole_and_aborted_ones_never(seed: int) -> None:
    TransactionWorld(seed).run()
