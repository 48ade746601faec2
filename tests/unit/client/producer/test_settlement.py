"""The end of batches: memory, and who is told."""

from __future__ import annotations

from random import Random
from typing import Any

from millstream.client.producer.lane import Lane
from millstream.client.producer.produce_exchange import Produced
from millstream.client.producer.settlement import Settlement
from tests.unit.client.producer.fakes import Bench


def test_memory_is_free_and_all_are_done_before_anybody_is_told() -> None:
    bench = Bench(linger_ms=0, partitions=2)
    bench.send(b"first", partition=0)
    bench.send(b"second", partition=1)
    batches = bench.take()
    config: Any = None  # Nothing is sent again.
    settlement = Settlement(bench.accumulator, config, Random(1), None, lambda _lane: None)
    seen: list[tuple[int, bool]] = []
    for batch in batches:
        batch.listen(
            lambda: seen.append(
                (bench.accumulator.buffered_bytes, all(each.is_done for each in batches))
            )
        )
    produced = []
    for offset, batch in enumerate(batches):
        lane = Lane(bench.accumulator._topics[batch.topic].partitions[batch.partition], batch.topic)
        lane.sent_count = 1
        produced.append(Produced(lane, batch, offset, -1))

    settlement.acknowledge_all(produced)

    assert seen == [(0, True), (0, True)]
    assert [each.lane.sent_count for each in produced] == [0, 0]
    assert [each.base_offset for each in batches] == [0, 1]
