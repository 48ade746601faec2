"""Brings the ends of transactions to their partitions: the hands of `MarkerQueue`.

The transaction coordinator hands in what it has decided, and is told when all partitions know it.
A partition that this broker leads is written to directly.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.coordinator.transaction.markers import MarkerQueue
from millstream.errors import LeaderNotAvailable
from millstream.server.txn_markers import Marker

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.coordinator.transaction.markers import MarkersDue
    from millstream.coordinator.transaction.ports import EndedTransaction
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.server.txn_markers import MarkerWriter
    from millstream.types import TopicPartition


class LocalMarkerSender:
    """A `coordinator.transaction.ports.MarkerSender`."""

    def __init__(
        self,
        broker_id: int,
        metadata: KRaftMetadataCache,
        writer: MarkerWriter,
        clock: Clock,
        arm: Callable[[int], object],
        on_written: Callable[[EndedTransaction], None],
    ) -> None:
        """`arm` asks for a `tick` at a monotonic time; `on_written` hears of complete ends."""
        self._broker_id = broker_id
        self._metadata = metadata
        self._writer = writer
        self._clock = clock
        self._arm = arm
        self._on_written = on_written
        self._queue = MarkerQueue()

    def send(self, ended: EndedTransaction) -> None:
        """Write the markers, as far as that can be done now; the rest later."""
        self._queue.add(ended, self._clock.monotonic_ms())
        self.tick()

    def forget(self, coordinator_partition: int) -> None:
        """Another broker ends these transactions."""
        self._queue.forget(coordinator_partition)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        return self._queue.next_deadline_ms()

    def tick(self) -> None:
        """Write what is due."""
        for due in self._queue.take_due(self._clock.monotonic_ms()):
            self._write(due)

    def _write(self, due: MarkersDue) -> None:
        elsewhere: list[tuple[TopicPartition, ApiError | None]] = []
        here = []
        for each in due.partitions:
            if self._metadata.partition(each.topic, each.partition) is None:
                elsewhere.append((each, None))  # The topic is gone, and with it the transaction.
            elif self._metadata.leader_of(each.topic, each.partition) == self._broker_id:
                here.append(each)
            else:
                elsewhere.append((each, LeaderNotAvailable(f"{each} is not led here")))
        ended = due.ended
        marker = Marker(
            ended.producer, ended.coordinator_epoch, ended.is_commit, ended.transaction_version
        )
        self._writer.write(marker, here, partial(self._written, due, elsewhere))

    def _written(
        self,
        due: MarkersDue,
        elsewhere: list[tuple[TopicPartition, ApiError | None]],
        results: list[tuple[TopicPartition, ApiError | None]],
    ) -> None:
        if self._queue.written(due, [*elsewhere, *results], self._clock.monotonic_ms()):
            self._on_written(due.ended)
        deadline_ms = self._queue.next_deadline_ms()
        if deadline_ms is not None:
            self._arm(deadline_ms)
