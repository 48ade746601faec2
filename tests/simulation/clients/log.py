"""A partition's log as consumers see it: batches at offsets, transactions that are open or aborted.

Nothing is ever truncated: what was acknowledged is on every replica that can lead.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millstream.records import ControlType, EndTxnMarker, RecordBatch, end_txn_marker
from tests.simulation.producer.cluster import ProducerEntry, SimPartition

if TYPE_CHECKING:
    from collections.abc import Iterator


class Written(NamedTuple):
    """A batch in its place."""

    first: int
    last: int
    epoch: int
    data: bytes


class AbortedRange(NamedTuple):
    """A transaction that was aborted: its first offset and that of its marker."""

    producer_id: int
    first: int
    marker: int


@dataclass
class LoggedPartition(SimPartition):
    """One partition with its batches."""

    batches: list[Written] = field(default_factory=list)
    open: dict[int, int] = field(default_factory=dict)
    """The first offset of each producer's transaction that has not ended."""
    aborted: list[AbortedRange] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return len(self.values)

    @property
    def stable_end(self) -> int:
        """Where read_committed ends."""
        return min(self.open.values(), default=self.end)

    def write(self, batch: RecordBatch) -> int:
        """Keep a batch; the offset of its first record."""
        offset = super().write(batch)
        placed = RecordBatch(bytearray(batch.view))
        placed.patch(offset, self.epoch)
        self.batches.append(Written(offset, self.end - 1, self.epoch, bytes(placed.view)))
        if batch.is_transactional and not batch.is_control:
            self.open.setdefault(batch.producer_id, offset)
        return offset

    def end_transaction(self, producer_id: int, epoch: int, *, commits: bool) -> None:
        """Write the marker that ends a producer's transaction here."""
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        marker = end_txn_marker(
            EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=epoch, timestamp=0
        )
        offset = self.write(RecordBatch(marker))
        self.values[offset] = b""
        first = self.open.pop(producer_id, None)
        if first is not None and not commits:
            self.aborted.append(AbortedRange(producer_id, first, offset))
        entry = self.producers.setdefault(producer_id, ProducerEntry())
        if epoch > entry.epoch:
            entry.epoch, entry.batches = epoch, []

    def read(self, offset: int, bytes_max: int, end: int) -> bytes:
        """Whole batches from the one with an offset on; at least one, if there is one."""
        found = b""
        for each in self._from(offset):
            if each.first >= end or (found and len(found) + len(each.data) > bytes_max):
                break
            found += each.data
        return found

    def _from(self, offset: int) -> Iterator[Written]:
        return (each for each in self.batches if each.last >= offset)

    def readable(self, *, is_committed: bool) -> list[tuple[int, bytes]]:
        """What a reader gets from the beginning to the end: offsets and values."""
        found: list[tuple[int, bytes]] = []
        for each in self.batches:
            batch = RecordBatch(each.data)
            is_hidden = is_committed and batch.is_transactional and self._is_hidden(batch)
            if not batch.is_control and not is_hidden:
                found += [
                    (offset, self.values[offset]) for offset in range(each.first, each.last + 1)
                ]
        return found

    def _is_hidden(self, batch: RecordBatch) -> bool:
        opened = self.open.get(batch.producer_id)
        if opened is not None and batch.base_offset >= opened:
            return True
        return any(
            each.producer_id == batch.producer_id and each.first <= batch.base_offset < each.marker
            for each in self.aborted
        )

    def aborted_within(self, offset: int, end: int) -> list[AbortedRange]:
        """The aborted transactions that a reader of a range must know."""
        return [each for each in self.aborted if each.marker >= offset and each.first < end]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch with records that is not above this one, and where it ends."""
        known = [each for each in self.batches if each.epoch <= epoch]
        if not known:
            return -1, -1
        later = [each.first for each in self.batches if each.epoch > known[-1].epoch]
        return known[-1].epoch, later[0] if later else self.end
