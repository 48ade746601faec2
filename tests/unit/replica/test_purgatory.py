"""Operations complete once, when they are ready or when their time has come."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from millstream.replica.purgatory import DelayedOperation, DelayedOperationPurgatory

if TYPE_CHECKING:
    from collections.abc import Callable


class Probe(DelayedOperation):
    """Ready when it is told to be."""

    __slots__ = ("completions", "is_open", "on_done")

    def __init__(self, deadline_ms: int, on_done: Callable[[], None] = lambda: None) -> None:
        super().__init__(deadline_ms)
        self.is_open = False
        self.completions: list[bool] = []
        self.on_done = on_done

    def is_ready(self) -> bool:
        """As told."""
        return self.is_open

    def on_complete(self, *, is_expired: bool) -> None:
        """Remember."""
        self.completions.append(is_expired)
        self.on_done()


@pytest.fixture
def alarms() -> list[int]:
    """The deadlines a timer was set for."""
    return []


@pytest.fixture
def purgatory(alarms: list[int]) -> DelayedOperationPurgatory:
    """An empty one."""
    return DelayedOperationPurgatory(alarms.append)


def test_an_operation_that_is_ready_never_waits(purgatory: DelayedOperationPurgatory) -> None:
    probe = Probe(100)
    probe.is_open = True

    assert purgatory.complete_or_watch(probe, ["a"])

    assert probe.completions == [False]
    assert (len(purgatory), purgatory.next_deadline_ms()) == (0, None)


def test_an_operation_is_looked_at_when_one_of_its_keys_changes(
    purgatory: DelayedOperationPurgatory,
) -> None:
    probe = Probe(100)
    purgatory.complete_or_watch(probe, ["a", "b"])
    probe.is_open = True
    assert purgatory.check("c") == 0

    assert purgatory.check("b") == 1

    assert probe.completions == [False]
    assert "a" not in purgatory
    assert purgatory.check("a") == 0


def test_an_operation_expires_at_its_deadline_and_not_before(
    purgatory: DelayedOperationPurgatory,
) -> None:
    probe = Probe(100)
    purgatory.watch(probe, ["a"])

    assert purgatory.expire(99) == 0
    assert purgatory.expire(100) == 1
    assert purgatory.expire(1000) == 0

    assert probe.completions == [True]
    assert "a" not in purgatory


def test_a_completed_operation_does_not_expire(purgatory: DelayedOperationPurgatory) -> None:
    probe = Probe(100)
    purgatory.watch(probe, ["a"])
    probe.is_open = True
    purgatory.check("a")

    assert purgatory.expire(100) == 0
    assert probe.completions == [False]


def test_the_timer_is_set_for_the_earliest_deadline_only(
    purgatory: DelayedOperationPurgatory, alarms: list[int]
) -> None:
    for deadline_ms in (300, 500, 200, 250):
        purgatory.watch(Probe(deadline_ms), ["a"])
    assert alarms == [300, 200]

    purgatory.expire(200)

    assert alarms == [300, 200, 250]
    assert purgatory.next_deadline_ms() == 250


def test_idle_means_that_no_timer_is_set(
    purgatory: DelayedOperationPurgatory, alarms: list[int]
) -> None:
    purgatory.watch(Probe(100), ["a"])
    purgatory.expire(100)

    assert alarms == [100]
    assert purgatory.next_deadline_ms() is None


def test_who_came_first_is_completed_first(purgatory: DelayedOperationPurgatory) -> None:
    order: list[str] = []
    for name in "xyz":
        probe = Probe(100, lambda name=name: order.append(name))  # type: ignore[misc]  # Bound now.
        probe.is_open = True
        purgatory.watch(probe, ["a"])

    purgatory.check("a")

    assert order == ["x", "y", "z"]


def test_one_that_cannot_be_answered_does_not_keep_others_waiting(
    purgatory: DelayedOperationPurgatory, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("the connection is gone")

    broken, sound = Probe(100, fail), Probe(100)
    for probe in (broken, sound):
        probe.is_open = True
        purgatory.watch(probe, ["a"])

    with caplog.at_level(logging.ERROR):
        assert purgatory.check("a") == 2

    assert sound.completions == [False]
    assert "could not be completed" in caplog.text


def test_one_that_completes_may_let_another_wait(purgatory: DelayedOperationPurgatory) -> None:
    later = Probe(200)
    first = Probe(100, lambda: purgatory.watch(later, ["a"]))
    first.is_open = True
    purgatory.watch(first, ["a"])

    purgatory.check("a")

    assert (len(purgatory), later.completions) == (1, [])
    assert purgatory.next_deadline_ms() == 200


def test_one_completed_by_another_is_not_completed_again(
    purgatory: DelayedOperationPurgatory,
) -> None:
    second = Probe(100)

    def complete_second() -> None:
        purgatory.check("b")

    first = Probe(100, complete_second)
    for probe, keys in ((first, ["a"]), (second, ["a", "b"])):
        probe.is_open = True
        purgatory.watch(probe, keys)

    purgatory.check("a")

    assert second.completions == [False]


def test_completed_operations_leave_nothing_behind(purgatory: DelayedOperationPurgatory) -> None:
    for _ in range(10_000):
        probe = Probe(1_000_000)
        purgatory.watch(probe, ["a", "b"])
        probe.is_open = True
        purgatory.check("a")

    assert len(purgatory) == 0
    assert len(purgatory._heap) < 200
    assert "b" not in purgatory


def test_a_stopping_broker_completes_everything(purgatory: DelayedOperationPurgatory) -> None:
    probes = [Probe(deadline_ms) for deadline_ms in (300, 100, 200)]
    for probe in probes:
        purgatory.watch(probe, ["a"])

    purgatory.complete_all()

    assert [probe.completions for probe in probes] == [[True]] * 3
    assert (len(purgatory), purgatory.next_deadline_ms()) == (0, None)
