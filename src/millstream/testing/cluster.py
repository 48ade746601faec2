"""A cluster of several nodes in this process, for tests of what happens when some of them fail.

Each node is a real one, on a thread and sockets of its own, with its data in a temporary directory.
A node can be killed, paused and cut off from others; the cluster's clients see what they would see
of processes.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Final

from millstream.clock import SystemClock
from millstream.errors import InvalidArgument, MillstreamError
from millstream.network.client.selector import Disconnected
from millstream.node.config import node_config
from millstream.node.environment import LoopSelector, SystemEnvironment
from millstream.node.formatting import format_storage
from millstream.node.node import Node
from millstream.raft.voters import (
    LOCAL_SUPPORTED_VERSIONS,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)
from millstream.testing.admin_requests import as_text
from millstream.testing.loop_thread import LoopThread
from millstream.testing.scratch import ScratchDirectory, UnsyncedFileSystem
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Self, TypeVar

    from millstream.clock import Clock
    from millstream.node.config import NodeConfig

    T = TypeVar("T")

HOST: Final = "127.0.0.1"
_LISTENER: Final = "CONTROLLER"
_DEFAULTS: Final[Mapping[str, str]] = {
    # Tests wait for elections, and nobody loses a packet on the way to the same machine.
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.append.linger.ms": "0",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "2000",
    "millstream.shutdown.drain.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class _Cuts:
    """Which nodes cannot reach which others."""

    def __init__(self) -> None:
        self.ways: set[tuple[int, int]] = set()
        self.node_by_port: dict[int, int] = {}

    def hold(self, source: int, port: int) -> bool:
        """Whether a node cannot reach who listens on a port."""
        target = self.node_by_port.get(port)
        return target is not None and (source, target) in self.ways


class _CutSelector(LoopSelector):
    """Sockets of one node to the others, as far as they are in its reach."""

    def __init__(
        self,
        node_id: int,
        cuts: _Cuts,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(loop, clock, on_ready)
        self._node_id = node_id
        self._cuts = cuts
        self._ports: dict[int, int] = {}

    def connect(self, connection_id: int, host: str, port: int) -> None:
        """See `ClientSelector`."""
        if self._cuts.hold(self._node_id, port):
            self._events.append(Disconnected(connection_id, "the network is cut"))
            self.wake()
            return
        self._ports[connection_id] = port
        super().connect(connection_id, host, port)

    def close(self, connection_id: int) -> None:
        """See `ClientSelector`."""
        self._ports.pop(connection_id, None)
        super().close(connection_id)

    def apply_cuts(self) -> None:
        """Lose the connections to nodes that are out of reach now."""
        for connection_id, port in list(self._ports.items()):
            if self._cuts.hold(self._node_id, port):
                self._lose(connection_id, "the network is cut")
        self.wake()


class _NodeEnvironment(SystemEnvironment):
    """The machine, with a network that can be cut."""

    def __init__(self, node_id: int, cuts: _Cuts, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(filesystem=UnsyncedFileSystem())
        self._node_id = node_id
        self._cuts = cuts
        self._loop = loop
        self.selectors: list[_CutSelector] = []

    def selector(self, on_ready: Callable[[], None]) -> _CutSelector:
        """See `Environment`."""
        made = _CutSelector(self._node_id, self._cuts, self._loop, self.clock, on_ready)
        self.selectors.append(made)
        return made


class _Member:
    """One node of the cluster, running or not."""

    def __init__(self, config: NodeConfig, cuts: _Cuts) -> None:
        self.config = config
        self._cuts = cuts
        self._paused: threading.Event | None = None
        self._starting: Future[Node] | None = None
        self._start_task: asyncio.Task[object] | None = None
        self.thread: LoopThread | None = None
        self.node: Node | None = None
        self.environment: _NodeEnvironment | None = None
        self.failure: Exception | None = None

    @property
    def id(self) -> int:
        return self.config.process.node_id

    def start(self) -> None:
        if self.thread is not None:
            raise InvalidArgument(f"node {self.id} is started already: stop it first")
        self.failure = None
        self.thread = LoopThread(f"millstream-node-{self.id}")
        work = self._start(self.thread)
        self._starting = asyncio.run_coroutine_threadsafe(work, self.thread.loop)
        try:
            self.node = self._starting.result()
        except CancelledError as error:
            raise MillstreamError(f"node {self.id} was ended while it started") from error
        finally:
            self._starting = self._start_task = None
            if self.node is None:
                self.thread.close()
                self.thread = None

    async def _start(self, thread: LoopThread) -> Node:
        self._start_task = asyncio.current_task()
        self.environment = _NodeEnvironment(self.id, self._cuts, thread.loop)
        node = Node(self.config, self.environment, on_fatal=self._failed)
        await node.start()
        return node

    def _failed(self, error: Exception) -> None:
        self.failure = error

    def end(self, *, is_clean: bool) -> None:
        self.resume()
        if self._starting is not None:
            self._cancel_start(self._starting)
            return
        thread, node = self.thread, self.node
        self.thread = self.node = None
        if thread is None or node is None:
            return
        try:
            thread.run(node.stop() if is_clean and self.failure is None else node.kill())
        finally:
            thread.close()

    def _cancel_start(self, starting: Future[Node]) -> None:
        """End a start where it is; one that has begun closes what it has opened."""
        thread, task = self.thread, self._start_task
        if thread is None or task is None:
            starting.cancel()
        else:
            thread.loop.call_soon_threadsafe(task.cancel)

    def pause(self) -> None:
        if self.thread is not None and self._paused is None:
            self._paused = threading.Event()
            self.thread.loop.call_soon_threadsafe(self._paused.wait)

    def resume(self) -> None:
        if self._paused is not None:
            self._paused.set()
            self._paused = None

    def apply_cuts(self) -> None:
        if self.thread is not None and self.environment is not None and self._paused is None:
            for selector in self.environment.selectors:
                self.thread.call(selector.apply_cuts)


class EmbeddedCluster:
    """Nodes of one cluster: `with EmbeddedCluster(nodes=3) as cluster: ...`.

    Nodes 1 to `nodes` are brokers and controllers. With `controllers` they are brokers only, and
    as many controllers have the ids after them.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        controllers: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Starts nothing yet. `settings` are by Kafka's keys and for all nodes."""
        if nodes < 1 or controllers < 0:
            raise InvalidArgument(f"a cluster of {nodes} nodes and {controllers} controllers")
        self._settings = {key: as_text(value) for key, value in (settings or {}).items()}
        self._scratch = ScratchDirectory()
        self._cuts = _Cuts()
        self._reserved: list[socket.socket] = []
        self._members: dict[int, _Member] = {}
        try:
            self._make(nodes, controllers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # What it is made of.

    def _make(self, nodes: int, controllers: int) -> None:
        broker_ids = range(1, nodes + 1)
        voter_ids = range(nodes + 1, nodes + controllers + 1) if controllers else broker_ids
        ports = {node_id: self._reserve() for node_id in voter_ids}
        self._cuts.node_by_port = {port: node_id for node_id, port in ports.items()}
        for node_id in sorted({*broker_ids, *voter_ids}):
            config = self._config(node_id, ports, is_broker=node_id in broker_ids)
            self._members[node_id] = _Member(config, self._cuts)
        self._format(ports)

    def _reserve(self) -> int:
        """A port that stays this cluster's, also while its node is stopped."""
        reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((HOST, 0))
        self._reserved.append(reserved)
        port: int = reserved.getsockname()[1]
        return port

    def _config(self, node_id: int, ports: Mapping[int, int], *, is_broker: bool) -> NodeConfig:
        listeners, roles = [], []
        if is_broker:
            roles.append("broker")
            port = self._reserve()
            self._cuts.node_by_port[port] = node_id
            listeners.append(f"PLAINTEXT://{HOST}:{port}")
        if node_id in ports:
            roles.append("controller")
            listeners.append(f"{_LISTENER}://{HOST}:{ports[node_id]}")
        own = {
            "node.id": str(node_id),
            "process.roles": ",".join(roles),
            "listeners": ",".join(listeners),
            "controller.listener.names": _LISTENER,
            "controller.quorum.bootstrap.servers": ",".join(
                f"{HOST}:{port}" for port in ports.values()
            ),
            "log.dirs": f"{self._scratch.path}/{node_id}",
        }
        return node_config({**_DEFAULTS, **self._settings, **own})

    def _format(self, ports: Mapping[int, int]) -> None:
        random, clock = Random(), SystemClock()
        cluster_id = str(Uuid.random(random))
        voters = VoterSet(
            Voter(
                ReplicaKey(node_id, Uuid.random(random)),
                {_LISTENER: Endpoint(HOST, port)},
                LOCAL_SUPPORTED_VERSIONS,
            )
            for node_id, port in ports.items()
        )
        for member in self._members.values():
            format_storage(
                member.config,
                UnsyncedFileSystem(),
                cluster_id=cluster_id,
                random=random,
                wall_ms=clock.wall_ms(),
                controller_endpoints={},
                initial_voters=voters,
            )

    # Where it is.

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to: every broker, running or not."""
        return ",".join(
            f"{each.host}:{each.port}"
            for member in self._members.values()
            for each in member.config.network.endpoints
            if each.listener_name != _LISTENER
        )

    @property
    def running(self) -> list[int]:
        """The ids of the nodes that run; a paused one counts."""
        return [each.id for each in self._members.values() if each.node is not None]

    def node(self, node_id: int) -> Node:
        """A node that runs, to look at: its objects belong to its own thread (see `call`)."""
        found = self._member(node_id).node
        if found is None:
            raise InvalidArgument(f"node {node_id} is not running")
        return found

    def call(self, node_id: int, function: Callable[[Node], T]) -> T:
        """Call a function on a node's own thread."""
        node, thread = self.node(node_id), self._member(node_id).thread
        assert thread is not None
        return thread.call(lambda: function(node))

    def controller_id(self) -> int | None:
        """The node that is the active controller; None while there is none."""
        for member in self._members.values():
            node = member.node
            if node is not None and node.controller is not None and node.controller.is_active:
                return member.id
        return None

    # What happens to it.

    def start(self, *node_ids: int) -> None:
        """Start nodes, all that do not run unless told otherwise; returns when they serve."""
        chosen = [self._member(each) for each in node_ids] or [
            each for each in self._members.values() if each.thread is None
        ]
        with ThreadPoolExecutor(max(1, len(chosen))) as pool:
            for started in [pool.submit(each.start) for each in chosen]:
                started.result()

    def stop(self, *node_ids: int) -> None:
        """Stop nodes in order, all at the same time."""
        self._end(node_ids, is_clean=True)

    def kill(self, *node_ids: int) -> None:
        """Stop nodes as if their processes had died."""
        self._end(node_ids, is_clean=False)

    def restart(self, *node_ids: int) -> None:
        """Stop nodes in order and start them again."""
        self.stop(*node_ids)
        self.start(*node_ids)

    def pause(self, node_id: int) -> None:
        """Let a node stand still, as SIGSTOP does: its connections stay, nothing is answered."""
        self._member(node_id).pause()

    def resume(self, node_id: int) -> None:
        """Let a paused node go on."""
        self._member(node_id).resume()

    def cut(self, source: int, target: int, *, both_ways: bool = True) -> None:
        """Keep one node from reaching another, and unless told otherwise the other way round."""
        self._cuts.ways |= {(source, target)} | ({(target, source)} if both_ways else set())
        for member in self._members.values():
            member.apply_cuts()

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all the others."""
        for other in self._members:
            if other != node_id:
                self.cut(node_id, other)

    def heal(self) -> None:
        """Let every node reach every other again."""
        self._cuts.ways.clear()

    def close(self) -> None:
        """End everything; the data is removed. Again is fine."""
        self.heal()
        self._end((), is_clean=False)
        for each in self._reserved:
            each.close()
        self._reserved.clear()
        self._scratch.remove()

    def _end(self, node_ids: tuple[int, ...], *, is_clean: bool) -> None:
        chosen = [self._member(each) for each in node_ids] or list(self._members.values())
        with ThreadPoolExecutor(max(1, len(chosen))) as pool:
            for ended in [pool.submit(each.end, is_clean=is_clean) for each in chosen]:
                ended.result()

    def _member(self, node_id: int) -> _Member:
        if node_id not in self._members:
            raise MillstreamError(f"there is no node {node_id}: there are {list(self._members)}")
        return self._members[node_id]
