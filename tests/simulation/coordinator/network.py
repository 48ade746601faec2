"""Connections between clients and the broker. Each breaks now and then, and then nobody knows
whether the last request arrived.

Requests of one connection arrive in their order. Those that carry a sequence or an epoch to guard
against it may also arrive a second time, much later.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.protocol.messages.end_txn import EndTxnRequest
from millstream.protocol.messages.produce import ProduceRequest
from millstream.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.unit.server.fakes import Client as Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.network.server.request import Request
    from millstream.protocol.message import Message
    from tests.simulation.coordinator.broker import SimBroker
    from tests.simulation.coordinator.schedule import Schedule

_GUARDED = {ProduceRequest: 3, EndTxnRequest: 5, TxnOffsetCommitRequest: 5}
"""Requests that may come again, from which version on."""
PATIENCE_MS = 30_000
"""How long a client waits for an answer at most."""


class Ask(NamedTuple):
    """A request to send."""

    message: Message
    version: int


class _Listener(Connection):
    """One request's end of a connection."""

    __slots__ = ("then",)

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], None] = lambda: None

    def answered(self, request: Request) -> None:
        """The answer that had to wait is there."""
        self.then()


class Network:
    """Carries requests and answers, or loses them."""

    def __init__(self, broker: SimBroker, schedule: Schedule, random: Random) -> None:
        self._broker = broker
        self._schedule = schedule
        self._random = random
        self.loss = random.choice([0.0, 0.01, 0.03, 0.08])
        """How likely a request, or an answer, is lost with its connection."""
        self.trace: list[str] | None = None
        """What the broker was asked and answered, if somebody wants to know."""

    def ask(
        self, asks: Sequence[Ask], client_id: str, done: Callable[[list[Any | None]], None]
    ) -> None:
        """Send requests one after the other; `done` gets their answers, None for lost ones."""
        answers: list[Any | None] = [None] * len(asks)
        left = set(range(len(asks)))
        is_over = False

        def finish() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                done(answers)

        def answered(place: int, answer: Any) -> None:
            answers[place] = answer
            left.discard(place)
            if not left:
                finish()

        broken_at = next((place for place in left if self._is_lost()), None)
        delay_ms = self._latency_ms()
        for place, each in enumerate(asks):
            if broken_at is not None and place >= broken_at:
                break
            respond = self._responder(partial(answered, place), finish)
            self._schedule.after(delay_ms, partial(self._deliver, each, client_id, respond))
            self._perhaps_again(each, client_id, delay_ms)
        is_broken = broken_at is not None
        self._schedule.after(self._random.randint(200, 3_000) if is_broken else PATIENCE_MS, finish)

    def _responder(
        self, answered: Callable[[Any], None], broken: Callable[[], None]
    ) -> Callable[[Any], None]:
        def respond(answer: Any) -> None:
            if self._is_lost():
                self._schedule.after(self._random.randint(200, 3_000), broken)
            else:
                self._schedule.after(self._latency_ms(), lambda: answered(answer))

        return respond

    def _perhaps_again(self, ask: Ask, client_id: str, delay_ms: int) -> None:
        """Never before it came the first time: nothing overtakes what was sent before it."""
        since = _GUARDED.get(type(ask.message))
        if since is not None and ask.version >= since and self._random.random() < self.loss:
            again_ms = self._random.randint(delay_ms, 15_000)
            self._schedule.after(again_ms, lambda: self._deliver(ask, client_id, lambda _: None))

    def _deliver(self, ask: Ask, client_id: str, respond: Callable[[Any], None]) -> None:
        listener = _Listener()
        self._note(client_id, ">", ask.message)

        def answered(answer: Any) -> None:
            self._note(client_id, "<", answer)
            respond(answer)

        call = self._broker.call(ask.message, ask.version, client=listener, client_id=client_id)
        if call.is_pending:
            listener.then = lambda: answered(call.response)
        else:
            answered(call.response)

    def _note(self, client_id: str, way: str, message: Message) -> None:
        if self.trace is not None:
            text = re.sub("<memory at [^>]*>", "<records>", str(message))
            self.trace.append(f"{self._schedule.now_ms} {client_id} {way} {text}")

    def _is_lost(self) -> bool:
        return self._random.random() < self.loss

    def _latency_ms(self) -> int:
        return self._random.choice([0, 1, 1, 2, 5, 20])
