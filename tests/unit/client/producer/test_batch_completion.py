"""The end of batches: memory, and who is told."""

from __future__ import annotations

from random import Random

from millstream.client.producer.batch_completion import BatchCompletion
from millstream.client.producer.config import ProducerConfig
from millstream.client.producer.partition_state import PartitionState
from millstream.client.producer.produce_exchange import Produced
from tests.unit.client.producer.fakes import Bench


def test_memory_is_free_and_all_are_done_before_anybody_is_told() -> None:
    bench = Bench(linger_ms=0, partitions=2)
    bench.send(b"first", partition=0)
    bench.send(b"second", partition=1)
    batches = bench.take()
    config = ProducerConfig(bootstrap_servers=("a:1",))
    completion = BatchCompletion(bench.accumulator, config, Random(1), None, lambda _state: None)
    seen: list[tuple[int, bool]] = []
    for batch in batches:
        batch.listen(
            lambda: seen.append(
                (bench.accumulator.buffered_bytes, all(each.is_done for each in batches))
            )
        )
    produced = []
    for offset, batch in enumerate(batches):
        queue = bench.accumulator._topics[batch.topic].partitions[batch.partition]
        state = PartitionState(queue, batch.topic)
        state.in_flight_count = 1
        produced.append(Produced(state, batch, offset, -1))

    completion.acknowledge_all(produced, now_ms=0)

    assert seen == [(0, True), (0, True)]
    assert [each.state.in_flight_count for each in produced] == [0, 0]
    assert [each.base_offset for each in batches] == [0, 1]
