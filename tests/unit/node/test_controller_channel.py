"""Requests on their way to the controller in the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.clock import ManualClock
from millstream.controller.decision import RequestContext
from millstream.errors import NotController, RequestTimedOut
from millstream.node.controller_channel import LocalControllerChannel
from millstream.node.timers import Timers
from millstream.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.create_topics import CreateTopicsResponse as Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message

TIMEOUT_MS = 30_000


class Controller:
    """Remembers what it is asked; answers when told."""

    def __init__(self) -> None:
        self.is_active = False
        self.on_active: list[Callable[[], None]] = []
        self.asked: list[Message] = []

    def handle(
        self, request: Message, context: RequestContext, reply: Callable[[Message], None]
    ) -> None:
        self.asked.append(request)
        reply(Response())

    def activate(self) -> None:
        self.is_active = True
        for call in self.on_active:
            call()


class Raft:
    def handle(
        self, request: Message, version: int, listener: str, respond: Callable[[Message], None]
    ) -> None:
        assert (version, listener) == (2, "CONTROLLER")
        respond(DescribeQuorumResponse())


class Loop:
    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        return self

    def cancel(self) -> None:
        pass


class Rig:
    def __init__(self, *, waits: bool = True) -> None:
        self.clock = ManualClock()
        self.controller = Controller()
        self.answers: list[Message] = []
        self.timers = Timers(cast("Any", Loop()), self.clock, self._fail)
        self.channel = LocalControllerChannel(
            cast("Any", self.controller),
            cast("Any", Raft()),
            listener="CONTROLLER",
            clock=self.clock,
            timers=self.timers,
            timeout_ms=TIMEOUT_MS,
            waits=waits,
        )

    def _fail(self, error: Exception) -> None:
        raise error

    def ask(self, request: Message | None = None) -> None:
        request = request or CreateTopicsRequest(topics=[CreatableTopic(name="orders")])
        self.channel.submit(request, RequestContext(version=2), self.answers.append)

    def error_codes(self) -> list[int]:
        return [
            answer.topics[0].error_code for answer in self.answers if isinstance(answer, Response)
        ]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_active_controller_is_asked_at_once(rig: Rig) -> None:
    rig.controller.is_active = True

    rig.ask()

    assert rig.answers == [Response()]


def test_requests_wait_until_there_is_a_controller(rig: Rig) -> None:
    rig.ask()
    rig.ask()
    assert rig.answers == []

    rig.controller.activate()

    assert len(rig.controller.asked) == 2
    assert rig.answers == [Response(), Response()]


def test_a_request_waits_no_longer_than_its_time(rig: Rig) -> None:
    rig.ask()
    rig.clock.advance(1)
    rig.ask()

    rig.clock.advance(TIMEOUT_MS - 1)
    rig.timers.fire_due()

    assert rig.error_codes() == [RequestTimedOut.code]
    rig.controller.activate()
    assert len(rig.controller.asked) == 1


def test_a_channel_that_does_not_wait_refuses_at_once() -> None:
    rig = Rig(waits=False)

    rig.ask()

    assert rig.error_codes() == [NotController.code]


def test_questions_about_the_quorum_go_to_raft(rig: Rig) -> None:
    rig.ask(DescribeQuorumRequest())

    assert rig.answers == [DescribeQuorumResponse()]


def test_closing_answers_those_who_wait(rig: Rig) -> None:
    rig.ask()

    rig.channel.close()

    assert rig.error_codes() == [NotController.code]
