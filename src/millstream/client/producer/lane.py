"""`Lane`: what the Sender knows of one partition. Only the I/O thread sees it.

Behind it is the accumulator's queue of new batches; in it are the batches that were taken: those
to be sent again, and how those under way are numbered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from millstream.client.producer.partition_queues import PartitionQueue
    from millstream.client.producer.producer_batch import ProducerBatch

NO_NODE: Final = -1
"""The leader is not known."""


class ProducerIdentity(NamedTuple):
    """Who numbers the batches: a producer id and its epoch."""

    producer_id: int
    epoch: int


NOBODY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Lane:
    """One partition: its leader, its retries, its numbers."""

    __slots__ = (
        "identity",
        "is_unresolved",
        "last_acked_offset",
        "last_acked_sequence",
        "leader_epoch",
        "next_sequence",
        "node_id",
        "numbered",
        "partition",
        "queue",
        "retries",
        "sent_count",
        "topic",
        "wire_topic",
    )

    def __init__(self, queue: PartitionQueue, wire_topic: str) -> None:
        self.queue = queue
        self.topic = queue.topic.name
        self.wire_topic = wire_topic
        self.partition = queue.index
        self.node_id = NO_NODE
        self.leader_epoch = -1
        self.retries: list[ProducerBatch] = []
        """To be sent again, in the order in which they were sent first."""
        self.sent_count = 0
        """How many are on their way at this moment."""
        # How batches are numbered, for an idempotent producer.
        self.identity = NOBODY
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.numbered: list[ProducerBatch] = []
        """Those with a sequence that are not done, in order: on their way, or to be sent again."""
        self.is_unresolved = False
        """A batch timed out on its way: whether the broker has its numbers is not known."""

    def __repr__(self) -> str:
        return f"<Lane {self.wire_topic}-{self.partition} at node {self.node_id}>"

    def put_back(self, batch: ProducerBatch) -> None:
        """Have a batch sent again, in its old place."""
        if batch.has_sequence:
            order = {id(each): place for place, each in enumerate(self.numbered)}
            self.retries.append(batch)
            self.retries.sort(key=lambda each: order.get(id(each), -1))
        else:
            self.retries.append(batch)
            self.retries.sort(key=lambda each: each.created_ms)
