"""Requests that the selector sent by itself: who takes their answers, and who must act on them."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import BrokerUnreachable
from millstream.network.client_selector import Answered, Dispatched
from millstream.network.express_requests import ExpressRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import SIZE_BYTES, encode_response
from millstream.protocol.messages import MetadataRequest, ProduceResponse
from tests.unit.network.network_clients import Done, connected, make_client
from tests.unit.network.scripted_selector import ScriptedSelector

VERSION = 9
NUMBER = 1 << 29


class Bench:
    """A client that has sent one express request; `taken` is what its user says to the answer."""

    def __init__(self, taken: bool | None) -> None:
        self.selector = ScriptedSelector()
        self.client = make_client(self.selector)
        self.connection = connected(self.client, self.selector)
        self.done, self.frames = Done(), 0
        self._taken = taken
        request = ExpressRequest(ApiKey.PRODUCE, VERSION, 1000, self.done, self._take)
        self.client.express.find = {NUMBER: request}.get

    def _take(self, _frame: Any, _now_ms: int) -> bool | None:
        self.frames += 1
        return self._taken

    def send(self, number: int = NUMBER) -> bool:
        self.selector.events.append(Dispatched(self.connection.connection_id, number, 5))
        return self.client.handle(self.selector.take(), 5)

    def answer_at_once(self, *numbers: int) -> bool:
        """The selector tells of requests only when their answers are here."""
        for number in numbers:
            frame = encode_response(ProduceResponse(), VERSION, number)[SIZE_BYTES:]
            self.selector.events.append(Answered(self.connection.connection_id, number, frame))
        return self.client.handle(self.selector.take(), 6)

    def answer(self) -> bool:
        frame = encode_response(ProduceResponse(), VERSION, NUMBER)[SIZE_BYTES:]
        self.selector.receive(self.connection, frame)
        return self.client.handle(self.selector.take(), 6)


@pytest.mark.parametrize("taken", [True, False])
def test_an_answer_that_is_taken_is_not_decoded(taken: bool) -> None:
    bench = Bench(taken)

    assert bench.send()
    assert bench.answer() is taken
    assert bench.frames == 1
    assert not bench.done.outcomes


def test_any_other_answer_is_decoded_and_concerns_others() -> None:
    bench = Bench(None)
    bench.send()

    assert not bench.answer()
    assert isinstance(bench.done.response, ProduceResponse)


def test_a_request_that_nobody_knows_and_one_without_a_connection_concern_others() -> None:
    bench = Bench(True)
    assert not bench.send(NUMBER + 1)
    bench.selector.drop(bench.connection)
    assert not bench.client.handle(bench.selector.take(), 5)

    assert not bench.send()
    assert isinstance(bench.done.error, BrokerUnreachable)


def test_requests_that_wait_for_room_concern_others() -> None:
    bench = Bench(True)
    bench.send()
    for _ in range(3):
        bench.client.send(1, MetadataRequest(), 5, Done())

    assert not bench.answer()


def test_requests_that_are_told_of_with_their_answers_are_settled_together() -> None:
    bench = Bench(True)
    settled: list[list[int]] = []

    def settle(answered: list[Answered], _now_ms: int) -> tuple[int, bool]:
        settled.append([each.correlation_id for each in answered])
        return len(answered), True

    bench.client.express.settle = settle

    assert bench.answer_at_once(NUMBER, NUMBER + 1)
    assert settled == [[NUMBER, NUMBER + 1]]
    assert bench.frames == 0


def test_what_is_not_settled_goes_the_way_of_any_answer() -> None:
    bench = Bench(None)
    bench.client.express.settle = lambda _answered, _now_ms: (1, True)

    assert not bench.answer_at_once(NUMBER + 1, NUMBER)
    assert bench.frames == 1
    assert isinstance(bench.done.response, ProduceResponse)


def test_answers_are_settled_before_what_came_after_them() -> None:
    bench = Bench(True)
    told: list[str] = []

    def settle(answered: list[Answered], _now_ms: int) -> tuple[int, bool]:
        told.append("settled")
        return len(answered), True

    bench.client.express.settle = settle
    bench.client.send(1, MetadataRequest(), 5, lambda *_: told.append("lost"))
    bench.selector.events.append(Answered(bench.connection.connection_id, NUMBER, b""))
    bench.selector.drop(bench.connection)

    assert not bench.client.handle(bench.selector.take(), 6)
    assert told == ["settled", "lost"]
