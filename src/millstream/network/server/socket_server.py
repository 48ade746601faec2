"""The broker's front door: binds the listeners, serves them, drains and closes them.

`node` makes one on the event loop's thread: `bind` first, so that a taken port is found before
anything else starts; `serve` per listener when its handler is ready; at the end `drain`, `stop`.
Clients that connect between the two wait in the kernel's queue.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
from typing import TYPE_CHECKING

from millstream.errors import InvalidArgument, InvalidConfig
from millstream.network.endpoint import Endpoint
from millstream.network.server.acceptor import Acceptor
from millstream.network.server.connection_quotas import ConnectionQuotas
from millstream.network.server.descriptors import DescriptorReserve
from millstream.network.server.processor import ListenerService, Processor
from millstream.network.server.request import header_versions

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from millstream._accel.broker.fast_path import FastHandler
    from millstream.clock import Clock
    from millstream.network.server.config import SocketServerConfig
    from millstream.network.server.request import Connection, RequestHandler
    from millstream.protocol.api import ApiKey
    from millstream.protocol.notation import VersionRange


class SocketServer:
    """All listeners of a process and the connections on them."""

    def __init__(
        self,
        config: SocketServerConfig,
        clock: Clock,
        wanted: tuple[Endpoint, ...] | None = None,
        *,
        on_close: Callable[[Connection], None] | None = None,
        listen: Callable[[Endpoint, SocketServerConfig], socket.socket] | None = None,
    ) -> None:
        """`wanted`: the listeners, all of the settings unless given.

        `on_close` is told of every connection that ended. `listen` makes the listening sockets; a
        simulation has others than the system's, without descriptors.
        """
        self.config = config
        self._wanted = config.endpoints if wanted is None else wanted
        self.quotas = ConnectionQuotas(config)
        self._reserve = DescriptorReserve()
        self.processor = Processor(
            config, clock, asyncio.get_running_loop(), self._connection_closed
        )
        self._on_close = on_close
        self._listen = listen or _listen
        self._sockets: dict[str, socket.socket] = {}
        self._acceptors: list[Acceptor] = []
        self._connection_ids = itertools.count(1)
        self.endpoints: tuple[Endpoint, ...] = ()

    def bind(self) -> tuple[Endpoint, ...]:
        """Take the addresses of all listeners, or none; the endpoints with their real ports."""
        bound = []
        try:
            for endpoint in self._wanted:
                listening = self._listen(endpoint, self.config)
                self._sockets[endpoint.listener_name] = listening
                port = listening.getsockname()[1]
                name, protocol = endpoint.listener_name, endpoint.security_protocol
                bound.append(Endpoint(name, protocol, endpoint.host, port))
        except InvalidConfig:
            self._close_unserved()
            raise
        self.endpoints = tuple(bound)
        return self.endpoints

    def serve(
        self,
        listener_name: str,
        handle: RequestHandler,
        apis: Mapping[ApiKey, VersionRange],
        *,
        ssl_context: ssl.SSLContext | None = None,
        fast_path: FastHandler | None = None,
    ) -> None:
        """Accept connections on a bound listener and answer these API versions.

        `fast_path` may answer before `handle` is asked; only plain connections that the compiled
        selector reads offer it their frames.
        """
        listening = self._sockets.pop(listener_name, None)
        if listening is None:
            raise InvalidArgument(f"{listener_name} is not bound, or is served already")
        endpoint = next(each for each in self.endpoints if each.listener_name == listener_name)
        try:
            _require_protected(endpoint, ssl_context)
        except InvalidConfig:
            self._sockets[listener_name] = listening
            raise
        if not endpoint.security_protocol.is_encrypted:
            ssl_context = None
        service = ListenerService(endpoint, handle, header_versions(apis), ssl_context, fast_path)
        acceptor = Acceptor(
            listening,
            service,
            self.processor,
            self.quotas,
            self._reserve,
            self._connection_ids,
            is_protected=listener_name == self.config.inter_broker_name,
        )
        self._acceptors.append(acceptor)
        acceptor.start()

    def update_limits(self, config: SocketServerConfig) -> None:
        """Take the limits of connections from other settings; nothing else of them."""
        self.quotas.update(config)
        for acceptor in self._acceptors:
            acceptor.resume()

    async def drain(self, timeout_ms: int) -> bool:
        """Accept nothing more, finish what is in flight, close; whether all was done in time."""
        self._stop_accepting()
        try:
            await asyncio.wait_for(self.processor.drain(), timeout_ms / 1000)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Close everything at once."""
        self._stop_accepting()
        await self.processor.close()

    def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.stop()
        self._close_unserved()

    def _close_unserved(self) -> None:
        while self._sockets:
            self._sockets.popitem()[1].close()

    def _connection_closed(self, connection: Connection) -> None:
        self.quotas.release(connection.listener_name, connection.peer_host)
        for acceptor in self._acceptors:
            acceptor.resume()
        if self._on_close is not None:
            self._on_close(connection)


def _require_protected(endpoint: Endpoint, ssl_context: ssl.SSLContext | None) -> None:
    """A listener is never served with less protection than its protocol promises."""
    promised = f"listener {endpoint.listener_name} is {endpoint.security_protocol.value}"
    if endpoint.security_protocol.is_sasl:
        raise InvalidConfig(f"{promised}, and this version cannot authenticate clients")
    if endpoint.security_protocol.is_encrypted and ssl_context is None:
        raise InvalidConfig(f"{promised} and needs a certificate: serve it with an ssl_context")


def _listen(endpoint: Endpoint, config: SocketServerConfig) -> socket.socket:
    """A listening socket; with an empty host on IPv4 and IPv6 alike where the machine can."""
    try:
        family, address = _address(endpoint)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                is_only_ipv6 = bool(endpoint.host)
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_only_ipv6)
            # Accepted sockets inherit both; the receive window is negotiated before accept.
            for option, size in (
                (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
                (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
            ):
                if size > 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)
            listening.bind(address)
            listening.listen(config.socket_listen_backlog_size)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise InvalidConfig(_why_not(endpoint, error)) from error
    return listening


def _address(endpoint: Endpoint) -> tuple[int, tuple[object, ...]]:
    if not endpoint.host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", endpoint.port)
        return socket.AF_INET, ("0.0.0.0", endpoint.port)
    found = socket.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = found[0]
    return family, address


def _why_not(endpoint: Endpoint, error: OSError) -> str:
    hints = {
        errno.EADDRINUSE: "another process has the port: stop it or choose another port",
        errno.EACCES: "ports below 1024 need privileges: choose a larger one",
        errno.EADDRNOTAVAIL: "this machine does not have that address",
    }
    hint = hints.get(error.errno or 0)
    if isinstance(error, socket.gaierror):
        hint = "the host name cannot be resolved"
    reason = error.strerror or str(error)
    return f"cannot listen on {endpoint}: {reason}" + (f" ({hint})" if hint else "")
