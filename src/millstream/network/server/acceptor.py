"""Takes the connections of one listener off the kernel's queue, within the limits.

`SocketServer` has one per listener. A connection within the limits becomes a `KafkaChannel` of the
processor; one whose address has too many is closed; when the broker has too many, or too many a
second, nothing is accepted for a while and clients wait in the listen queue. So they do while only
the descriptors are left that the broker needs for its files.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

from millstream.network.endpoint import host_and_port
from millstream.network.server.channel import KafkaChannel
from millstream.network.server.selection import find_selector

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from millstream._accel.broker.selector import Selector
    from millstream.network.server.connection_quotas import ConnectionQuotas
    from millstream.network.server.descriptors import DescriptorReserve
    from millstream.network.server.processor import ListenerService, Processor

ACCEPTS_PER_TURN_MAX: Final = 64
RETRY_DELAY_MS: Final = 1000
_IPV4_IN_IPV6: Final = "::ffff:"


class Acceptor:
    """One listening socket that is being served."""

    __slots__ = (
        "_ids",
        "_is_accepting",
        "_is_protected",
        "_is_short",
        "_is_stopped",
        "_openings",
        "_processor",
        "_quotas",
        "_reserve",
        "_retry",
        "_socket",
        "service",
    )

    def __init__(
        self,
        listening: socket.socket,
        service: ListenerService,
        processor: Processor,
        quotas: ConnectionQuotas,
        reserve: DescriptorReserve,
        connection_ids: Iterator[int],
        *,
        is_protected: bool,
    ) -> None:
        self._socket = listening
        self.service = service
        self._processor = processor
        self._quotas = quotas
        self._reserve = reserve
        self._ids = connection_ids
        self._is_protected = is_protected
        self._is_accepting = False
        self._is_short = False
        self._is_stopped = False
        self._retry: asyncio.TimerHandle | None = None
        self._openings: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Accept from now on."""
        self._retry = None
        if not self._is_accepting and not self._is_stopped:
            self._is_accepting = True
            self._processor.loop.add_reader(self._socket, self._on_readable)

    def resume(self) -> None:
        """Accept again if only the number of connections was in the way."""
        if self._retry is None:
            self.start()

    def stop(self) -> None:
        """Accept nothing more, close the listening socket, break off handshakes."""
        self._pause()
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        self._socket.close()
        for opening in self._openings:
            opening.cancel()

    def _pause(self, delay_ms: int | None = None) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._processor.loop.remove_reader(self._socket)
        if delay_ms is not None and self._retry is None and not self._is_stopped:
            self._retry = self._processor.loop.call_later(delay_ms / 1000, self.start)

    def _on_readable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if not self._may_accept():
                return
            try:
                connected, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory: the connection stays in the queue, we come back.
                self._processor.log.warning(
                    "accept", "Cannot accept connections on %s: %s", self.service.endpoint, error
                )
                self._pause(RETRY_DELAY_MS)
                return
            if self._reserve.has(connected.fileno()):
                connected.close()
                self._is_short = True
                self._wait_for_descriptors()
                return
            self._admit(connected, *address[:2])

    def _wait_for_descriptors(self) -> None:
        self._processor.log.warning(
            "descriptors",
            "Few descriptors are left, and they are for files: new connections on %s wait until "
            "others are closed; raise the limit (ulimit -Hn)",
            self.service.endpoint,
        )
        self._pause(RETRY_DELAY_MS)

    def _may_accept(self) -> bool:
        if self._is_short:
            self._is_short = self._reserve.is_reached(self._socket.fileno())
            if self._is_short:
                self._wait_for_descriptors()
                return False
        listener = self.service.endpoint.listener_name
        delay_ms = self._quotas.delay_ms(listener, self._processor.clock.monotonic_ms())
        if delay_ms:
            self._pause(delay_ms)
            return False
        reached = None
        if self._quotas.listener(listener).is_full:
            reached = f"listener.name.{listener.lower()}.max.connections"
        elif self._quotas.broker.is_full and not self._make_way():
            reached = "max.connections"
        if reached is not None:
            # Whoever closes a connection calls start().
            self._processor.log.warning(
                reached,
                "%s is reached: new connections on %s wait until one is closed",
                reached,
                self.service.endpoint,
            )
            self._pause()
        return reached is None

    def _make_way(self) -> bool:
        """Whether a connection of another listener could be closed in favour of a broker's."""
        victim = None
        if self._is_protected:
            victim = self._processor.least_recently_used(self.service.endpoint.listener_name)
        if victim is None:
            return False
        victim.close("max.connections is reached and another broker needs a connection")
        return True

    def _admit(self, connected: socket.socket, host: str, port: int) -> None:
        host = host.removeprefix(_IPV4_IN_IPV6)
        if not self._quotas.admit(self.service.endpoint.listener_name, host):
            connected.close()
            self._processor.log.info(
                "max.connections.per.ip",
                "Refused a connection from %s: it has %d already (max.connections.per.ip)",
                host,
                self._quotas.limit_of(host),
            )
            return
        connected.setblocking(False)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A frame often ends with a few bytes behind a file region; they must not wait for the peer
        # to acknowledge the rest, which takes it 40 ms. The loop sets this only for sockets that
        # were made with an explicit protocol number.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = KafkaChannel(self._processor, self.service, connected, next(self._ids))
        channel.peer_host, channel.peer_port = host, port
        local = connected.getsockname()
        channel.local_address = (local[0].removeprefix(_IPV4_IN_IPV6), local[1])
        selector = None
        if self.service.ssl_context is None and connected.fileno() >= 0:
            selector = find_selector(self._processor)
        if selector is not None:
            self._select(selector, channel, connected)
            return
        task = self._processor.loop.create_task(self._open(channel, connected))
        self._openings.add(task)
        task.add_done_callback(self._openings.discard)

    def _select(self, selector: Selector, channel: KafkaChannel, connected: socket.socket) -> None:
        """Give the socket to the compiled selector."""
        try:
            selector.open(channel, connected, self.service.fast_path)
        except OSError as error:
            connected.close()
            self._processor.channel_closed(channel)
            self._processor.log.warning(
                "select",
                "Closed the connection from %s on %s: it cannot be watched: %s",
                host_and_port(channel.peer_host, channel.peer_port),
                self.service.endpoint.listener_name,
                error,
            )

    async def _open(self, channel: KafkaChannel, connected: socket.socket) -> None:
        """Give the socket a transport and, if the listener is encrypted, wait for the handshake."""
        try:
            await self._processor.loop.connect_accepted_socket(
                lambda: channel, connected, ssl=self.service.ssl_context
            )
        except (OSError, ssl.SSLError) as error:
            self._processor.log.warning(
                "handshake",
                "Closed the connection from %s on %s: TLS handshake failed: %s",
                host_and_port(channel.peer_host, channel.peer_port),
                self.service.endpoint.listener_name,
                error,
            )
        finally:
            if not channel.was_connected:
                self._processor.channel_closed(channel)
