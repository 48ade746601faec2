"""Requests on their way to the active controller: one suite, for here and for elsewhere."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.clock import ManualClock
from millstream.controller.decision import RequestContext
from millstream.controller.failures import error_response
from millstream.errors import NotController, NotLeaderOrFollower, RequestTimedOut
from millstream.node.controller_channel import RETRY_MS, NodeToControllerChannel
from millstream.node.timers import Timers
from millstream.protocol.frame import SIZE_BYTES, decode_request, encode_response
from millstream.protocol.messages.add_raft_voter import AddRaftVoterRequest
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.create_topics import CreateTopicsResponse as Response
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from millstream.protocol.messages.envelope import EnvelopeResponse
from millstream.raft.effects import Peer
from millstream.raft.voters import Endpoint
from millstream.server.envelopes import decode_address, decode_principal
from tests.unit.network.scripted_selector import ScriptedSelector, api_versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message

TIMEOUT_MS = 60_000
HERE, THERE = 1, 2


class Loop:
    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        return self

    def cancel(self) -> None:
        pass


class Rig:
    """A channel of node 1, and a controller that answers when it is told."""

    def __init__(self, timeout_ms: int = TIMEOUT_MS) -> None:
        self.clock = ManualClock()
        self.clock.advance(1000)
        self.random = Random(1)
        self.selector_ = ScriptedSelector()
        self.leader_id: int | None = None
        self.answers: list[Message] = []
        self.timers = Timers(cast("Any", Loop()), self.clock, self._fail)
        self.is_active = False
        self.channel = NodeToControllerChannel(
            HERE,
            cast("Any", self),
            self.timers,
            find=self._find,
            local=cast("Any", self),
            timeout_ms=timeout_ms,
        )

    def _find(self) -> Peer | None:
        if self.leader_id is None:
            return None
        return Peer(self.leader_id, Endpoint(f"host-{self.leader_id}", 9093))

    def _fail(self, error: Exception) -> None:
        raise error

    def selector(self, on_ready: Callable[[], None]) -> ScriptedSelector:
        return self.selector_

    def ask(self, request: Message | None = None, **about: Any) -> None:
        request = request or CreateTopicsRequest(topics=[CreatableTopic(name="orders")])
        context = RequestContext(**{"version": 7, **about})
        self.channel.submit(request, context, self.answers.append)
        self.turn()

    def turn(self, ms: int = 0) -> None:
        self.clock.advance(ms)
        for _ in range(4):
            self.timers.fire_due()

    def error_codes(self) -> list[int]:
        return [
            answer.topics[0].error_code for answer in self.answers if isinstance(answer, Response)
        ]


class Here(Rig):
    """The controller is in the same process."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Message, Callable[[Message], None]]] = []

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        if self.is_active:
            self.asked.append((request, callback))
        else:
            callback(error_response(request, NotController()))

    def elect(self) -> None:
        self.leader_id, self.is_active = HERE, True
        self.channel.look()
        self.turn()

    def depose(self) -> None:
        self.leader_id, self.is_active = None, False

    def waiting(self) -> list[Message]:
        return [request for request, _ in self.asked]

    def answer(self, response: Message) -> None:
        _, callback = self.asked.pop(0)
        callback(response)
        self.turn()


class There(Rig):
    """The controller is another node."""

    def submit(self, *_: object) -> None:
        raise AssertionError("the controller of this process does not lead")

    def elect(self) -> None:
        self.leader_id = THERE
        self.channel.look()
        self.turn()
        self.connect()

    def connect(self) -> None:
        connection = self.selector_.last
        self.selector_.accept(connection)
        self.turn(1)
        self.pump()
        self.selector_.answer(connection, api_versions())
        self.pump()

    def pump(self) -> None:
        client = self.channel._client
        client._turn()
        self.turn()

    def depose(self) -> None:
        self.leader_id = None

    def waiting(self) -> list[Any]:
        return [each.message for each in self.selector_.last.requests]

    def answer(self, response: Message) -> None:
        self.selector_.answer(self.selector_.last, response)
        self.pump()


def refused(error: type[NotController] = NotController) -> Message:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="orders")])
    return error_response(request, error())


