"""A `NetworkClient` over a scripted selector, and broker 1 made ready."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.network.client.network_client import NetworkClient, NetworkClientConfig
from millstream.protocol.message import Message

if TYPE_CHECKING:
    from tests.unit.network.scripted_selector import Connection, ScriptedSelector

CONFIG = NetworkClientConfig(client_id="tester", request_timeout_ms=30_000, max_in_flight=2)


class Done:
    """A callback that remembers how it was called."""

    def __init__(self) -> None:
        self.outcomes: list[Message | MillstreamError] = []

    def __call__(self, outcome: Message | MillstreamError, now_ms: int) -> None:
        self.outcomes.append(outcome)

    @property
    def response(self) -> Message:
        (outcome,) = self.outcomes
        assert isinstance(outcome, Message)
        return outcome

    @property
    def error(self) -> MillstreamError:
        (outcome,) = self.outcomes
        assert isinstance(outcome, MillstreamError)
        return outcome


def make_client(selector: ScriptedSelector, config: NetworkClientConfig = CONFIG) -> NetworkClient:
    """A client that knows broker 1."""
    client = NetworkClient(selector, config, Random(1))
    client.set_address(1, "one", 9092)
    return client


def connected(client: NetworkClient, selector: ScriptedSelector, now_ms: int = 0) -> Connection:
    """Broker 1, ready."""
    assert not client.is_ready(1, now_ms)
    connection = selector.last
    selector.accept(connection)
    client.handle(selector.take(), now_ms)
    selector.tell_versions(connection)
    client.handle(selector.take(), now_ms)
    assert client.is_ready(1, now_ms)
    return connection
