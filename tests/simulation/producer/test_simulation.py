"""What a producer promises, while connections break, brokers restart and leaders move."""

from __future__ import annotations

import pytest

from tests.simulation.producer.world import ProducerWorld


@pytest.mark.parametrize("seed", range(60))
def test_no_record_is_lost_doubled_or_out_of_order_whatever_happens(seed: int) -> None:
    ProducerWorld(seed).run()
