"""What a node reaches of the world: sockets, threads, names, files, time and chance.

`SystemEnvironment` is the machine's. A simulation brings another, in which many nodes live on one
thread under virtual time. All of a node runs on one event loop, whose time is the environment's.
"""

from __future__ import annotations

import asyncio
from random import SystemRandom
from typing import TYPE_CHECKING, Protocol

from millstream.clock import SystemClock
from millstream.network.client.selector import SocketSelector
from millstream.network.server.socket_server import SocketServer
from millstream.node.host_name import own_host_name
from millstream.node.workers import Workers
from millstream.storage.disk import DiskFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.clock import Clock
    from millstream.network.client.selector import ClientSelector
    from millstream.network.endpoint import Endpoint
    from millstream.network.server.config import SocketServerConfig
    from millstream.network.server.request import Connection
    from millstream.storage.filesystem import FileSystem


class Environment(Protocol):
    """The world of one node. Its methods are called on the thread of the running event loop."""

    @property
    def clock(self) -> Clock:
        """The time."""
        ...

    @property
    def random(self) -> Random:
        """Chance: ids of clusters, directories and sessions come from it."""
        ...

    @property
    def filesystem(self) -> FileSystem:
        """The disks."""
        ...

    def host_name(self) -> str:
        """The name by which other machines reach this one."""
        ...

    def workers(self) -> Workers:
        """Threads for what takes time."""
        ...

    def listeners(
        self,
        config: SocketServerConfig,
        endpoints: tuple[Endpoint, ...],
        on_close: Callable[[Connection], None] | None = None,
    ) -> SocketServer:
        """Sockets that others connect to; not bound yet."""
        ...

    def selector(self, on_ready: Callable[[], None]) -> ClientSelector:
        """Sockets to others; `on_ready` is called when `poll` has something."""
        ...


class SystemEnvironment:
    """The machine: asyncio, threads, disks and the system's clock and chance."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        filesystem: FileSystem | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        # What is drawn here must not be guessable.
        self.random = random or SystemRandom()
        self.filesystem = filesystem or DiskFileSystem()

    def host_name(self) -> str:
        """See `Environment`."""
        return own_host_name()

    def workers(self) -> Workers:
        """See `Environment`."""
        return Workers(asyncio.get_running_loop())

    def listeners(
        self,
        config: SocketServerConfig,
        endpoints: tuple[Endpoint, ...],
        on_close: Callable[[Connection], None] | None = None,
    ) -> SocketServer:
        """See `Environment`."""
        return SocketServer(config, self.clock, endpoints, on_close=on_close)

    def selector(self, on_ready: Callable[[], None]) -> ClientSelector:
        """See `Environment`."""
        return LoopSelector(asyncio.get_running_loop(), self.clock, on_ready)


class LoopSelector(SocketSelector):
    """Sockets to others that the event loop watches, all together as one descriptor."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(clock)
        self._loop = loop
        loop.add_reader(self.fileno(), on_ready)

    def shutdown(self) -> None:
        """See `ClientSelector`."""
        if not self.is_shut_down:
            self._loop.remove_reader(self.fileno())
        super().shutdown()
