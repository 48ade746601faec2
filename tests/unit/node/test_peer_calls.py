"""Questions to the broker that is responsible: this one and another give the same answers."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.clock import ManualClock
from millstream.errors import (
    ApiError,
    BrokerUnreachable,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    MillstreamError,
    NetworkException,
    NotCoordinator,
)
from millstream.node.peer_calls import TRIES_MAX, PeerCalls, PeerContext
from millstream.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from millstream.protocol.message import Message

HERE, THERE = 1, 2


class World:
    """Brokers that know the length of words, and the calls of one of them."""

    def __init__(self, broker_id: int, tries_max: int = TRIES_MAX) -> None:
        self.broker: int | ApiError = broker_id
        self.problems: list[ApiError] = []
        """What the broker says first, before it knows."""
        self.lost = 0
        """How many requests are lost on their way."""
        self.requests: list[list[str]] = []
        self.held: list[Callable[[], None]] | None = None
        """Answers of the other broker, if they are held back."""
        self.told: list[int | ApiError] = []
        self.clock = ManualClock()
        context = PeerContext(HERE, lambda: self, self.clock, Random(1), lambda _: None)
        self.calls: PeerCalls[str, int] = PeerCalls(self, context, self, tries_max=tries_max)
        self._asked: Sequence[str] = ()

    def ask(self, *words: str) -> None:
        for word in words:
            self.calls.ask(word, self.told.append)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1_000)
            self.calls.tick()

    # The API of words.

    def broker_of(self, asked: str) -> int | ApiError:
        return self.broker

    def group_of(self, asked: str) -> Hashable:
        return None

    def key_of(self, asked: str) -> Hashable:
        return asked[0]

    def ask_here(self, asked: str, done: Callable[[int | ApiError], None]) -> None:
        done(self._answer(asked))

    def request(self, asked: Sequence[str]) -> Message:
        self._asked = asked
        return ListOffsetsRequest()

    def outcomes(self, asked: Sequence[str], response: Message) -> list[int | ApiError]:
        return [self._answer(each) for each in asked]

    def _answer(self, word: str) -> int | ApiError:
        return self.problems.pop(0) if self.problems else len(word)

    # The other brokers.

    def send(
        self, broker_id: int, request: Message, done: Callable[[Message | MillstreamError], None]
    ) -> None:
        assert broker_id == THERE
        self.requests.append(list(self._asked))
        if self.lost:
            self.lost -= 1
            done(BrokerUnreachable("it is gone"))
        elif self.held is None:
            done(ListOffsetsResponse())
        else:
            self.held.append(lambda: done(ListOffsetsResponse()))

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(params=[HERE, THERE], ids=["here", "there"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_a_question_has_its_answer(world: World) -> None:
    world.ask("a", "bb")

    assert world.told == [1, 2]


def test_a_coordinator_that_is_not_ready_is_asked_again(world: World) -> None:
    world.problems = [NotCoordinator(), CoordinatorNotAvailable()]
    world.ask("aaa")
    assert world.told == []

    world.pass_time(3)

    assert world.told == [3]


def test_a_refusal_is_told_at_once(world: World) -> None:
    world.problems = [FencedLeaderEpoch()]
    world.ask("a")

    assert [type(each) for each in world.told] == [FencedLeaderEpoch]


def test_a_coordinator_that_does_not_come_is_given_up(world: World) -> None:
    world.problems = [NotCoordinator() for _ in range(TRIES_MAX)]
    world.ask("a")
    world.pass_time(20)

    assert [type(each) for each in world.told] == [NotCoordinator]
    assert world.problems == []


def test_questions_about_one_thing_stay_in_order(world: World) -> None:
    world.problems = [NotCoordinator()]
    world.ask("a", "aa", "aaa", "b")
    assert world.told == [1]

    world.pass_time(3)

    assert world.told == [1, 1, 2, 3]


def test_nobody_waits_for_a_broker_that_stops(world: World) -> None:
    world.problems = [NotCoordinator()]
    world.ask("a", "aa")
    world.calls.close()
    world.ask("a")
    world.pass_time(3)

    assert [type(each) for each in world.told] == [NotCoordinator] * 3


def test_questions_follow_a_coordinator_that_moves(world: World) -> None:
    world.problems = [NotCoordinator()]
    world.ask("aaa")
    world.broker = HERE if world.broker == THERE else THERE
    world.pass_time(3)

    assert world.told == [3]


def test_there_may_be_no_coordinator_for_a_while(world: World) -> None:
    world.broker, found = CoordinatorNotAvailable(), world.broker
    world.ask("aaa")
    world.broker = found
    world.pass_time(3)

    assert world.told == [3]


def test_what_comes_while_a_broker_is_asked_goes_together() -> None:
    world = World(THERE)
    world.held = []
    world.ask("a", "b", "c", "bb")
    assert world.requests == [["a"]]
    while world.held:
        world.held.pop(0)()

    assert world.requests == [["a"], ["b", "c"], ["bb"]]
    assert world.told == [1, 1, 1, 2]


def test_a_request_that_is_lost_is_sent_again() -> None:
    world = World(THERE)
    world.lost = 2
    world.ask("aaa")
    world.pass_time(3)

    assert world.told == [3]


def test_a_lost_request_is_an_error_of_the_network_where_others_try_again() -> None:
    world = World(THERE, tries_max=1)
    world.lost = 1
    world.ask("aaa")

    assert [type(each) for each in world.told] == [NetworkException]
