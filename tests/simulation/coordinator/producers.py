"""Idempotent producers, and what producers of every kind have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millstream.records import RecordBatchBuilder
from millstream.types import Uuid
from tests.simulation.coordinator.client import Client, Rest
from tests.simulation.coordinator.network import Ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.coordinator.client import Script
    from tests.simulation.coordinator.world import World

IN_FLIGHT = 5


class Identity:
    """Who a producer is, and the sequence of its next batch by partition."""

    def __init__(self, transactional_id: str | None = None) -> None:
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def take(self, producer_id: int, epoch: int) -> None:
        """Go on as this producer; sequences begin anew with an epoch."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def batch(self, wall_ms: int, values: Sequence[str], sequence: int) -> bytes:
        """A batch of some values."""
        builder = RecordBatchBuilder(256)
        for value in values:
            builder.append(wall_ms, None, value.encode())
        return bytes(
            builder.build(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                is_transactional=self.transactional_id is not None,
            )
        )


def produce_ask(
    world: World, identity: Identity, topic: str, partition: int, records: bytes, version: int = 13
) -> Ask:
    """A Produce request of one batch."""
    data = PartitionProduceData(index=partition, records=records)
    request = ProduceRequest(
        transactional_id=identity.transactional_id,
        acks=-1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=world.broker.metadata.topic_id(topic) or Uuid.ZERO,
                partition_data=[data],
            )
        ],
    )
    return Ask(request, version)


class IdempotentProducer(Client):
    """Writes values to one partition of the input, several batches in flight, until all are in."""

    def __init__(self, world: World, name: str, partition: int, count: int) -> None:
        self.partition = partition
        self.left = [f"{name}:{number}" for number in range(count)]
        """What nobody has acknowledged yet."""
        self.identity = Identity()
        world.model.will_write(partition, self.left)
        super().__init__(world, name)

    def script(self) -> Script:
        """Get an id; then send and send again."""
        while self.identity.producer_id < 0:
            answer = yield Ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 5
            )
            if answer is not None and not answer.error_code:
                self.identity.take(answer.producer_id, answer.producer_epoch)
        sequence = 0
        while self.left:
            count = self.random.randint(1, IN_FLIGHT)
            sent = self.left[:count]
            answers = yield [self._ask(value, sequence + place) for place, value in enumerate(sent)]
            for value, answer in zip(sent, answers, strict=True):
                if answer is None:
                    break
                (result,) = answer.responses[0].partition_responses
                assert result.error_code == 0, result
                self.world.model.written(self.partition, value, result.base_offset)
                self.left.pop(0)
                sequence += 1
            yield Rest(self.random.randint(100, 1_500))

    def _ask(self, value: str, sequence: int) -> Ask:
        records = self.identity.batch(self.world.schedule.clock.wall_ms(), [value], sequence)
        return produce_ask(self.world, self.identity, "input", self.partition, records)
