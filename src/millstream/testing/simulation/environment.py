"""The world of one simulated process: an `Environment` whose every part is a simulated one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millstream.network.server.socket_server import SocketServer
from millstream.testing.simulation.selector import SimSelector
from millstream.testing.simulation.workers import SimWorkers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from random import Random

    from millstream.network.endpoint import Endpoint
    from millstream.network.server.config import SocketServerConfig
    from millstream.network.server.request import Connection
    from millstream.testing.sim_filesystem import SimFileSystem
    from millstream.testing.simulation.clock import SimClock
    from millstream.testing.simulation.loop import SimLoop
    from millstream.testing.simulation.network import SimNetwork


class SimEnvironment:
    """What one process on one machine reaches."""

    def __init__(
        self,
        host: str,
        loop: SimLoop,
        network: SimNetwork,
        *,
        clock: SimClock,
        random: Random,
        filesystem: SimFileSystem,
        latency_us: Callable[[], int],
    ) -> None:
        """`latency_us` draws how long a job of a worker takes."""
        self._host = host
        self._loop = loop
        self._network = network
        self._latency_us = latency_us
        self.clock = clock
        self.random = random
        self.filesystem = filesystem

    def host_name(self) -> str:
        """See `Environment`."""
        return self._host

    def workers(self) -> SimWorkers:
        """See `Environment`."""
        return SimWorkers(self._loop, self._latency_us)

    def listeners(
        self,
        config: SocketServerConfig,
        endpoints: tuple[Endpoint, ...],
        on_close: Callable[[Connection], None] | None = None,
    ) -> SocketServer:
        """See `Environment`."""
        return SocketServer(config, self.clock, endpoints, on_close=on_close, listen=self._listen)

    def selector(self, on_ready: Callable[[], None]) -> SimSelector:
        """See `Environment`."""
        return SimSelector(self._loop, self._network, self._host, on_ready)

    def _listen(self, endpoint: Endpoint, config: SocketServerConfig) -> socket.socket:
        listener = self._network.listen(self._host, (endpoint.host, endpoint.port))
        return cast("socket.socket", listener)
