"""Log lines about single connections, with the peer as a field of its own.

`KafkaChannel` writes them when it closes, and says what happened; how often is up to the limiter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.network.endpoint import host_and_port

if TYPE_CHECKING:
    from millstream.network.log_limiter import LogLimiter
    from millstream.network.request import Connection


def note_closed(log: LogLimiter, connection: Connection, reason: str) -> None:
    """It was closed in order; the client may wonder why."""
    message = "Closed the connection from %s: %s"
    log.info(reason, message, connection, reason, **_fields(connection))


def note_rejected(log: LogLimiter, connection: Connection, kind: str, reason: str) -> None:
    """It was closed because of what the peer did."""
    message = "Closed the connection from %s: %s"
    log.warning(kind, message, connection, reason, **_fields(connection))


def note_unsent(log: LogLimiter, connection: Connection, error: OSError) -> None:
    """It was closed because a response could not be sent."""
    message = "Closed the connection to %s: cannot send: %s"
    log.warning("send failed", message, connection, error, **_fields(connection))


def note_failed(log: LogLimiter, connection: Connection, error: Exception) -> None:
    """It is closed because nobody knows what a handler left behind."""
    message = "A request handler failed; closing the connection from %s"
    kind = f"handler {type(error).__name__}"
    log.failure(kind, message, connection, error=error, **_fields(connection))


def _fields(connection: Connection) -> dict[str, object]:
    peer = host_and_port(connection.peer_host, connection.peer_port)
    return {"peer": peer, "listener": connection.listener_name}
