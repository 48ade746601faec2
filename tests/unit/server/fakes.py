"""The surroundings of a broker in tests: a client, the controller's channel, what a node brings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.network.server.config import SocketServerConfig
from millstream.network.server.request import PENDING, Connection, Outcome, Request
from millstream.protocol.api import API_BY_KEY
from millstream.protocol.frame import SIZE_BYTES, decode_response
from millstream.server.config import ServerConfig
from millstream.server.forwarding import RAFT_REQUESTS
from millstream.storage.manager.broker_config import LogManagerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.controller.decision import RequestContext
    from millstream.protocol.message import Message
    from millstream.replica.isr import IsrProposal
    from millstream.replica.ports import IsrAnswered
    from millstream.server.ports import ClientMetricsContext
    from tests.unit.server.harness import Broker


class Client(Connection):
    """A connection that keeps what it is answered."""

    __slots__ = ("answers",)

    def __init__(self, listener_name: str = "PLAINTEXT") -> None:
        super().__init__(listener_name)
        self.peer_host, self.peer_port = "10.1.2.3", 40_000
        self.answers: list[Request] = []

    def answered(self, request: Request) -> None:
        """A pending request got its response."""
        self.answers.append(request)


class Call:
    """One request and, once it has come, its answer."""

    def __init__(self, request: Request, outcome: Any) -> None:
        self.request = request
        self._outcome = outcome

    @property
    def outcome(self) -> Any:
        """What the handler returned, or gave later."""
        return self.request.response if self._outcome is PENDING else self._outcome

    @property
    def is_pending(self) -> bool:
        """Whether the answer has not come yet."""
        return self.outcome is PENDING

    @property
    def frame(self) -> bytes:
        """The answer's bytes, its size in front and checked."""
        outcome = self.outcome
        assert not isinstance(outcome, Outcome), outcome
        parts = [outcome] if isinstance(outcome, bytes) else outcome
        whole = b"".join(part.read() if hasattr(part, "read") else bytes(part) for part in parts)
        assert int.from_bytes(whole[:SIZE_BYTES], "big") == len(whole) - SIZE_BYTES
        return whole

    @property
    def response(self) -> Any:
        """The answer, decoded."""
        api = API_BY_KEY[self.request.api_key]
        correlation_id, message = decode_response(
            self.frame[SIZE_BYTES:], api, self.request.api_version
        )
        assert correlation_id == self.request.correlation_id
        return message


class Channel:
    """The way to the controller; holds back what it carries if told to."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.is_holding = False
        self.held: list[Callable[[], None]] = []
        self.requests: list[tuple[Message, RequestContext]] = []

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        """As `ControllerChannel`."""
        self.requests.append((request, context))

        def carry() -> None:
            if type(request) in RAFT_REQUESTS:
                callback(API_BY_KEY[request.KEY].response())
                return
            self._broker.controller.controller.handle(request, context, callback)
            self._broker.publish()

        if self.is_holding:
            self.held.append(carry)
        else:
            carry()

    def release(self) -> None:
        """Carry what was held back."""
        self.is_holding = False
        held, self.held = self.held, []
        for carry in held:
            carry()


@dataclass
class Settings:
    """As `BrokerSettings`."""

    classes: Sequence[type] = (ServerConfig, LogManagerConfig, SocketServerConfig)
    given: Mapping[str, str] = field(default_factory=dict)


class Sink:
    """Keeps the metrics that clients push."""

    def __init__(self) -> None:
        self.received: list[tuple[bytes, ClientMetricsContext]] = []

    def export(self, payload: bytes, context: ClientMetricsContext) -> None:
        """As `ClientTelemetrySink`."""
        self.received.append((payload, context))


class NoIsrChanges:
    """Nobody asks for another ISR in these tests."""

    def submit(self, proposal: IsrProposal, done: IsrAnswered) -> None:
        """As `IsrAlterer`."""
        raise AssertionError(proposal)
