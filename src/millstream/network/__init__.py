"""Sockets, the broker's end: connections in, frames cut, responses out in order.

`node` makes a `SocketServer` and gives each listener a handler; handlers in `server` see `Request`
and `Connection` and nothing of sockets. Everything runs on one asyncio loop, without a task per
request. Nothing here knows what a request means.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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

_MODULES: Final = {
    "Endpoint": "endpoint",
    "SecurityProtocol": "endpoint",
    "SocketServer": "socket_server",
    "SocketServerConfig": "config",
}
"""Where names live; all others are in `request`."""


def __getattr__(name: str) -> object:
    # Clients need the modules beside this one, and neither the server nor asyncio.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'request')}")
    found: object = getattr(module, name)
    globals()[name] = found
    return found
