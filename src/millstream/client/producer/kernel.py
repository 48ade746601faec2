"""The one place that chooses between the compiled parts of the accumulator and the plain ones.

They behave the same. The compiled ones rely on the GIL, so an interpreter that runs without one
gets the plain ones.
"""

from __future__ import annotations

import sys
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


def _is_built() -> bool:
    if not _accel.COMPILED or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    try:
        import millstream._accel.client.record_accumulator  # noqa: F401  # to see whether it is there
    except ImportError:  # It alone was not built: everything works, more slowly.
        return False
    return True


COMPILED: bool = _is_built()
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
