"""When the actors of a client are polled, and when they can be left alone."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.config import ClientConfig
from millstream.client.runtime import QUIET_MS_MAX, ClientRuntime
from tests.unit.network.scripted_selector import ScriptedSelector

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Stands still unless it is told to move."""

    def __init__(self) -> None:
        self.now = 1000

    def monotonic_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now


class Bench:
    """A runtime whose network says what it is told to say."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.selector = ScriptedSelector()
        self.polls: list[int] = []
        self.due_ms: int | None = None
        self.is_all = True
        self.runtime = ClientRuntime(
            self.selector, self.clock, ClientConfig(bootstrap_servers=("a:1",)), Random(1)
        )
        network: Any = self.runtime.network
        network.handle = self._handle
        self.runtime.add(self)

    def _handle(self, _events: Any, _now_ms: int) -> bool:
        return self.is_all

    def poll(self, now_ms: int) -> int | None:
        self.polls.append(now_ms)
        return self.due_ms

    def turn(self, *, has_event: bool = True) -> int:
        """One turn; how often the actor was polled so far."""
        if has_event:
            self.selector.events.append(object())  # type: ignore[arg-type]  # Nobody looks at it.
        self.runtime.run_once(0)
        return len(self.polls)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.runtime.close()


def test_actors_are_left_alone_while_the_network_sees_to_everything(bench: Bench) -> None:
    assert [bench.turn() for _ in range(4)] == [1, 1, 1, 1]


def test_they_are_polled_after_anything_that_concerns_them(bench: Bench) -> None:
    bench.turn()
    bench.is_all = False

    assert [bench.turn(), bench.turn(), bench.turn()] == [1, 2, 3]


def test_they_are_polled_when_nothing_has_happened(bench: Bench) -> None:
    bench.turn()

    assert bench.turn(has_event=False) == 1
    assert bench.turn() == 2


def test_who_wakes_or_posts_is_heard(bench: Bench) -> None:
    bench.turn()
    bench.runtime.wake()
    assert bench.turn() == 2
    posted: list[int] = []
    bench.runtime.post(posted.append)
    assert bench.turn() == 3
    assert posted == [1000]


def test_what_is_due_is_due(bench: Bench) -> None:
    bench.due_ms = 1010
    bench.turn()
    bench.clock.now = 1009
    assert bench.turn() == 1
    bench.clock.now = 1010
    assert bench.turn() == 2


def test_not_for_long(bench: Bench) -> None:
    bench.turn()
    bench.clock.now += QUIET_MS_MAX - 1
    assert bench.turn() == 1
    bench.clock.now += 1
    assert bench.turn() == 2


def test_a_newcomer_is_polled_at_once(bench: Bench) -> None:
    bench.turn()
    bench.runtime.add(bench)

    assert bench.turn() == 3