@pytest.fixture(params=[Here, There])
def rig(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_requests_wait_until_there_is_a_controller(rig: Any) -> None:
    rig.ask()
    rig.ask()
    assert rig.answers == []

    rig.elect()
    assert len(rig.waiting()) == 2
    rig.answer(Response())
    rig.answer(Response())

    assert rig.answers == [Response(), Response()]


def test_the_active_controller_is_asked_at_once(rig: Any) -> None:
    rig.ask()
    rig.elect()
    rig.ask()

    assert len(rig.waiting()) == 2


def test_a_request_waits_no_longer_than_its_time(rig: Any) -> None:
    rig.ask()
    rig.turn(10)
    rig.ask()

    rig.turn(TIMEOUT_MS - 10)

    assert rig.error_codes() == [RequestTimedOut.code]
    rig.elect()
    assert len(rig.waiting()) == 1


def test_who_leads_no_longer_is_not_believed(rig: Any) -> None:
    rig.ask()
    rig.elect()

    rig.depose()
    rig.answer(refused())
    assert rig.answers == []
    rig.turn(RETRY_MS)
    assert rig.answers == []

    rig.elect() if isinstance(rig, Here) else setattr(rig, "leader_id", THERE)
    rig.turn(RETRY_MS)
    rig.turn(100)
    rig.answer(Response())
    assert rig.answers == [Response()]


def test_an_answer_that_is_refused_goes_again_before_what_came_later(rig: Any) -> None:
    rig.ask(CreateTopicsRequest(topics=[CreatableTopic(name="first")]))
    rig.elect()
    rig.answer(refused())
    rig.ask(CreateTopicsRequest(topics=[CreatableTopic(name="second")]))

    rig.turn(RETRY_MS)

    assert [each.topics[0].name for each in rig.waiting()] == ["first", "second"]


def test_a_quorum_described_by_who_does_not_lead_is_described_again(rig: Any) -> None:
    rig.ask(DescribeQuorumRequest(), version=2)
    rig.elect()
    rig.answer(DescribeQuorumResponse(error_code=NotLeaderOrFollower.code))
    assert rig.answers == []

    rig.turn(RETRY_MS)

    assert rig.waiting() == [DescribeQuorumRequest()]


def test_closing_answers_those_who_wait(rig: Any) -> None:
    rig.ask()
    rig.ask(AddRaftVoterRequest(), version=1)

    rig.channel.close()
    rig.ask()

    assert rig.error_codes() == [NotController.code] * 2
    assert len(rig.answers) == 3


def test_a_lost_connection_sends_the_request_again() -> None:
    rig = There()
    rig.ask()
    rig.elect()

    rig.selector_.drop(rig.selector_.last)
    rig.pump()
    assert rig.answers == []
    rig.turn(RETRY_MS * 2)
    rig.pump()
    rig.connect()

    assert len(rig.selector_.connections) == 2
    assert len(rig.waiting()) == 1


def test_a_connection_that_does_not_come_about_is_tried_anew_when_its_requests_gave_up() -> None:
    rig = There(timeout_ms=1000)
    rig.leader_id = THERE
    rig.ask()
    rig.turn(1000)
    rig.pump()
    rig.ask()
    rig.turn(RETRY_MS * 2)
    rig.pump()

    assert len(rig.selector_.connections) == 2


def test_a_client_travels_in_an_envelope() -> None:
    rig = There()
    rig.ask(principal="User:alice", client_id="laptop", client_host="10.0.0.7")
    rig.elect()

    (envelope,) = rig.waiting()
    assert decode_principal(envelope.request_principal) == "User:alice"
    assert decode_address(envelope.client_host_address) == "10.0.0.7"
    inner: Any
    header, inner = decode_request(bytes(envelope.request_data))
    assert (header.client_id, inner.topics[0].name) == ("laptop", "orders")

    frame = encode_response(Response(), 7, 0)[SIZE_BYTES:]
    rig.answer(EnvelopeResponse(response_data=frame))
    assert rig.answers == [Response()]


def test_an_envelope_that_is_refused_is_an_error_of_the_broker() -> None:
    rig = There()
    rig.ask(client_host="10.0.0.7")
    rig.elect()

    rig.answer(EnvelopeResponse(error_code=31))

    assert rig.error_codes() == [-1]


def test_an_envelope_at_who_does_not_lead_is_sent_again() -> None:
    rig = There()
    rig.ask(client_host="10.0.0.7")
    rig.elect()

    rig.answer(EnvelopeResponse(error_code=NotController.code))
    rig.turn(RETRY_MS)

    assert rig.answers == []
    assert len(rig.waiting()) == 1


def test_the_versions_of_another_controller_are_known_once_it_is_connected() -> None:
    rig = There()
    before = rig.channel.controller_versions()
    rig.ask()

    rig.elect()
    connected = rig.channel.controller_versions()
    rig.depose()

    assert before == rig.channel.controller_versions() == {}
    assert connected[CreateTopicsRequest.KEY].covers(7)


def test_the_controller_of_this_process_limits_nothing() -> None:
    rig = Here()
    rig.leader_id = HERE

    assert rig.channel.controller_versions() == {}
