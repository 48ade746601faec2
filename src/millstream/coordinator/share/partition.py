"""`SharePartition`: the records of a partition as one share group has them, at its leader.

`server.share_partitions` reads the log, hands in what it found, keeps what is decided here with the
share coordinator and then says so. It is told the time; it does nothing by itself. Rules 2 to 6 of
section 6.10 of the facts.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from millstream.coordinator.share.delivery import (
    OUTCOMES,
    AcknowledgeType,
    Acquired,
    delivery_end,
    well_split,
)
from millstream.coordinator.share.runs import AcquisitionLock, Run, RunList, StateUpdate
from millstream.coordinator.share.state import DeliveryState, merged
from millstream.errors import InvalidRecordState, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.coordinator.share.delivery import (
        Acknowledgement,
        AcquireRequest,
        ReadBatches,
        ShareLimits,
    )
    from millstream.coordinator.share.state import StateBatch


class SharePartition:
    """Which records are available, with whom, or done, from the start offset on."""

    def __init__(
        self, start_offset: int, batches: Iterable[StateBatch], limits: ShareLimits
    ) -> None:
        """Go on with what was kept; what was with members then is available again."""
        self.limits = limits
        self.start_offset = start_offset
        """The first record that is not final."""
        self.end_offset = start_offset - 1
        """The last record that was looked at."""
        self._runs = RunList()
        self._locks: list[tuple[int, int, AcquisitionLock]] = []
        self._serial = 0
        for batch in batches:
            if batch.last_offset > self.end_offset:
                self._extend(max(batch.first_offset, start_offset) - 1, DeliveryState.AVAILABLE, 0)
                self._extend(batch.last_offset, DeliveryState(batch.state), batch.delivery_count)
        self._advance()

    # Delivery.

    @property
    def in_flight_count(self) -> int:
        """How many records lie between start and end."""
        return self.end_offset - self.start_offset + 1

    @property
    def fetch_offset(self) -> int | None:
        """Where to read records that can be delivered; None if none may be."""
        for run in self._runs:
            if run.is_available:
                return run.first
        if self.in_flight_count < self.limits.record_locks_max:
            return self.end_offset + 1
        return None

    def acquire(self, request: AcquireRequest, read: ReadBatches, now_ms: int) -> list[Acquired]:
        """Deliver records that were read; what does not exist in the log is passed over."""
        if not read.batches:
            return []
        expected = read.offset
        for first, last in read.batches:
            self._archive(expected, first - 1)
            expected = last + 1
        for first, last in read.withheld:
            self._archive(max(first, read.offset), last)
        lock = AcquisitionLock(request.member_id, now_ms + self.limits.lock_duration_ms)
        taken: list[Acquired] = []
        room = self._take_known(request, read, lock, taken)
        if room > 0:
            self._take_new(request, read, lock, taken, room)
        if taken:
            self._serial += 1
            heappush(self._locks, (lock.deadline_ms, self._serial, lock))
        self._advance()
        return [
            part
            for each in taken
            for part in well_split(each, [last for _, last in read.batches], request.batch_size)
        ]

    def _take_known(
        self,
        request: AcquireRequest,
        read: ReadBatches,
        lock: AcquisitionLock,
        taken: list[Acquired],
    ) -> int:
        """Deliver again; how many more records may be delivered."""
        room = request.records_max
        last = min(read.batches[-1][1], self.end_offset)
        for run in self._runs.touching(max(read.offset, self.start_offset), last):
            if room <= 0:
                return 0
            if not run.is_available:
                continue
            first, end = max(run.first, read.offset), min(run.last, last)
            excess = run.count - self.limits.throttle_count
            if excess >= 0:
                # Some record here may be the end of whoever gets it: find out which.
                if not taken:
                    size = max((end - first + 1) >> (excess + 1), 1)
                    end = first + min(size, room) - 1
                    self._deliver(first, end, lock, taken)
                return 0
            end = delivery_end(first, end, room, read.batches, is_strict=request.is_strict)
            self._deliver(first, end, lock, taken)
            room -= end - first + 1
        return room

    def _take_new(
        self,
        request: AcquireRequest,
        read: ReadBatches,
        lock: AcquisitionLock,
        taken: list[Acquired],
        room: int,
    ) -> None:
        withheld = dict(read.withheld)
        for first, last in read.batches:
            room_in_window = self.limits.record_locks_max - self.in_flight_count
            if room <= 0 or room_in_window <= 0:
                return
            if last <= self.end_offset:
                continue
            if first > self.end_offset + 1:
                self._extend(first - 1, DeliveryState.ARCHIVED, 0)
            if first in withheld:
                self._extend(last, DeliveryState.ARCHIVED, 0)
                continue
            begin = self.end_offset + 1
            if request.is_strict:
                last = min(last, begin + room - 1)
            self._extend(last, DeliveryState.AVAILABLE, 0)
            self._deliver(begin, last, lock, taken)
            room -= last - begin + 1

    def _deliver(self, first: int, last: int, lock: AcquisitionLock, taken: list[Acquired]) -> None:
        for run in self._runs.between(first, last):
            run.state = run.target = DeliveryState.ACQUIRED
            run.count += 1
            run.relock(lock)
            before = taken[-1] if taken else None
            if (
                before is not None
                and before.last_offset + 1 == run.first
                and before.delivery_count == run.count
            ):
                taken[-1] = before._replace(last_offset=run.last)
            else:
                taken.append(Acquired(run.first, run.last, run.count))

    def _archive(self, first: int, last: int) -> None:
        """Records that are available and do not exist are done."""
        first, last = max(first, self.start_offset), min(last, self.end_offset)
        if first > last:
            return
        for run in self._runs.between(first, last):
            if run.is_available:
                run.state = run.target = DeliveryState.ARCHIVED

    def _extend(self, last: int, state: DeliveryState, count: int) -> None:
        if last > self.end_offset:
            self._runs.append(Run(self.end_offset + 1, last, state, count))
            self.end_offset = last

    # What members say.

    def acknowledge(
        self, member_id: str, said: Sequence[Acknowledgement], now_ms: int
    ) -> StateUpdate | None:
        """Take what a member says about its records, all of it or nothing.

        None if there is nothing to keep. Raises InvalidRecordState if some of the records are not
        with the member.
        """
        previous = -1
        pieces: list[tuple[int, int, int]] = []
        for each in said:
            each.check()
            if each.first_offset <= previous:
                raise InvalidRequest("acknowledgements must be in order and not overlap")
            previous = each.last_offset
            pieces += each.pieces(self.start_offset)
        for first, last, _ in pieces:
            self._require_held(member_id, first, last)
        renewed = [piece for piece in pieces if piece[2] == AcknowledgeType.RENEW]
        if renewed:
            self._renew(member_id, renewed, now_ms)
        update = StateUpdate()
        for first, last, kind in pieces:
            if kind != AcknowledgeType.RENEW:
                self._begin(update, self._runs.between(first, last), OUTCOMES[kind])
        return self._prepared(update)

    def _require_held(self, member_id: str, first: int, last: int) -> None:
        runs = self._runs.touching(first, last)
        if last > self.end_offset or not all(run.is_held_by(member_id) for run in runs):
            raise InvalidRecordState(
                f"offsets {first} to {last} are not all with member {member_id}"
            )

    def _renew(self, member_id: str, pieces: Iterable[tuple[int, int, int]], now_ms: int) -> None:
        lock = AcquisitionLock(member_id, now_ms + self.limits.lock_duration_ms)
        for first, last, _ in pieces:
            for run in self._runs.between(first, last):
                run.relock(lock)
        self._serial += 1
        heappush(self._locks, (lock.deadline_ms, self._serial, lock))

    def release_member(self, member_id: str) -> StateUpdate | None:
        """A member is gone: what it had is available again."""
        return self._release(lambda run: run.is_held_by(member_id))

    # Time.

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next lock ends; None if nothing is locked."""
        while self._locks and not self._locks[0][2].run_count:
            heappop(self._locks)
        return self._locks[0][0] if self._locks else None

    def expire(self, now_ms: int) -> StateUpdate | None:
        """Locks have ended: what they locked is available again."""
        ended: set[AcquisitionLock] = set()
        while self._locks and self._locks[0][0] <= now_ms:
            ended.add(heappop(self._locks)[2])
        if not ended:
            return None
        return self._release(
            lambda run: (
                run.lock in ended and run.state is DeliveryState.ACQUIRED and run.update is None
            )
        )

    def _release(self, is_meant: Callable[[Run], bool]) -> StateUpdate | None:
        update = StateUpdate()
        self._begin(update, [run for run in self._runs if is_meant(run)], DeliveryState.AVAILABLE)
        return self._prepared(update)

    # Changes.

    def _begin(self, update: StateUpdate, runs: Iterable[Run], target: DeliveryState) -> None:
        for run in runs:
            is_last = run.count >= self.limits.delivery_count_max
            run.target = (
                DeliveryState.ARCHIVED if is_last and target is DeliveryState.AVAILABLE else target
            )
            run.update = update
            update.runs.append(run)

    def _prepared(self, update: StateUpdate) -> StateUpdate | None:
        """Say what is to be kept: as it will be when just this change has come about."""
        if not update.runs:
            return None
        start, complete_count, is_at_start = self.start_offset, 0, True
        for run in self._runs:
            state = run.target if run.update is update else run.state
            is_final = state.is_final and run.update in (None, update)
            is_at_start = is_at_start and is_final
            if is_at_start:
                start = run.last + 1
            elif is_final:
                complete_count += run.last - run.first + 1
        update.start_offset, update.complete_count = start, complete_count
        batches = sorted(run.batch()._replace(state=int(run.target)) for run in update.runs)
        update.batches = merged((), tuple(batches), start)
        return update

    def commit(self, update: StateUpdate) -> None:
        """A change is kept: make it true."""
        for run in update.runs:
            run.state, run.update = run.target, None
            run.relock(None)
        self._advance()
        self._runs.join()

    def rollback(self, update: StateUpdate) -> None:
        """A change could not be kept: the records are with their member as before.

        A lock that has ended meanwhile ends with the next `expire`.
        """
        for run in update.runs:
            run.target, run.update = run.state, None
            if run.lock is not None:
                self._serial += 1
                heappush(self._locks, (run.lock.deadline_ms, self._serial, run.lock))

    def move_start(self, offset: int) -> None:
        """The log begins later: what is before is nobody's business any more."""
        if offset <= self.start_offset:
            return
        self._runs.drop_before(offset)
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset - 1)
        self._advance()

    def _advance(self) -> None:
        """Go past what is done."""
        start = self.start_offset
        for run in self._runs:
            if run.update is not None or not run.state.is_final:
                break
            start = run.last + 1
        if start != self.start_offset:
            self._runs.drop_before(start)
            self.start_offset = start

    # What there is.

    @property
    def complete_count(self) -> int:
        """How many records after the start offset are final."""
        return sum(
            run.last - run.first + 1
            for run in self._runs
            if run.state.is_final and run.update is None
        )

    @property
    def runs(self) -> list[Run]:
        """The records in flight: for whoever looks, not for whoever changes."""
        return list(self._runs)
