"""The broker's end of the wire: connections in, frames cut, responses out in order.

`node` makes a `SocketServer` and gives each listener a handler; handlers in `server` see `Request`
and `Connection` and nothing of sockets. Everything runs on one asyncio loop, without a task per
request.
"""

from __future__ import annotations

from millstream.network.server.config import SocketServerConfig
from millstream.network.server.request import (
    CLOSE,
    NO_RESPONSE,
    PENDING,
    Connection,
    FileRegion,
    Outcome,
    Request,
    RequestHandler,
    Response,
    header_versions,
)
from millstream.network.server.socket_server import SocketServer

__all__ = [
    "CLOSE",
    "NO_RESPONSE",
    "PENDING",
    "Connection",
    "FileRegion",
    "Outcome",
    "Request",
    "RequestHandler",
    "Response",
    "SocketServer",
    "SocketServerConfig",
    "header_versions",
]
