"""The records in flight of one share partition, as runs: offsets in a row that share their fate.

`SharePartition` decides; this keeps the runs in order and without holes, cuts and joins them. A
run is one object however many records it has, so the common cases, in which whole batches are
delivered and acknowledged, cost a few objects.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from millstream.coordinator.share.state import DeliveryState, StateBatch

if TYPE_CHECKING:
    from collections.abc import Iterator


class AcquisitionLock:
    """Until when a member has records to itself. All of one delivery share one."""

    __slots__ = ("deadline_ms", "member_id", "run_count")

    def __init__(self, member_id: str, deadline_ms: int) -> None:
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.run_count = 0
        """How many runs it locks; without any it means nothing."""


class StateUpdate:
    """Changes that are decided and not yet kept by the share coordinator."""

    __slots__ = ("batches", "complete_count", "runs", "start_offset")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.start_offset = 0
        """Where the share partition will begin."""
        self.complete_count = 0
        """How many records after that will be final."""
        self.batches: tuple[StateBatch, ...] = ()
        """What is to be kept."""


class Run:
    """Records in a row with one state, delivery count and lock."""

    __slots__ = ("count", "first", "last", "lock", "state", "target", "update")

    def __init__(
        self,
        first: int,
        last: int,
        state: DeliveryState = DeliveryState.AVAILABLE,
        count: int = 0,
        lock: AcquisitionLock | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.lock = lock
        self.update: StateUpdate | None = None
        """The change that waits to be kept; until then nothing else may happen here."""
        self.target = state
        """What it will be then."""

    @property
    def is_available(self) -> bool:
        """Whether it may be delivered."""
        return self.state is DeliveryState.AVAILABLE and self.update is None

    def is_held_by(self, member_id: str) -> bool:
        """Whether a member may say what became of it."""
        return (
            self.state is DeliveryState.ACQUIRED
            and self.update is None
            and self.lock is not None
            and self.lock.member_id == member_id
        )

    def relock(self, lock: AcquisitionLock | None) -> None:
        """Be locked otherwise, or no more."""
        if self.lock is not None:
            self.lock.run_count -= 1
        self.lock = lock
        if lock is not None:
            lock.run_count += 1

    def batch(self) -> StateBatch:
        """The run as it is kept."""
        return StateBatch(self.first, self.last, int(self.state), self.count)

    def is_like(self, other: Run) -> bool:
        """Whether the two could be one run."""
        return (
            self.state is other.state
            and self.count == other.count
            and self.lock is other.lock
            and self.update is other.update
            and self.target is other.target
        )

    def __repr__(self) -> str:
        pending = "" if self.update is None else f" > {self.target.name}"
        return f"Run({self.first}-{self.last} {self.state.name} x{self.count}{pending})"


class RunList:
    """The runs between two offsets, in order and without holes."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, run: Run) -> None:
        """Add what comes after the last."""
        assert not self._runs or self._runs[-1].last + 1 == run.first
        self._runs.append(run)

    def touching(self, first: int, last: int) -> list[Run]:
        """The runs that have some of the offsets, uncut."""
        begin = self._place(first)
        end = begin
        while end < len(self._runs) and self._runs[end].first <= last:
            end += 1
        return self._runs[begin:end]

    def between(self, first: int, last: int) -> list[Run]:
        """The runs of just these offsets, cut where they must be."""
        self._cut(first)
        self._cut(last + 1)
        return self.touching(first, last)

    def drop_before(self, offset: int) -> None:
        """Forget what is before an offset."""
        self._cut(offset)
        end = self._place(offset)
        for run in self._runs[:end]:
            run.relock(None)
        del self._runs[:end]

    def join(self) -> None:
        """Let runs that are alike be one."""
        joined: list[Run] = []
        for run in self._runs:
            if joined and run.update is None and joined[-1].is_like(run):
                joined[-1].last = run.last
                if run.lock is not None:
                    run.lock.run_count -= 1
            else:
                joined.append(run)
        self._runs = joined

    def _place(self, offset: int) -> int:
        """The first run that ends at an offset or later."""
        place = bisect_right(self._runs, offset, key=_first_of)
        return place - 1 if place and self._runs[place - 1].last >= offset else place

    def _cut(self, offset: int) -> None:
        """Let a run begin at an offset, if one has it."""
        place = self._place(offset)
        if place == len(self._runs) or self._runs[place].first >= offset:
            return
        run = self._runs[place]
        rest = Run(offset, run.last, run.state, run.count)
        rest.target, rest.update = run.target, run.update
        rest.relock(run.lock)
        if run.update is not None:
            run.update.runs.append(rest)
        run.last = offset - 1
        self._runs.insert(place + 1, rest)


def _first_of(run: Run) -> int:
    return run.first
