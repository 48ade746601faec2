"""How a client of brokers behaves; `client.config` fills it from a user's settings."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.network.client.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkClientConfig:
    """How patient a client is with its brokers; the defaults are Kafka's."""

    client_id: str = ""
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connection_setup_timeout_ms: int = 10_000
    connection_setup_timeout_max_ms: int = 30_000
    max_in_flight: int = 5
    idle_ms: int = 540_000
    """Close a connection that was not used for so long; -1: never."""

    def reconnect_backoff(self) -> Backoff:
        """How long to wait between tries to connect."""
        return Backoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms)

    def setup_timeout(self) -> Backoff:
        """How long a connection may take until it stands; longer with each failure."""
        return Backoff(self.connection_setup_timeout_ms, self.connection_setup_timeout_max_ms)
