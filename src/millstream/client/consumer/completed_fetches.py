"""`CompletedFetches`: what was fetched of one partition, and how far the application has read it.

Only `FetchBuffer` touches it, under its lock. A *run* is a number that grows with each seek: what
was fetched for an older run is of no use any more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from millstream.records.kernel import FetchedBatches

if TYPE_CHECKING:
    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.errors import MillstreamError
    from millstream.types import TopicPartition


class Placed(NamedTuple):
    """From here on the partition is read at another place: a start was found, a gap was jumped."""

    offset: int
    leader_epoch: int


class Failed(NamedTuple):
    """The application has to hear this before anything that follows."""

    error: MillstreamError


Entry: TypeAlias = FetchedBatches | Placed | Failed


class CompletedFetches:
    """A partition's entries, in order, and the application's position before them."""

    __slots__ = (
        "byte_count",
        "end_offset",
        "entries",
        "is_paused",
        "is_queued",
        "leader_epoch",
        "partition",
        "position",
        "processed",
        "run",
        "start",
    )

    def __init__(self, partition: TopicPartition, run: int, start: StartingPoint) -> None:
        self.partition = partition
        self.run = run
        self.start = start
        """Where this run begins."""
        self.position: int | None = None
        """The next offset for the application; None until it is known."""
        self.leader_epoch = -1
        self.processed: tuple[int, int] | None = None
        """Position and epoch when the application last came back for more."""
        self.entries: deque[Entry] = deque()
        self.byte_count = 0
        self.is_paused = False
        self.is_queued = False
        """Whether it stands in the buffer's queue of partitions that have something."""
        self.end_offset: int | None = None
        """Where the log ends for this reader, as last heard."""

    def clear(self) -> int:
        """Drop what was fetched; how many bytes that were."""
        dropped, self.byte_count = self.byte_count, 0
        self.entries.clear()
        return dropped

    def advance(self, position: int, leader_epoch: int) -> None:
        """The application has got everything before `position`."""
        self.position = position
        if leader_epoch >= 0:
            self.leader_epoch = leader_epoch

    def settle(self) -> None:
        """What the application has got, it has processed: it came back for more."""
        self.processed = None if self.position is None else (self.position, self.leader_epoch)

    def head(self) -> FetchedBatches | Failed | None:
        """What is next for the application, places taken along the way."""
        while self.entries:
            entry = self.entries[0]
            if isinstance(entry, Placed):
                self.entries.popleft()
                self.position, self.leader_epoch = entry
                self.settle()
            else:
                return entry
        return None
