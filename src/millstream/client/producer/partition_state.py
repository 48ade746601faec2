"""`PartitionState`: what the Sender knows of one partition. Only the I/O thread sees it.

Behind it is the accumulator's queue, which owns the batches that wait and the next sequence; here
is where they go, and what was sent and not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.client.producer.produce_sink import NOBODY

if TYPE_CHECKING:
    from millstream.client.producer.partition_queues import PartitionQueue
    from millstream.client.producer.producer_batch import ProducerBatch

NO_NODE: Final = -1
"""The leader is not known."""


class PartitionState:
    """One partition: its leader, what is in flight, and how that is numbered."""

    __slots__ = (
        "connection_id",
        "identity",
        "in_flight_count",
        "is_unresolved",
        "last_acked_offset",
        "last_acked_sequence",
        "leader_epoch",
        "node_id",
        "numbered",
        "partition",
        "queue",
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
        self.connection_id = 0
        """Where it was last granted to send; 0 if the grant is over."""
        self.in_flight_count = 0
        """How many batches are sent and not answered."""
        # How batches are numbered, for an idempotent producer.
        self.identity = NOBODY
        self.last_acked_sequence = -1
        self.last_acked_offset = -1
        self.numbered: list[ProducerBatch] = []
        """Those with a sequence that are not done, in order: in flight, or to be sent again."""
        self.is_unresolved = False
        """A batch timed out in flight: whether the broker has its numbers is not known."""

    def __repr__(self) -> str:
        return f"<PartitionState {self.wire_topic}-{self.partition} at node {self.node_id}>"

    def place_of(self, batch: ProducerBatch) -> int:
        """How many of the batches that are to be sent again are before this one."""
        repeats = self.queue.repeats()
        if not batch.has_sequence:
            return sum(each.created_ms <= batch.created_ms for each in repeats)
        order = {id(each): place for place, each in enumerate(self.numbered)}
        place = order.get(id(batch), -1)
        return sum(order.get(id(each), -1) < place for each in repeats)
