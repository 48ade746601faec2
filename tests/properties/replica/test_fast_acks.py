"""The same life with followers by both paths: the same answers in the same order, the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from millstream import _accel
from tests.unit.replica.fast_frames import fast_answers, frame_of, result_of
from tests.unit.replica.harness import LOCAL, World
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from millstream.replica.append_service import AppendResult

FOLLOWERS = (2, 3)
PARTITIONS = 2

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)


class Life:
    """A leader with two followers, whose clients take one of the two paths."""

    def __init__(self, *, is_fast: bool) -> None:
        self.is_fast = is_fast
        self.world = World()
        for broker in FOLLOWERS:
            self.world.register(broker)
        self.world.create(partitions=PARTITIONS, replicas=(LOCAL, *FOLLOWERS))
        for index in range(PARTITIONS):
            self.world.produce(index=index, acks=1)
        self._owed: dict[int, Any] = {}
        self.answers: list[tuple[int, AppendResult]] = []

    def produce(self, number: int, index: int, acks: int, timeout_ms: int, records: bytes) -> None:
        """A client's request, by the fast path if that takes it."""
        if self.is_fast:
            frame = frame_of(index=index, acks=acks, records=records, timeout_ms=timeout_ms)
            answers = fast_answers(self.world, frame)
            if answers:
                event("fast and late" if acks == -1 else "fast and at once")
                self._owed[number] = answers[0]
                return
        reply = self.world.produce(records, index=index, acks=acks, timeout_ms=timeout_ms)
        self._owed[number] = reply

    def step(self, name: str, *arguments: Any) -> None:
        """Something happens, and everything that follows from it."""
        getattr(self, name)(*arguments)
        self.world.settle()
        self._collect()

    def follow(self, broker: int, index: int, lag: int) -> None:
        """A follower fetches from near the end on."""
        partition = self.world.partition(index=index)
        if partition.is_leader:
            end = partition.log.log_end_offset
            self.world.follow(max(end - lag, 0), broker=broker, index=index)

    def pass_time(self, ms: int) -> None:
        """Deadlines come."""
        self.world.pass_time(ms)

    def lead(self, leader: int, index: int) -> None:
        """Another broker leads, or this one again."""
        self.world.change(index=index, leader=leader)

    def agree(self) -> None:
        """The controller agrees to a change of the ISR."""
        if self.world.controller.proposals:
            self.world.controller.agree()

    def _collect(self) -> None:
        for number, owed in list(self._owed.items()):
            found = self._result(owed)
            if found is not None:
                del self._owed[number]
                self.answers.append((number, found))

    def _result(self, owed: Any) -> AppendResult | None:
        if isinstance(owed, bytes):
            return result_of(owed)
        if hasattr(owed, "response"):
            return None if owed.response is None else result_of(owed.response)
        return None if owed.is_pending else owed.value[0]

    def state(self) -> Any:
        """What both must agree on."""
        logs = [self.world.partition(index=index).log for index in range(PARTITIONS)]
        return (
            [(log.log_end_offset, log.high_watermark, log.size) for log in logs],
            [
                (number, result.error and result.error.code, result[1:])
                for number, result in self.answers
            ],
            sorted(self._owed),
            self.world.manager.waiting_count,
        )


indexes = st.integers(0, PARTITIONS - 1)
steps = st.one_of(
    st.tuples(
        st.just("produce"),
        indexes,
        st.sampled_from([-1, -1, 1]),
        st.sampled_from([200, 1000]),
        st.integers(1, 3).map(lambda count: batch_bytes(records=count)),
    ),
    st.tuples(st.just("follow"), st.sampled_from(FOLLOWERS), indexes, st.integers(0, 3)),
    st.tuples(st.just("follow"), st.sampled_from(FOLLOWERS), indexes, st.just(0)),
    st.tuples(st.just("pass_time"), st.sampled_from([50, 300, 40_000])),
    st.tuples(st.just("lead"), st.sampled_from([LOCAL, 2]), indexes),
    st.tuples(st.just("agree")),
)


@settings(max_examples=150)
@given(st.lists(steps, max_size=25))
def test_both_paths_answer_alike(life: list[tuple[Any, ...]]) -> None:
    full, fast = Life(is_fast=False), Life(is_fast=True)

    for number, (name, *arguments) in enumerate(life):
        for each in (full, fast):
            each.step(name, *([number] if name == "produce" else []), *arguments)
        assert fast.state() == full.state()
