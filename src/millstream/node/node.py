"""`Node`: a broker, a controller or both on one event loop, started and stopped in order.

`main` runs one in a process, `testing` one in a thread. Start: sockets, directories, raft and
controller, logs, membership, and only then requests. Stop: the same backwards. A start that fails
undoes what it did.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

from millstream.clock import SystemClock
from millstream.errors import InvalidConfig, KafkaStorageError, MillstreamError
from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.network.endpoint import host_and_port
from millstream.network.server.socket_server import SocketServer
from millstream.node.broker_lifecycle import PROTOCOL_IDS
from millstream.node.broker_server import BrokerServer
from millstream.node.config import CONTROLLER_LISTENER
from millstream.node.controller_channel import LocalControllerChannel
from millstream.node.controller_server import ControllerRegistrar, ControllerServer
from millstream.node.formatting import read_bootstrap, take_directories
from millstream.node.host_name import is_loopback_name, own_host_name
from millstream.node.shared_server import SharedServer
from millstream.node.timers import Timers
from millstream.node.workers import Workers
from millstream.raft.config import parse_servers, parse_voters
from millstream.raft.replica import LocalNode
from millstream.raft.voters import Endpoint as VoterEndpoint
from millstream.raft.voters import ReplicaKey
from millstream.server.controller_apis import ControllerApis
from millstream.storage.disk import DiskFileSystem
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.network.endpoint import Endpoint
    from millstream.network.server.request import Connection, RequestHandler
    from millstream.node.config import NodeConfig
    from millstream.protocol.message import Message
    from millstream.raft.effects import Peer
    from millstream.server.api_server import ApiServer
    from millstream.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

_RAFT_SHUTDOWN_MS: Final = 5000


class NoOtherVoters:
    """The network of a quorum of one, which reaches nobody."""

    def __init__(self) -> None:
        self.on_failure: Callable[[int], None] = lambda request_id: None
        """Hears which request will have no answer."""

    def send(self, request_id: int, peer: Peer, message: Message) -> None:
        """Needed only if somebody claims to be a voter: there is no way to it."""
        self.on_failure(request_id)


class Node:
    """One node. Made and used on the thread of the running event loop."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock | None = None,
        filesystem: FileSystem | None = None,
        random: Random | None = None,
        on_fatal: Callable[[Exception], None] = lambda error: None,
        intercept: Callable[[ApiServer], RequestHandler] = lambda apis: apis.handle,
    ) -> None:
        """`on_fatal` hears of what the node cannot go on after; the owner then stops it.

        `intercept` may put something in front of the handlers, such as faults for tests. It sees
        what the fast path declines: `declined_apis` of that says what it wants to see.
        """
        self.config = config
        self._clock = clock or SystemClock()
        self._filesystem = filesystem or DiskFileSystem()
        # What is drawn here (ids of clusters, directories, sessions) must not be guessable.
        self._random = random or SystemRandom()
        self._loop = asyncio.get_running_loop()
        self._report_fatal = on_fatal
        self._intercept = intercept
        self._directory_id = Uuid.ZERO
        self._is_failed = False
        self._workers = Workers(self._loop)
        self.timers = Timers(self._loop, self._clock, self._timer_failed)
        self.sockets: SocketServer | None = None
        self.shared: SharedServer | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self._channels: list[LocalControllerChannel] = []
        self._controller_apis: ControllerApis | None = None
        self.cluster_id = ""
        self.advertised: tuple[Endpoint, ...] = ()
        """Where clients reach the broker."""
        self.is_everywhere = False
        """Whether clients may connect to every address of this machine."""
        self.controller_endpoints: tuple[Endpoint, ...] = ()

    @property
    def bootstrap_servers(self) -> str:
        """What a client of this machine connects to; of a controller alone, its tools."""
        endpoints = self.advertised or self.controller_endpoints
        return ",".join(host_and_port(each.host, each.port) for each in endpoints)

    # Start.

    async def start(self) -> None:
        """Come up; when this returns, clients are served."""
        _require_supported(self.config)
        for warning in self.config.warnings:
            _logger.warning("%s", warning)
        try:
            self._bind()
            self._take_directories()
            shared = self._start_quorum()
            await shared.until_caught_up()
            await self._start_broker()
            self._serve()
        except BaseException:
            self._is_failed = True
            await self._close()
            raise

    def _bind(self) -> None:
        self.sockets = SocketServer(
            self.config.network, self._clock, on_close=self._connection_closed
        )
        endpoints = self.sockets.bind()
        controllers = self.config.network.controller_names
        self.controller_endpoints = tuple(
            each for each in endpoints if each.listener_name in controllers
        )
        self.is_everywhere = any(
            each.is_everywhere for each in endpoints if each.listener_name not in controllers
        )
        own_name = own_host_name() if self.is_everywhere else "localhost"
        self.advertised = self.config.network.advertised(endpoints, own_name)
        is_given = self.config.network.advertised_listeners is not None
        if self.is_everywhere and not is_given and is_loopback_name(own_name):
            where = self.bootstrap_servers
            _logger.warning("clients on other machines are told %s: use --advertise", where)

    def _connection_closed(self, connection: Connection) -> None:
        if self.broker is not None:
            self.broker.coordinators.connection_closed(connection)

    def _take_directories(self) -> None:
        owner = take_directories(
            self.config,
            self._filesystem,
            random=self._random,
            wall_ms=self._clock.wall_ms(),
            controller_endpoints=self._voter_endpoints(),
        )
        self.cluster_id, self._directory_id = owner

    def _voter_endpoints(self) -> dict[str, VoterEndpoint]:
        return {
            each.listener_name: VoterEndpoint(_reachable(each.host), each.port)
            for each in self.controller_endpoints
        }

    def _start_quorum(self) -> SharedServer:
        config = self.config
        listener = config.network.controller_listener_names[0].upper()
        local = LocalNode(
            ReplicaKey(config.process.node_id, self._directory_id),
            self.cluster_id,
            listener,
            self._voter_endpoints(),
        )
        network = NoOtherVoters()
        self.shared = SharedServer(
            config,
            local,
            filesystem=self._filesystem,
            clock=self._clock,
            random=self._random,
            timers=self.timers,
            workers=self._workers,
            network=network,
            on_fatal=self._fatal,
        )
        network.on_failure = self.shared.driver.request_failed
        self.controller = ControllerServer(
            config,
            cluster_id=self.cluster_id,
            driver=self.shared.driver,
            bootstrap=read_bootstrap(config, self._filesystem),
            clock=self._clock,
            random=self._random,
            timers=self.timers,
        )
        self.shared.controller = self.controller
        self._start_controller_apis(self.controller)
        self.shared.start()
        self._register_controller()
        return self.shared

    def _channel(self, controller: ControllerServer, *, waits: bool) -> LocalControllerChannel:
        assert self.shared is not None
        channel = LocalControllerChannel(
            controller,
            self.shared.driver,
            listener=self.config.network.controller_listener_names[0].upper(),
            clock=self._clock,
            timers=self.timers,
            timeout_ms=self.config.server.request_timeout_ms,
            waits=waits,
        )
        self._channels.append(channel)
        return channel

    def _start_controller_apis(self, controller: ControllerServer) -> None:
        assert self.shared is not None
        core = self.shared.driver.core
        self._controller_apis = ControllerApis(
            cluster_id=self.cluster_id,
            metadata=self.shared.metadata,
            controller=self._channel(controller, waits=False),
            raft=self.shared.driver,
            leader_id=lambda: -1 if core.leader_id is None else core.leader_id,
            features=SUPPORTED_FEATURES,
            clock=self._clock,
        )

    def _register_controller(self) -> None:
        assert self.shared is not None
        assert self.controller is not None
        endpoints = self._voter_endpoints()
        registrar = ControllerRegistrar(
            self.config.process.node_id,
            Uuid.random(self._random),
            {
                each.listener_name: (
                    endpoints[each.listener_name],
                    PROTOCOL_IDS[each.security_protocol.value],
                )
                for each in self.controller_endpoints
            },
            self._channel(self.controller, waits=True),
            self._clock,
        )
        self.shared.loader.install([registrar])

    async def _start_broker(self) -> None:
        if not self.config.is_broker:
            return
        assert self.shared is not None
        assert self.controller is not None
        assert self.sockets is not None
        controller = self.controller
        self.broker = BrokerServer(
            self.config,
            cluster_id=self.cluster_id,
            shared=self.shared,
            channel=self._channel(self.controller, waits=True),
            sockets=self.sockets,
            filesystem=self._filesystem,
            clock=self._clock,
            random=self._random,
            timers=self.timers,
            workers=self._workers,
            on_fatal=self._fatal,
            is_controller_local=lambda: controller.is_active,
        )
        await self.broker.start(self.advertised)

    def _serve(self) -> None:
        assert self.sockets is not None
        for endpoint in self.sockets.endpoints:
            name = endpoint.listener_name
            if endpoint in self.controller_endpoints and self._controller_apis is not None:
                apis = self._controller_apis
                self.sockets.serve(name, self._intercept(apis), apis.apis)
            elif self.broker is not None:
                broker_apis = self.broker.apis
                handle = self._intercept(broker_apis)
                self.sockets.serve(name, handle, broker_apis.apis, fast_path=broker_apis.fast_path)

    # Stop.

    async def stop(self) -> None:
        """Leave the cluster in order, answer what was asked, and bring everything to disk."""
        if self.broker is not None and not self._is_failed:
            await self.broker.leave()
        await self._close()

    async def kill(self) -> None:
        """Let go of everything as it is, as if the process had died."""
        self._is_failed = True
        await self._close()

    async def _close(self) -> None:
        """Stop what was started, the last first. What fails on the way is logged."""
        if self.sockets is not None:
            await self._close_sockets(self.sockets)
        for channel in self._channels:
            channel.close()
        if self.broker is not None:
            self._attempt("closing the logs", self._close_broker)
        if self.shared is not None:
            if not self._is_failed:
                await self._hand_over(self.shared)
            self._attempt("closing the metadata log", self._close_shared)
        self.timers.close()
        await self._loop.run_in_executor(None, self._workers.close)

    async def _close_sockets(self, sockets: SocketServer) -> None:
        drain_ms = 0 if self._is_failed else self.config.process.drain_timeout_ms
        if drain_ms:
            # Those who wait for records or replicas get what there is now.
            if self.broker is not None:
                self.broker.replicas.stop()
                self.broker.apis.close()
            if self._controller_apis is not None:
                self._controller_apis.close()
            if not await sockets.drain(drain_ms):
                _logger.warning("some requests were not answered within %d ms", drain_ms)
        await sockets.stop()

    async def _hand_over(self, shared: SharedServer) -> None:
        done = self._loop.create_future()
        shared.shut_down(_RAFT_SHUTDOWN_MS, lambda: None if done.done() else done.set_result(None))
        try:
            async with asyncio.timeout(_RAFT_SHUTDOWN_MS / 1000 + 1):
                await done
        except TimeoutError:
            _logger.warning("leadership of the quorum was not handed over in time")

    def _close_broker(self) -> None:
        assert self.broker is not None
        if self._is_failed:
            self.broker.abandon()
        else:
            self.broker.stop()

    def _close_shared(self) -> None:
        assert self.shared is not None
        if self._is_failed:
            self.shared.abandon()
        else:
            self.shared.close()

    def _attempt(self, doing: str, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, MillstreamError):
            _logger.exception("%s failed", doing)

    # What goes wrong.

    def _fatal(self, problem: str, error: Exception) -> None:
        if not self._is_failed:
            self._is_failed = True
            # What the disk said is all there is to know; where it was said explains nothing.
            is_of_the_disk = isinstance(error, OSError | KafkaStorageError)
            trace = None if is_of_the_disk else error
            _logger.critical("%s: %s", problem, error, exc_info=trace)
            self._report_fatal(error)

    def _timer_failed(self, error: Exception) -> None:
        _logger.error("something that was due failed: %s", error, exc_info=error)


def _require_supported(config: NodeConfig) -> None:
    """A quorum of several nodes needs connections between them, which this version has not."""
    node_id = config.process.node_id
    voters = parse_voters(config.quorum.voters, CONTROLLER_LISTENER).ids
    own_ports = {
        each.port
        for each in config.network.endpoints
        if each.listener_name in config.network.controller_names
    }
    servers = {each.port for each in parse_servers(config.quorum.bootstrap_servers)}
    if not config.is_controller or set(voters) - {node_id} or servers - own_ports:
        raise InvalidConfig(
            "this version runs clusters of one node: process.roles must include controller, and "
            "controller.quorum.voters and controller.quorum.bootstrap.servers may only name "
            f"node {node_id} itself"
        )


def _reachable(host: str) -> str:
    return socket.getfqdn() if host in ("", "0.0.0.0", "::") else host
