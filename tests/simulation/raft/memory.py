"""The ports of raft in memory: a disk that forgets what was not synced, and nothing else.

Shared by the unit tests, the scenarios and the simulation of raft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.raft.batches import walk_batches
from millstream.raft.ports import LogStalled
from millstream.raft.quorum_state_file import decode_quorum_state, encode_quorum_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from millstream.raft.effects import ElectionState
    from millstream.records.batch import RecordBatch
    from millstream.types import OffsetAndEpoch, ReadableBuffer

    Change = Callable[[list[RecordBatch]], list[RecordBatch]]


class MemoryLog:
    """A metadata log whose unsynced tail is lost, in part or whole, by `crash`."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.high_watermark = 0
        self.batches: list[RecordBatch] = []
        self.complete: dict[OffsetAndEpoch, bytes] = {}
        self.partial: dict[OffsetAndEpoch, bytes] = {}
        self.is_full = False
        """Whether appends, snapshots and flushes stall."""
        self.schedule_flush: Callable[[Callable[[], None]], None] = lambda sync: sync()
        self._durable: list[RecordBatch] = []
        self._unsynced: list[tuple[int, Change]] = []
        self._changes = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start_offset

    def epochs(self) -> Iterable[tuple[int, int]]:
        found: dict[int, int] = {}
        for batch in self.batches:
            found.setdefault(batch.leader_epoch, max(batch.base_offset, self.start_offset))
        return found.items()

    def append(self, batches: ReadableBuffer) -> None:
        added = list(walk_batches(bytes(batches)))
        assert added[0].base_offset <= self.end_offset
        assert sum(batch.size for batch in added) == len(batches)
        added = [batch for batch in added if batch.base_offset >= self.end_offset]
        if self.is_full and len(added) > 1:
            self._change(lambda log: [*log, added[0]])
        self._require_room()
        self._change(lambda log: log + added)

    def _require_room(self) -> None:
        if self.is_full:
            raise LogStalled("the disk is full")

    def read(self, offset: int, bytes_max: int) -> bytes:
        found: list[bytes] = []
        size = 0
        for batch in self.batches:
            if batch.next_offset <= offset:
                continue
            if found and size + batch.size > bytes_max:
                break
            found.append(bytes(batch.view))
            size += batch.size
        return b"".join(found)

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.high_watermark, "a committed record would be dropped"
        self._change(lambda log: [batch for batch in log if batch.next_offset <= offset])
        assert self.end_offset == offset, "a log is only cut between batches"

    def _change(self, change: Change) -> None:
        self.batches = change(self.batches)
        self._changes += 1
        self._unsynced.append((self._changes, change))

    def flush(
        self, done: Callable[[], None], stalled: Callable[[LogStalled], None] = lambda _: None
    ) -> None:
        covered = self._changes

        def sync() -> None:
            if self.is_full:
                stalled(LogStalled("no descriptor is left"))
                return
            while self._unsynced and self._unsynced[0][0] <= covered:
                self._durable = self._unsynced.pop(0)[1](self._durable)
            done()

        self.schedule_flush(sync)

    def set_high_watermark(self, offset: int) -> None:
        assert self.high_watermark <= offset <= self.end_offset
        self.high_watermark = offset

    def snapshots(self) -> Iterable[tuple[OffsetAndEpoch, int]]:
        return [(snapshot_id, len(data)) for snapshot_id, data in self.complete.items()]

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int) -> bytes:
        return self.complete[snapshot_id][position : position + bytes_max]

    def write_snapshot(
        self, snapshot_id: OffsetAndEpoch, position: int, data: ReadableBuffer
    ) -> None:
        self._require_room()
        before = self.partial.get(snapshot_id, b"") if position else b""
        assert len(before) == position
        self.partial[snapshot_id] = before + bytes(data)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        assert snapshot_id.offset >= self.high_watermark
        self.complete = {snapshot_id: self.partial.pop(snapshot_id)}
        self.start_offset = self.high_watermark = snapshot_id.offset
        self._reset([])

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        self.start_offset = snapshot_id.offset
        self.complete = {kept: data for kept, data in self.complete.items() if kept >= snapshot_id}

        def drop(log: list[RecordBatch]) -> list[RecordBatch]:
            return [batch for batch in log if batch.next_offset > snapshot_id.offset]

        self.batches, self._durable = drop(self.batches), drop(self._durable)

    def crash(self, random: Random) -> None:
        """Lose what was not synced, or only the end of it; the disk decides."""
        survived = random.randrange(len(self._unsynced) + 1)
        for _, change in self._unsynced[:survived]:
            self._durable = change(self._durable)
        self._reset(self._durable)
        self.partial.clear()
        self.high_watermark = max((each.offset for each in self.complete), default=0)

    def _reset(self, batches: list[RecordBatch]) -> None:
        self.batches = self._durable = batches
        self._unsynced.clear()


class MemoryStore:
    """A quorum-state file that survives everything and remembers its past.

    What it gives back went through the file's format, which forgets some of it.
    """

    def __init__(self) -> None:
        self.is_full = False
        self.written: list[ElectionState] = []

    def read(self) -> ElectionState | None:
        return self.written[-1] if self.written else None

    def write(
        self, election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
    ) -> None:
        if self.is_full:
            raise LogStalled("the disk is full")
        stored = encode_quorum_state(election, kraft_version, voter_ids)
        self.written.append(decode_quorum_state(stored))
