"""What the parts of a producer are tested with: callbacks at once, batches at will."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from millstream.client.producer.completions import Completions
from millstream.client.producer.produce_sink import (
    NOBODY,
    UNLIMITED,
    ProducerIdentity,
    Route,
)
from millstream.client.producer.producer_batch import ProducerBatch
from millstream.client.producer.record_accumulator import RecordAccumulator
from millstream.clock import ManualClock
from millstream.records import BatchWriter

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "topic"
ROUTE = Route(connection_id=1, version=13, attributes=0, topic=0, head=b"")


class InlineDispatcher:
    """Calls at once, on the caller's thread."""

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        function(*arguments)


class Bench:
    """An accumulator with manual time, and how often it called for the Sender."""

    def __init__(self, *, partitions: int = 1, **settings: Any) -> None:
        self.clock = ManualClock()
        self.wakes = 0
        self.completions = Completions(InlineDispatcher())
        given: dict[str, Any] = {
            "batch_size": 1000,
            "linger_ms": 5,
            "buffer_memory": 100_000,
            "record_size_max": 10_000,
            **settings,
        }
        self.accumulator = RecordAccumulator(
            clock=self.clock,
            random=Random(1),
            completions=self.completions,
            wake=self._wake,
            **given,
        )
        self.accumulator.set_topic(TOPIC, partitions, range(partitions))

    def _wake(self) -> None:
        self.wakes += 1

    def send(self, value: bytes = b"v", partition: int = 0, **given: Any) -> Any:
        """Append one record."""
        return self.accumulator.append(TOPIC, partition, given.pop("key", None), value, **given)

    def take(self) -> list[ProducerBatch]:
        """Everything that is due now, oldest first within a partition."""
        return take_all(self.accumulator, self.clock.monotonic_ms())


def grant_all(accumulator: RecordAccumulator, identity: ProducerIdentity = NOBODY) -> None:
    """Let every partition send as much as it has."""
    for topic in accumulator._topics.values():
        for queue in topic.partitions:
            assert accumulator.grant(queue, ROUTE, UNLIMITED, identity)


def take_all(accumulator: RecordAccumulator, now_ms: int) -> list[ProducerBatch]:
    """Everything that is due, as the Sender takes it, oldest first within a partition."""
    grant_all(accumulator)
    found: list[ProducerBatch] = []
    while (taken := accumulator.take(ROUTE.connection_id, now_ms)[0]) != []:
        found += [batch for _, batch in taken]
    return sorted(found, key=lambda batch: batch.partition)


def make_batch(count: int = 3, completions: Completions | None = None) -> ProducerBatch:
    """A batch of records b"0", b"1", ..., not sent yet."""
    batch = ProducerBatch(
        TOPIC, 0, BatchWriter(), 0, 0, completions or Completions(InlineDispatcher())
    )
    assert batch.writer is not None
    for number in range(count):
        batch.writer.append(number, None, b"%d" % number)
    batch.record_count = count
    return batch
