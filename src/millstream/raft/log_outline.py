"""What the core remembers of its log: offsets, epochs, snapshots, never a record.

The log itself is behind a port and may be slow; decisions need only this outline. The core changes
it in the same breath as it asks the driver to change the log, so that both always agree.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from millstream.errors import InvalidArgument
from millstream.types import OffsetAndEpoch

if TYPE_CHECKING:
    from typing import Self

    from millstream.raft.ports import ReplicatedLog

BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(epoch=0, offset=0)
"""The snapshot that `storage format` writes. It is read locally and never served to others."""


@dataclass(frozen=True, slots=True)
class Fits:
    """The asker's log is a prefix of ours: it may have what follows."""


@dataclass(frozen=True, slots=True)
class Diverges:
    """The asker's log left ours: this is where our part of its epoch ends."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """What the asker needs next is no longer in the log: it must take this snapshot."""

    snapshot_id: OffsetAndEpoch


FetchCheck = Fits | Diverges | NeedsSnapshot


@dataclass(slots=True)
class LogOutline:
    """Offsets, epochs and snapshots of the metadata log."""

    start_offset: int = 0
    end_offset: int = 0
    flushed_offset: int = 0
    """Everything below survives a crash of the machine."""
    high_watermark: int = 0
    """Everything below is committed, as far as this node knows."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, its first offset), ascending; never below `start_offset`."""
    snapshots: dict[OffsetAndEpoch, int] = field(default_factory=dict)
    """Snapshot id to size in bytes."""

    @classmethod
    def of(cls, log: ReplicatedLog) -> Self:
        """The outline of a log as it was opened: flushed, and committed up to its snapshot."""
        outline = cls(
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            flushed_offset=log.end_offset,
            epochs=list(log.epochs()),
            snapshots=dict(log.snapshots()),
        )
        latest = outline.latest_snapshot
        outline.high_watermark = max(outline.start_offset, latest.offset if latest else 0)
        return outline

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, 0 before there was one."""
        if self.epochs:
            return self.epochs[-1][0]
        at_start = self.snapshot_at_start
        return at_start.epoch if at_start else 0

    @property
    def end(self) -> OffsetAndEpoch:
        """Where the log ends, comparable with other logs."""
        return OffsetAndEpoch(self.last_epoch, self.end_offset)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """The newest snapshot."""
        return max(self.snapshots, default=None)

    @property
    def snapshot_at_start(self) -> OffsetAndEpoch | None:
        """The snapshot that stands for everything below the first record."""
        covering = [found for found in self.snapshots if found.offset == self.start_offset]
        return max(covering, default=None)

    def append(self, base_offset: int, end_offset: int, epoch: int) -> None:
        """A batch was put at the end."""
        assert base_offset == self.end_offset, f"{base_offset} after {self.end_offset}"
        assert epoch >= self.last_epoch, f"epoch {epoch} after {self.last_epoch}"
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, base_offset))
        self.end_offset = end_offset

    def truncate_to(self, offset: int) -> None:
        """The records at `offset` and above were dropped."""
        assert self.high_watermark <= offset <= self.end_offset
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()
        self.end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    def restart_at(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        """The whole log was replaced by a snapshot."""
        self.epochs.clear()
        self.snapshots = {snapshot_id: size}
        self.start_offset = self.end_offset = self.flushed_offset = snapshot_id.offset
        self.high_watermark = snapshot_id.offset

    def trim_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """The records and snapshots that a snapshot makes superfluous were deleted."""
        assert self.start_offset < snapshot_id.offset <= self.high_watermark
        self.snapshots = {kept: n for kept, n in self.snapshots.items() if kept >= snapshot_id}
        self.start_offset = snapshot_id.offset
        first = bisect_right(self.epochs, snapshot_id.offset, key=itemgetter(1)) - 1
        del self.epochs[:first]
        self.epochs[0] = (self.epochs[0][0], snapshot_id.offset)
        if self.start_offset == self.end_offset:
            self.epochs.clear()

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record just below `offset`."""
        at = bisect_right(self.epochs, offset - 1, key=itemgetter(1)) - 1
        if at >= 0:
            return self.epochs[at][0]
        at_start = self.snapshot_at_start
        return at_start.epoch if at_start else 0

    def snapshot_id(self, offset: int) -> OffsetAndEpoch:
        """The id of a snapshot of all records below `offset`."""
        if offset > self.high_watermark:
            raise InvalidArgument(
                f"a snapshot up to {offset} is above the high watermark {self.high_watermark}: "
                "it may only hold committed records"
            )
        if offset < self.start_offset:
            raise InvalidArgument(f"the records below {offset} are gone: there is a newer snapshot")
        return OffsetAndEpoch(self.epoch_before(offset), offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where the newest epoch that is not newer than `epoch` ends."""
        at = bisect_right(self.epochs, epoch, key=itemgetter(0)) - 1
        if at < 0:
            return self.end if not self.epochs else self._before_first_epoch()
        if at == len(self.epochs) - 1:
            return self.end
        return OffsetAndEpoch(self.epochs[at][0], self.epochs[at + 1][1])

    def _before_first_epoch(self) -> OffsetAndEpoch:
        at_start = self.snapshot_at_start
        return at_start if at_start else OffsetAndEpoch(0, self.start_offset)

    def check_fetch(self, offset: int, epoch: int) -> FetchCheck:
        """Whether a replica whose log ends at (`epoch`, `offset`) can go on from there."""
        latest = self.latest_snapshot
        if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            # An empty log is filled faster from a snapshot than record by record.
            return NeedsSnapshot(latest)
        if offset == 0 and self.start_offset == 0:
            return Fits()
        at_start = self.snapshot_at_start
        if at_start is not None and (
            offset < self.start_offset
            or (offset == self.start_offset and epoch != at_start.epoch)
            or epoch < at_start.epoch
        ):
            assert latest is not None
            return NeedsSnapshot(latest)
        end = self.end_offset_for_epoch(epoch)
        return Fits() if end.epoch == epoch and offset <= end.offset else Diverges(end)

    def truncation_offset(self, leader_end: OffsetAndEpoch) -> int:
        """How far our log can agree with a leader whose part of an epoch ends at `leader_end`."""
        if leader_end.epoch == 0:
            return min(leader_end.offset, self.end_offset)
        ours = self.end_offset_for_epoch(leader_end.epoch)
        if ours.epoch == leader_end.epoch:
            return min(leader_end.offset, ours.offset)
        return ours.offset
