"""Requests to other nodes of the cluster, on the node's event loop.

A `NetworkClient` and what turns it: the selector's readiness and an alarm. Answers on a connection
come in order, so that a request that waits holds back what follows: each purpose (raft, heartbeats,
forwarded requests) has a client of its own, and connections of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ClientClosed
from millstream.network.client.network_client import NetworkClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.network.client.broker_link import OnDone, RequestSource
    from millstream.network.client.config import NetworkClientConfig
    from millstream.network.client.selector import ClientSelector
    from millstream.node.environment import Environment
    from millstream.node.timers import Timers
    from millstream.protocol.notation import VersionRange


class PeerClient:
    """The connections of one purpose. No socket is opened before the first request."""

    def __init__(
        self, environment: Environment, config: NetworkClientConfig, timers: Timers
    ) -> None:
        self._environment = environment
        self._config = config
        self._alarm = timers.alarm(self._turn)
        self._selector: ClientSelector | None = None
        self._network: NetworkClient | None = None
        self._is_closed = False

    def send(
        self,
        node_id: int,
        host: str,
        port: int,
        request: RequestSource,
        on_done: OnDone,
        *,
        timeout_ms: int,
    ) -> None:
        """Send to a node at an address; `on_done` gets the response or one error, once."""
        now_ms = self._environment.clock.monotonic_ms()
        if self._is_closed:
            on_done(ClientClosed("the node is stopping"), now_ms)
            return
        network = self._open()
        network.set_address(node_id, host, port)
        network.send(node_id, request, now_ms, on_done, timeout_ms=timeout_ms)
        # What the sockets had to say meanwhile is heard in a turn of its own.
        self._alarm.set(now_ms)

    def versions_of(self, node_id: int) -> Mapping[int, VersionRange]:
        """The versions of each API that a node has told; empty while it has not."""
        return {} if self._network is None else self._network.versions_of(node_id)

    def close(self) -> None:
        """Give everything up."""
        self._is_closed = True
        self._alarm.set(None)
        if self._network is not None and self._selector is not None:
            now_ms = self._environment.clock.monotonic_ms()
            self._network.close(now_ms, ClientClosed("the node is stopping"))
            self._selector.shutdown()

    def _open(self) -> NetworkClient:
        if self._network is None:
            self._selector = self._environment.selector(self._turn)
            self._network = NetworkClient(self._selector, self._config, self._environment.random)
        return self._network

    def _turn(self) -> None:
        if self._network is None or self._selector is None or self._is_closed:
            return
        clock = self._environment.clock
        self._network.handle(self._selector.poll(0), clock.monotonic_ms())
        if not self._is_closed:
            self._alarm.set(self._network.poll(clock.monotonic_ms()))
