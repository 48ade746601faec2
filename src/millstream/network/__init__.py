"""Sockets, the broker's end: connections in, frames cut, responses out in order.

`node` makes a `SocketServer` and gives each listener a handler; handlers in `server` see `Request`
and `Connection` and nothing of sockets. Everything runs on one asyncio loop, without a task per
request. Nothing here knows what a request means.
"""

from __future__ import annotations

from millstream.network.config import SocketServerConfig
from millstream.network.endpoint import Endpoint, SecurityProtocol
from millstream.network.request import (
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
from millstream.network.socket_server import SocketServer

__all__ = [
    "CLOSE",
    "NO_RESPONSE",
    "PENDING",
    "Connection",
    "Endpoint",
    "FileRegion",
    "Outcome",
    "Request",
    "RequestHandler",
    "Response",
    "SecurityProtocol",
    "SocketServer",
    "SocketServerConfig",
    "header_versions",
]
