"""Whatever happens, every operation completes exactly once, at its deadline or before."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.replica.purgatory import NEVER_MS, DelayedOperation, DelayedOperationPurgatory

KEYS = st.integers(0, 4)


class Probe(DelayedOperation):
    """Ready when enough of the flags it looks at are set."""

    __slots__ = ("completed_ms", "flags", "is_expired", "looks_at", "machine")

    def __init__(self, machine: PurgatoryMachine, deadline_ms: int, looks_at: set[int]) -> None:
        super().__init__(deadline_ms)
        self.machine = machine
        self.looks_at = looks_at
        self.completed_ms: int | None = None
        self.is_expired = False

    def is_ready(self) -> bool:
        """Whether all its flags are set."""
        return self.looks_at <= self.machine.flags

    def on_complete(self, *, is_expired: bool) -> None:
        """Once."""
        assert self.completed_ms is None
        self.completed_ms = self.machine.now_ms
        self.is_expired = is_expired


class PurgatoryMachine(RuleBasedStateMachine):
    """Operations come, flags change, time passes; the timer rings when it was set for."""

    @initialize()
    def begin(self) -> None:
        """Nothing waits."""
        self.now_ms = 0
        self.timer_ms = NEVER_MS
        self.flags: set[int] = set()
        self.probes: list[Probe] = []
        self.purgatory = DelayedOperationPurgatory(self.set_timer)

    def set_timer(self, deadline_ms: int) -> None:
        """What a driver does."""
        self.timer_ms = min(self.timer_ms, deadline_ms)

    @rule(wait_ms=st.integers(0, 30), keys=st.sets(KEYS, min_size=1))
    def come(self, wait_ms: int, keys: set[int]) -> None:
        """An operation that waits for flags, by the keys of the same names."""
        probe = Probe(self, self.now_ms + wait_ms, keys)
        self.probes.append(probe)
        self.purgatory.complete_or_watch(probe, keys)

    @rule(key=KEYS)
    def set_flag(self, key: int) -> None:
        """Something has changed."""
        self.flags.add(key)
        self.purgatory.check(key)

    @rule(key=KEYS)
    def clear_flag(self, key: int) -> None:
        """Something has changed for the worse."""
        self.flags.discard(key)
        self.purgatory.check(key)

    @rule(ms=st.integers(0, 40))
    def pass_time(self, ms: int) -> None:
        """The driver acts when its timer rings, and only then."""
        end_ms = self.now_ms + ms
        while self.timer_ms <= end_ms:
            self.now_ms, self.timer_ms = max(self.now_ms, self.timer_ms), NEVER_MS
            self.purgatory.expire(self.now_ms)
        self.now_ms = end_ms

    @invariant()
    def nobody_waits_longer_than_its_deadline(self) -> None:
        """Nor is answered too early without being ready."""
        waiting = 0
        for probe in self.probes:
            if probe.completed_ms is None:
                waiting += 1
                assert not probe.is_done
                assert probe.deadline_ms >= self.now_ms
                assert not probe.is_ready()
            else:
                assert probe.is_expired == (probe.completed_ms == probe.deadline_ms) or (
                    not probe.is_expired and probe.completed_ms <= probe.deadline_ms
                )
        assert len(self.purgatory) == waiting

    @invariant()
    def the_earliest_deadline_is_known(self) -> None:
        """Whoever asks gets it; nothing waits, nothing is known."""
        deadlines = [each.deadline_ms for each in self.probes if each.completed_ms is None]
        assert self.purgatory.next_deadline_ms() == min(deadlines, default=None)

    @invariant()
    def memory_is_that_of_what_waits(self) -> None:
        """Watch lists hold nobody who is done."""
        watched = {probe for watchers in self.purgatory._watchers.values() for probe in watchers}
        assert watched == {each for each in self.probes if each.completed_ms is None}


PurgatoryMachine.TestCase.settings = settings(stateful_step_count=40)
TestPurgatory = PurgatoryMachine.TestCase
