"""What a log remembers about one producer, and the values that go with it.

`ProducerStateManager` keeps a `ProducerEntry` for each producer id; this module has no rules, only
the arithmetic of sequences and the names of what `ProducerState` keeps.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from millstream.storage.log.log_state import ProducerState

SEQUENCE_MAX: Final = (1 << 31) - 1
NO_EPOCH: Final = -1


class AppendOrigin(Enum):
    """Who appends, and thereby how much is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class BatchMetadata(NamedTuple):
    """One batch of a producer, as long as it can be recognised."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return earlier_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction with records in this log that ended with a marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry(ProducerState):
    """One producer's epoch, last batches and open transaction."""

    __slots__ = ()

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        super().__init__(producer_id, epoch)

    @property
    def batches(self) -> list[BatchMetadata]:
        """The batches that a retry is recognised among, oldest first."""
        return [BatchMetadata(*each) for each in self.kept_batches()]

    def find(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """The kept batch with exactly these sequences."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                    return batch
        return None


def next_sequence(sequence: int) -> int:
    """The one after; it wraps to 0."""
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


def earlier_sequence(sequence: int, distance: int) -> int:
    """The one so many before."""
    return (sequence - distance) & SEQUENCE_MAX
