"""`ProduceSink`: which batches of a producer may leave now, in plain Python.

The accumulator fills the queues of partitions; the Sender grants each partition how many batches it
may send, and where to. What is due and granted is taken here, and here new batches get their
sequence: nowhere else. The compiled version, `_accel.client.produce_sink`, can be attached to a
selector, whose thread then takes and sends without the GIL; this one is always asked by the Sender.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.producer.partition_queues import PartitionQueue
    from millstream.client.producer.producer_batch import ProducerBatch

UNLIMITED: Final = (1 << 31) - 1
"""An allowance that is not used up."""
SEQUENCES: Final = 1 << 31
"""Sequence numbers go from 0 to below this, then from 0 again."""


class ProducerIdentity(NamedTuple):
    """Who numbers the batches: a producer id and its epoch."""

    producer_id: int
    epoch: int


NOBODY: Final = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Route(NamedTuple):
    """Where the batches of a partition go, and in which form."""

    connection_id: int
    version: int
    """Of the Produce request."""
    attributes: int
    """Of every batch that is not sealed by the Sender."""
    topic: int
    """A number; partitions with the same one may share a request."""
    head: bytes
    """How a request to the partition's topic begins; empty if the Sender builds the requests."""


class ProduceSink:
    """The partitions that may send, and what of theirs is due."""

    is_attached: bool = False
    """Whether a selector's thread sends; else the Sender takes."""

    def __init__(
        self, wake: Callable[[], object], *, linger_ms: int, request_size_max: int
    ) -> None:
        """`wake`: called when there is something for the Sender to do."""
        self.lock = threading.Lock()
        """The accumulator's; it guards the queues, too."""
        self._wake = wake
        self._linger_ms = linger_ms
        self._request_size_max = request_size_max
        self._is_flushing = False
        self._active: dict[PartitionQueue, None] = {}
        self._ungranted: list[PartitionQueue] = []

    def attach(self, selector: object, *, max_in_flight: int, expects_answers: bool) -> bool:
        """Have a selector's thread send what is due; False, because here none can."""
        return False

    def disown(self) -> None:
        """In a forked child: whoever held the lock is not here."""
        self.lock = threading.Lock()

    # ---- with the lock held ----

    def set_flushing(self, is_flushing: bool) -> None:
        """Whether nothing may linger."""
        self._is_flushing = is_flushing

    def send_here(self) -> None:
        """Have the thread that notifies send what is due, where that is possible."""

    def on_batch(self, queue: PartitionQueue) -> None:
        """A queue has a batch more."""
        if queue.is_granted:
            self._active[queue] = None
        else:
            self._ungranted.append(queue)

    def grant(
        self, queue: PartitionQueue, route: Route, allowance: int, identity: ProducerIdentity
    ) -> bool:
        """Let a partition send `allowance` batches; False if its connection is not open."""
        queue.route, queue.allowance, queue.identity = route, allowance, identity
        if queue.batches:
            self._active[queue] = None
        return True

    def revoke(self, queue: PartitionQueue) -> None:
        """Let a partition send nothing more."""
        queue.allowance = 0
        self._active.pop(queue, None)

    def take(
        self, connection_id: int, now_ms: int
    ) -> tuple[list[tuple[PartitionQueue, ProducerBatch]], int | None]:
        """Batches for one request on a connection, and when the next one of a partition is due."""
        taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        times_ms: list[int] = []
        room, version = self._request_size_max, -1
        for queue in list(self._active):
            route, first = queue.route, queue.first
            if route is None or first is None or not queue.allowance:
                del self._active[queue]
                continue
            due_ms = self._due_ms(first)
            if due_ms > now_ms:
                times_ms.append(due_ms)
            elif route.connection_id == connection_id and version in (-1, route.version):
                # A batch that alone is too large for a request goes alone.
                if taken and first.size > room:
                    break
                version = route.version
                room -= first.size
                taken.append((queue, queue.take_first()))
                # Next time it is the last in line.
                self._active[queue] = self._active.pop(queue)
        return taken, min(times_ms, default=None)

    def _due_ms(self, batch: ProducerBatch) -> int:
        """When a batch may leave: the one rule."""
        if batch.is_closed or self._is_flushing:
            return batch.retry_at_ms
        return batch.created_ms + self._linger_ms

    # ---- without the lock ----

    def take_ungranted(self) -> list[PartitionQueue]:
        """The queues that have got a batch and may send nothing."""
        queues, self._ungranted = self._ungranted, []
        return queues

    def take_sent(self) -> list[tuple[int, int, list[tuple[PartitionQueue, ProducerBatch]]]]:
        """What was sent since the last call; here nothing is sent without the Sender."""
        return []

    def notify(self) -> None:
        """After a change: the Sender looks soon."""
        self._wake()
