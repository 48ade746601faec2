"""Calls that wait for acknowledgements to be answered, and callbacks that hear of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from millstream.client.share_consumer.share_buffer import Outcome
from millstream.errors import OperationTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.client.share_consumer.share_buffer import ShareBuffer
    from millstream.errors import MillstreamError
    from millstream.types import TopicPartition

OnCommitted: TypeAlias = "Callable[[dict[TopicPartition, MillstreamError | None]], None]"
"""Told what became of each partition's acknowledgements."""


class _Wait:
    def __init__(
        self, partitions: Iterable[TopicPartition], deadline_ms: int, on_done: OnCommitted
    ) -> None:
        self.open = set(partitions)
        self.found: dict[TopicPartition, MillstreamError | None] = {}
        self.deadline_ms = deadline_ms
        self.on_done = on_done


class CommitWaits:
    """Commits under way. On the I/O thread."""

    def __init__(self, buffer: ShareBuffer) -> None:
        self._buffer = buffer
        self._waits: list[_Wait] = []

    def begin(
        self, partitions: Iterable[TopicPartition], deadline_ms: int, on_done: OnCommitted
    ) -> None:
        """Tell somebody when all of these were answered."""
        wait = _Wait(partitions, deadline_ms, on_done)
        if wait.open:
            self._waits.append(wait)
        else:
            on_done({})

    def settle(
        self,
        partition: TopicPartition,
        decisions: Mapping[int, int],
        error: MillstreamError | None,
    ) -> None:
        """Acknowledgements of a partition were answered."""
        self._buffer.put_outcome(Outcome(partition, frozenset(decisions), error))
        for wait in list(self._waits):
            if partition in wait.open:
                wait.open.discard(partition)
                wait.found[partition] = error
                if not wait.open:
                    self._end(wait)

    def poll(self, now_ms: int) -> int | None:
        """Give up what took too long; when to look again."""
        for wait in list(self._waits):
            if now_ms >= wait.deadline_ms:
                late = OperationTimeout("the broker has not answered the acknowledgements in time")
                wait.found.update(dict.fromkeys(wait.open, late))
                self._end(wait)
        return min((each.deadline_ms for each in self._waits), default=None)

    def _end(self, wait: _Wait) -> None:
        self._waits.remove(wait)
        wait.on_done(wait.found)
