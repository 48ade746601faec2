"""The parts of the accumulator, compiled where `millstream._accel` says so, else plain.

They behave the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from millstream import _accel
from millstream.client.producer import delivery
from millstream.client.producer.record import RecordMetadata

__all__ = [
    "COMPILED",
    "BatchOutcome",
    "Delivery",
    "PartitionQueue",
    "ProduceSink",
    "RecordSender",
    "TopicQueues",
    "tell_all",
]


COMPILED: bool = _accel.find("client.record_accumulator") is not None
"""Whether records take the compiled way."""

if TYPE_CHECKING or not COMPILED:
    from millstream.client.producer.delivery import BatchOutcome, Delivery, tell_all
    from millstream.client.producer.partition_queues import PartitionQueue, TopicQueues
    from millstream.client.producer.produce_sink import ProduceSink
    from millstream.client.producer.record_sender import RecordSender
else:
    from millstream._accel.client.delivery import BatchOutcome, Delivery, bind_results, tell_all
    from millstream._accel.client.produce_sink import PartitionQueue, ProduceSink, TopicQueues
    from millstream._accel.client.record_accumulator import RecordSender as _CompiledSender
    from millstream.client.producer.record_sender import K, V

    bind_results(delivery.until_done, RecordMetadata)

    class RecordSender(_CompiledSender, Generic[K, V]):
        """The compiled `send`, with the type parameters of the plain one."""

        __slots__ = ()
