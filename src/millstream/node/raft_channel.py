"""Raft's way to the other nodes of the quorum: a `NetworkChannel` of `raft.ports`.

One request at a time to each node is raft's own rule; here each is sent and its answer, or that
there will be none, is brought to the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import MillstreamError, UnsupportedVersion
from millstream.network.client.config import NetworkClientConfig
from millstream.node.peer_client import PeerClient
from millstream.protocol.api import API_BY_KEY

if TYPE_CHECKING:
    from millstream.node.environment import Environment
    from millstream.node.timers import Timers
    from millstream.protocol.message import Message
    from millstream.raft.config import QuorumConfig
    from millstream.raft.driver import RaftDriver
    from millstream.raft.effects import Peer


class RaftChannel:
    """Connections of one node to the others of the quorum."""

    def __init__(
        self, node_id: int, quorum: QuorumConfig, environment: Environment, timers: Timers
    ) -> None:
        self._timeout_ms = quorum.request_timeout_ms
        config = NetworkClientConfig(
            client_id=f"raft-client-{node_id}",
            request_timeout_ms=quorum.request_timeout_ms,
            connection_setup_timeout_ms=quorum.request_timeout_ms,
            reconnect_backoff_max_ms=500,
        )
        self._client = PeerClient(environment, config, timers)
        self.driver: RaftDriver | None = None
        """Who hears of the answers; to be set before the first request."""

    def send(self, request_id: int, peer: Peer, message: Message) -> None:
        """See `NetworkChannel`."""
        host, port = peer.endpoint.host, peer.endpoint.port
        self._client.send(
            peer.id,
            host,
            port,
            message,
            lambda result, now_ms: self._done(request_id, message, result),
            timeout_ms=self._timeout_ms,
        )

    def close(self) -> None:
        """Send nothing more."""
        self._client.close()

    def _done(self, request_id: int, sent: Message, result: Message | MillstreamError) -> None:
        assert self.driver is not None
        if isinstance(result, UnsupportedVersion):
            response = API_BY_KEY[sent.KEY].response()
            response.error_code = UnsupportedVersion.code  # type: ignore[attr-defined]
            self.driver.response_received(request_id, response)
        elif isinstance(result, MillstreamError):
            self.driver.request_failed(request_id)
        else:
            self.driver.response_received(request_id, result)
