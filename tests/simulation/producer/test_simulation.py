"""What a producer promises, while connections break, brokers restart and leaders move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.producer.world import ACCUMULATORS, ProducerWorld

if TYPE_CHECKING:
    from millstream.client.producer.record_accumulator import RecordAccumulator


@pytest.mark.parametrize("accumulator", ACCUMULATORS)
@pytest.mark.parametrize("seed", range(40))
def test_no_record_is_lost_doubled_or_out_of_order_whatever_happens(
    seed: int, accumulator: type[RecordAccumulator]
) -> None:
    ProducerWorld(seed, accumulator).run()
