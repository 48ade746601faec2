"""A share partition against a naive model that keeps every record by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.coordinator.share.delivery import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    AcquireRequest,
    ReadBatches,
    ShareLimits,
)
from millstream.coordinator.share.partition import SharePartition
from millstream.coordinator.share.state import DeliveryState, StateBatch, merged

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.share.runs import StateUpdate

MEMBERS = ["ann", "bob", "cid"]
LOCK_MS = 100

members = st.sampled_from(MEMBERS)


@dataclass
class Kept:
    """What the share coordinator would have."""

    start_offset: int
    batches: tuple[StateBatch, ...] = ()

    def write(self, update: StateUpdate) -> None:
        self.start_offset = max(self.start_offset, update.start_offset)
        self.batches = merged(self.batches, update.batches, self.start_offset)


@dataclass
class Record:
    """One record, as the model has it."""

    state: DeliveryState = DeliveryState.AVAILABLE
    count: int = 0
    member: str | None = None
    deadline_ms: int = 0
    is_pending: bool = False


@dataclass
class Pending:
    """A change on its way to the coordinator."""

    update: StateUpdate
    outcomes: dict[int, DeliveryState] = field(default_factory=dict)
    must_happen: bool = False


class SharePartitionMachine(RuleBasedStateMachine):
    """Deliveries, acknowledgements, lost locks and members, failing writes, another leader."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[tuple[int, int]] = []
        self.end = 0
        self.limits = ShareLimits(LOCK_MS, 2, 25)
        self.partition = SharePartition(0, (), self.limits)
        self.model: dict[int, Record] = {}
        self.kept = Kept(0)
        self.pending: list[Pending] = []
        self.highest_start = 0

    @initialize(deliveries=st.integers(2, 5))
    def configure(self, deliveries: int) -> None:
        self.limits = ShareLimits(LOCK_MS, deliveries, 25)
        self.partition = SharePartition(0, (), self.limits)

    # The log.

    @rule(size=st.integers(1, 7), gap=st.sampled_from([0, 0, 0, 2]))
    def produce(self, size: int, gap: int) -> None:
        first = self.end + gap
        self.log.append((first, first + size - 1))
        self.end = first + size

    def exists(self, offset: int) -> bool:
        return any(first <= offset <= last for first, last in self.log)

    # Delivery.

    @rule(member=members, most=st.integers(1, 9), is_strict=st.booleans(), reads=st.integers(1, 4))
    def acquire(self, member: str, most: int, *, is_strict: bool, reads: int) -> None:
        offset = self.partition.fetch_offset
        if offset is None:
            return
        batches = [each for each in self.log if each[1] >= offset][:reads]
        request = AcquireRequest(member, most, 3, is_strict)
        acquired = self.partition.acquire(request, ReadBatches(offset, batches), self.now_ms)
        for offset in range(self.highest_start, self.partition.end_offset + 1):
            self.model.setdefault(offset, Record())
            if (
                self.model[offset].state is DeliveryState.AVAILABLE
                and not self.exists(offset)
                and any(first > offset for first, _ in batches)
            ):
                self.model[offset].state = DeliveryState.ARCHIVED
        self.check_delivery(member, acquired)
        total = sum(each.size for each in acquired)
        if is_strict:
            assert total <= most
        if batches and not acquired:
            assert all(
                self.model[each].state is not DeliveryState.AVAILABLE or self.model[each].is_pending
                for each in range(offset, min(batches[-1][1], self.partition.end_offset) + 1)
                if each in self.model and each >= self.partition.start_offset
            )

    def check_delivery(self, member: str, acquired: list[Acquired]) -> None:
        for each in acquired:
            for offset in range(each.first_offset, each.last_offset + 1):
                record = self.model[offset]
                assert record.state is DeliveryState.AVAILABLE, (offset, record)
                assert not record.is_pending
                assert each.delivery_count == record.count + 1
                assert each.delivery_count <= self.limits.delivery_count_max
                record.state = DeliveryState.ACQUIRED
                record.member = member
                record.count += 1
                record.deadline_ms = self.now_ms + LOCK_MS

    # Acknowledgements.

    @precondition(lambda self: any(each.member for each in self.model.values()))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        mine = [
            (offset, record.member)
            for offset, record in self.model.items()
            if record.state is DeliveryState.ACQUIRED and not record.is_pending and record.member
        ]
        if not mine:
            return
        first, member = data.draw(st.sampled_from(mine))
        last = first
        while (last + 1, member) in mine and data.draw(st.booleans()):
            last += 1
        size = last - first + 1
        kind = st.sampled_from(list(AcknowledgeType))
        types = data.draw(
            st.one_of(
                st.lists(kind, min_size=1, max_size=1), st.lists(kind, min_size=size, max_size=size)
            )
        )
        update = self.partition.acknowledge(
            member, [Acknowledgement(first, last, types)], self.now_ms
        )
        outcomes = {}
        for place, offset in enumerate(range(first, last + 1)):
            said = types[0] if len(types) == 1 else types[place]
            record = self.model[offset]
            if said == AcknowledgeType.RENEW:
                record.deadline_ms = self.now_ms + LOCK_MS
                continue
            outcomes[offset] = self.outcome(record, said)
            record.is_pending = True
        assert (update is None) == (not outcomes)
        if update is not None:
            self.pending.append(Pending(update, outcomes))

    def outcome(self, record: Record, said: int) -> DeliveryState:
        if said == AcknowledgeType.ACCEPT:
            return DeliveryState.ACKNOWLEDGED
        if said == AcknowledgeType.RELEASE and record.count < self.limits.delivery_count_max:
            return DeliveryState.AVAILABLE
        return DeliveryState.ARCHIVED

    @rule(member=members)
    def lose_member(self, member: str) -> None:
        self.released(self.partition.release_member(member), lambda each: each.member == member)

    @rule(member=members, times=st.integers(1, 3))
    def go_in_circles(self, member: str, times: int) -> None:
        """Records are delivered to a member that is lost, again and again."""
        for _ in range(times):
            self.acquire(member, 9, is_strict=False, reads=2)
            self.lose_member(member)
            while self.pending and self.pending[-1].must_happen:
                self.finish(self.pending.pop())

    @rule(ms=st.sampled_from([1, 30, 100]))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        due = self.partition.next_deadline_ms
        if due is None or due > self.now_ms:
            assert not any(
                each.state is DeliveryState.ACQUIRED
                and not each.is_pending
                and each.deadline_ms <= self.now_ms
                for each in self.model.values()
            )
        self.released(
            self.partition.expire(self.now_ms), lambda each: each.deadline_ms <= self.now_ms
        )

    def released(self, update: StateUpdate | None, is_meant: Callable[[Record], bool]) -> None:
        outcomes = {
            offset: self.outcome(record, AcknowledgeType.RELEASE)
            for offset, record in self.model.items()
            if record.state is DeliveryState.ACQUIRED and not record.is_pending and is_meant(record)
        }
        assert (update is None) == (not outcomes)
        if update is not None:
            for offset in outcomes:
                self.model[offset].is_pending = True
            self.pending.append(Pending(update, outcomes, must_happen=True))

    # The coordinator.

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), fails=st.booleans())
    def settle(self, data: st.DataObject, fails: bool) -> None:
        pending = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1)))
        if fails and not pending.must_happen:
            self.partition.rollback(pending.update)
            for offset in pending.outcomes:
                self.model[offset].is_pending = False
        else:
            self.finish(pending)

    def finish(self, pending: Pending) -> None:
        self.kept.write(pending.update)
        self.partition.commit(pending.update)
        for offset, state in pending.outcomes.items():
            record = self.model[offset]
            record.state, record.is_pending, record.member = state, False, None

    @rule()
    def change_leader(self) -> None:
        """What is not kept is forgotten; nothing that was kept is delivered again."""
        self.pending.clear()
        self.partition = SharePartition(self.kept.start_offset, self.kept.batches, self.limits)
        kept = {
            offset: (DeliveryState(each.state), each.delivery_count)
            for each in self.kept.batches
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        self.highest_start = self.kept.start_offset
        for offset in list(self.model):
            if offset < self.kept.start_offset:
                continue
            before = self.model.pop(offset)
            if offset in kept:
                state, count = kept[offset]
                assert not before.state.is_final or before.is_pending or state is before.state
                self.model[offset] = Record(state, count)
            elif offset <= self.partition.end_offset:
                self.model[offset] = Record()

    # What must always hold.

    @invariant()
    def the_start_never_goes_back(self) -> None:
        assert self.partition.start_offset >= self.highest_start
        self.highest_start = self.partition.start_offset

    @invariant()
    def everything_before_the_start_is_final(self) -> None:
        for offset, record in self.model.items():
            if offset < self.partition.start_offset:
                assert record.state.is_final, (offset, record)

    @invariant()
    def every_record_is_as_the_model_has_it(self) -> None:
        at = self.partition.start_offset
        for run in self.partition.runs:
            assert run.first == at
            at = run.last + 1
            for offset in range(run.first, run.last + 1):
                record = self.model[offset]
                assert run.state is record.state, (offset, run, record)
                assert run.count == record.count
                assert (run.update is not None) == record.is_pending
                if run.state is DeliveryState.ACQUIRED:
                    assert run.lock is not None
                    assert run.lock.member_id == record.member
                    assert run.lock.deadline_ms == record.deadline_ms
        assert at == self.partition.end_offset + 1


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
