"""`Node`: a broker, a controller or both on one event loop, started and stopped in order.

`main` runs one in a process, `testing` one in a thread. Start: sockets and directories; the quorum,
which is served at once, because others may need this node to elect a leader; then the broker, whose
listeners are served when it is a member of the cluster. Stop: the same backwards. A start that
fails undoes what it did.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from millstream.errors import KafkaStorageError, MillstreamError
from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.network.endpoint import host_and_port
from millstream.node.broker_lifecycle import PROTOCOL_IDS
from millstream.node.broker_server import BrokerServer
from millstream.node.controller_channel import NodeToControllerChannel
from millstream.node.controller_server import ControllerRegistrar, ControllerServer
from millstream.node.environment import SystemEnvironment
from millstream.node.formatting import read_bootstrap, take_directories
from millstream.node.host_name import is_loopback_name
from millstream.node.raft_channel import RaftChannel
from millstream.node.shared_server import SharedServer
from millstream.node.timers import Timers
from millstream.raft.replica import LocalNode
from millstream.raft.voters import Endpoint as VoterEndpoint
from millstream.raft.voters import ReplicaKey
from millstream.server.controller_apis import ControllerApis
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.endpoint import Endpoint
    from millstream.network.server.request import Connection, RequestHandler
    from millstream.network.server.socket_server import SocketServer
    from millstream.node.config import NodeConfig
    from millstream.node.environment import Environment
    from millstream.server.api_server import ApiServer

_logger = logging.getLogger(__name__)

_RAFT_SHUTDOWN_MS: Final = 5000
_REGISTRATION_TIMEOUT_MS: Final = 5000
"""How long one attempt of a controller to register may take."""


class Node:
    """One node. Made and used on the thread of the running event loop."""

    def __init__(
        self,
        config: NodeConfig,
        environment: Environment | None = None,
        *,
        on_fatal: Callable[[Exception], None] = lambda error: None,
        intercept: Callable[[ApiServer], RequestHandler] = lambda apis: apis.handle,
    ) -> None:
        """`on_fatal` hears of what the node cannot go on after; the owner then stops it.

        `intercept` may put something in front of the handlers, such as faults for tests. It sees
        what the fast path declines: `declined_apis` of that says what it wants to see.
        """
        self.config = config
        self._environment = environment or SystemEnvironment()
        self._loop = asyncio.get_running_loop()
        self._report_fatal = on_fatal
        self._intercept = intercept
        self._directory_id = Uuid.ZERO
        self._is_failed = False
        self._workers = self._environment.workers()
        self.timers = Timers(self._loop, self._environment.clock, self._timer_failed)
        self.sockets: SocketServer | None = None
        """The listeners for clients and other brokers; None on a controller alone."""
        self.controller_sockets: SocketServer | None = None
        """The listeners of the quorum; None on a broker alone."""
        self.shared: SharedServer | None = None
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        self._raft_channel: RaftChannel | None = None
        self._channels: list[NodeToControllerChannel] = []
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
        for warning in self.config.warnings:
            _logger.warning("%s", warning)
        try:
            self._bind()
            self._take_directories()
            shared = self._start_quorum()
            await shared.until_caught_up()
            await self._start_broker()
        except BaseException:
            self._is_failed = True
            await self._close()
            raise

    def _bind(self) -> None:
        network = self.config.network
        names = network.controller_names
        of_controller = tuple(each for each in network.endpoints if each.listener_name in names)
        of_broker = tuple(each for each in network.endpoints if each.listener_name not in names)
        if self.config.is_controller:
            self.controller_sockets = self._environment.listeners(network, of_controller)
            self.controller_endpoints = self.controller_sockets.bind()
        if self.config.is_broker:
            self.sockets = self._environment.listeners(network, of_broker, self._connection_closed)
            self._advertise(self.sockets.bind())

    def _advertise(self, bound: tuple[Endpoint, ...]) -> None:
        self.is_everywhere = any(each.is_everywhere for each in bound)
        own_name = self._environment.host_name() if self.is_everywhere else "localhost"
        self.advertised = self.config.network.advertised(bound, own_name)
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
            self._environment.filesystem,
            random=self._environment.random,
            wall_ms=self._environment.clock.wall_ms(),
            controller_endpoints=self._voter_endpoints(),
        )
        self.cluster_id, self._directory_id = owner

    def _voter_endpoints(self) -> dict[str, VoterEndpoint]:
        """Where other nodes reach the controller of this one, by listener."""
        host = self._environment.host_name
        return {
            each.listener_name: VoterEndpoint(
                host() if each.is_everywhere else each.host, each.port
            )
            for each in self.config.network.advertised_controllers(self.controller_endpoints)
        }

    # The quorum.

    def _start_quorum(self) -> SharedServer:
        config, environment = self.config, self._environment
        node_id = config.process.node_id
        self._raft_channel = RaftChannel(node_id, config.quorum, environment, self.timers)
        self.shared = SharedServer(
            config,
            self._local_node(),
            filesystem=environment.filesystem,
            clock=environment.clock,
            random=environment.random,
            timers=self.timers,
            workers=self._workers,
            network=self._raft_channel,
            on_fatal=self._fatal,
        )
        self._raft_channel.driver = self.shared.driver
        if config.is_controller:
            self._make_controller(self.shared)
        self.shared.start()
        self._serve_controller()
        self._register_controller(self.shared)
        return self.shared

    def _local_node(self) -> LocalNode:
        config = self.config
        return LocalNode(
            ReplicaKey(config.process.node_id, self._directory_id),
            self.cluster_id,
            config.network.controller_listener_names[0].upper(),
            self._voter_endpoints(),
            config.is_controller,
        )

    def _make_controller(self, shared: SharedServer) -> None:
        environment, core = self._environment, shared.driver.core
        self.controller = shared.controller = ControllerServer(
            self.config,
            cluster_id=self.cluster_id,
            driver=shared.driver,
            bootstrap=read_bootstrap(self.config, environment.filesystem),
            clock=environment.clock,
            random=environment.random,
            timers=self.timers,
        )
        self._controller_apis = ControllerApis(
            cluster_id=self.cluster_id,
            metadata=shared.metadata,
            controller=self.controller,
            raft=shared.driver,
            leader_id=lambda: -1 if core.leader_id is None else core.leader_id,
            features=SUPPORTED_FEATURES,
            clock=environment.clock,
        )

    def _serve_controller(self) -> None:
        apis = self._controller_apis
        if self.controller_sockets is None or apis is None:
            return
        for endpoint in self.controller_endpoints:
            self.controller_sockets.serve(endpoint.listener_name, self._intercept(apis), apis.apis)

    def _register_controller(self, shared: SharedServer) -> None:
        if self.controller is None:
            return
        endpoints = self._voter_endpoints()
        registrar = ControllerRegistrar(
            self.config.process.node_id,
            Uuid.random(self._environment.random),
            {
                each.listener_name: (
                    endpoints[each.listener_name],
                    PROTOCOL_IDS[each.security_protocol.value],
                )
                for each in self.controller_endpoints
            },
            self._channel(_REGISTRATION_TIMEOUT_MS),
            self._environment.clock,
        )
        shared.loader.install([registrar])

    def _channel(self, timeout_ms: int | None) -> NodeToControllerChannel:
        assert self.shared is not None
        core = self.shared.driver.core
        channel = NodeToControllerChannel(
            self.config.process.node_id,
            self._environment,
            self.timers,
            find=lambda: core.leader,
            local=self.controller,
            timeout_ms=timeout_ms,
        )
        self._channels.append(channel)
        self.shared.on_leader_changed.append(channel.look)
        return channel

    # The broker.

    async def _start_broker(self) -> None:
        if self.sockets is None:
            return
        assert self.shared is not None
        environment = self._environment
        self.broker = BrokerServer(
            self.config,
            cluster_id=self.cluster_id,
            shared=self.shared,
            make_channel=self._channel,
            sockets=self.sockets,
            filesystem=environment.filesystem,
            clock=environment.clock,
            random=environment.random,
            timers=self.timers,
            workers=self._workers,
            environment=environment,
            on_fatal=self._fatal,
            is_alone=self._is_alone,
        )
        await self.broker.start(self.advertised)
        apis = self.broker.apis
        for endpoint in self.sockets.endpoints:
            handle = self._intercept(apis)
            self.sockets.serve(endpoint.listener_name, handle, apis.apis, fast_path=apis.fast_path)

    def _is_alone(self) -> bool:
        """Whether no other node can be the active controller."""
        if self.controller is None or self.shared is None or not self.controller.is_active:
            return False
        return self.shared.driver.core.voters.ids == [self.config.process.node_id]

    # Stop.

    async def stop(self, *, is_controlled: bool = True) -> None:
        """Leave the cluster in order, answer what was asked, and bring everything to disk.

        Unless `is_controlled` the controller is not asked: it stops at the same time.
        """
        if self.broker is not None and not self._is_failed:
            await self.broker.leave(is_controlled=is_controlled)
        await self._close()

    async def kill(self) -> None:
        """Let go of everything as it is, as if the process had died."""
        self._is_failed = True
        await self._close()

    async def _close(self) -> None:
        """Stop what was started, the last first. What fails on the way is logged."""
        await self._close_broker()
        for channel in self._channels:
            channel.close()
        await self._close_quorum()
        self.timers.close()
        await self._loop.run_in_executor(None, self._workers.close)

    async def _close_broker(self) -> None:
        if self.sockets is not None:
            if self.broker is not None and self._drain_ms:
                # Those who wait for records or replicas get what there is now.
                self.broker.replicas.stop()
                self.broker.apis.close()
            await self._close_sockets(self.sockets)
        if self.broker is not None:
            close = self.broker.abandon if self._is_failed else self.broker.stop
            self._attempt("closing the logs", close)

    async def _close_quorum(self) -> None:
        """Raft hands over before its sockets close: the others must hear of it."""
        if self.shared is not None and not self._is_failed:
            await self._hand_over(self.shared)
        if self._controller_apis is not None and self._drain_ms:
            self._controller_apis.close()
        if self.controller_sockets is not None:
            await self._close_sockets(self.controller_sockets)
        if self._raft_channel is not None:
            self._raft_channel.close()
        if self.shared is not None:
            close = self.shared.abandon if self._is_failed else self.shared.close
            self._attempt("closing the metadata log", close)

    @property
    def _drain_ms(self) -> int:
        return 0 if self._is_failed else self.config.process.drain_timeout_ms

    async def _close_sockets(self, sockets: SocketServer) -> None:
        if self._drain_ms and not await sockets.drain(self._drain_ms):
            _logger.warning("some requests were not answered within %d ms", self._drain_ms)
        await sockets.stop()

    async def _hand_over(self, shared: SharedServer) -> None:
        done = self._loop.create_future()
        shared.shut_down(_RAFT_SHUTDOWN_MS, lambda: None if done.done() else done.set_result(None))
        try:
            async with asyncio.timeout(_RAFT_SHUTDOWN_MS / 1000 + 1):
                await done
        except TimeoutError:
            _logger.warning("leadership of the quorum was not handed over in time")

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
