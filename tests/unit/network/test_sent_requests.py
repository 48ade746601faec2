"""Requests that the selector sent by itself: who takes their answers, and who must act on them."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import BrokerUnreachable
from millstream.network.client.network_client import SentRequest
from millstream.network.client.selector import Dispatched
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import SIZE_BYTES, encode_response
from millstream.protocol.messages import MetadataRequest, ProduceResponse
from tests.unit.network.network_clients import Done, connected, make_client
from tests.unit.network.scripted_selector import ScriptedSelector

VERSION = 9
NUMBER = 1 << 29


class Bench:
    """A client whose selector has sent one request; `taken`: what its user says to the answer."""

    def __init__(self, taken: bool | None) -> None:
        self.selector = ScriptedSelector()
        self.client = make_client(self.selector)
        self.connection = connected(self.client, self.selector)
        self.done, self.frames = Done(), 0
        self._taken = taken
        request = SentRequest(ApiKey.PRODUCE, VERSION, 1000, self.done, self._take)
        self.client.find_sent = lambda number, _now_ms: {NUMBER: request}.get(number)

    def _take(self, _frame: Any, _now_ms: int) -> bool | None:
        self.frames += 1
        return self._taken

    def send(self, number: int = NUMBER) -> bool:
        self.selector.events.append(Dispatched(self.connection.connection_id, number, 5))
        return self.client.handle(self.selector.take(), 5)

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


def test_a_request_does_not_take_the_room_of_others() -> None:
    bench = Bench(True)
    bench.send()

    assert bench.client.is_ready(1, 5)
    assert bench.client.in_flight(1) == 1
