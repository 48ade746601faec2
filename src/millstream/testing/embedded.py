"""`EmbeddedBroker`: a whole broker inside a test's process, started in milliseconds.

It is the node that `millstream server start` runs, with real sockets on 127.0.0.1 and real files,
in a thread with an event loop of its own. Every Kafka client can use it. Tests make one themselves
or through the fixtures of `pytest_plugin`; nothing of Millstream itself does.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.clock import ManualClock, SystemClock
from millstream.controller.decision import RequestContext
from millstream.errors import InvalidArgument, MillstreamError
from millstream.node.config import node_config
from millstream.node.environment import SystemEnvironment
from millstream.node.node import Node
from millstream.protocol.messages.create_topics import CreateTopicsResponse
from millstream.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from millstream.server.kafka_apis import KafkaApis
from millstream.storage.disk import DiskFileSystem
from millstream.testing.admin_requests import as_text, creation, forgetting, raise_first
from millstream.testing.faults import Faults, FaultyHandler
from millstream.testing.loop_thread import LoopThread
from millstream.testing.scratch import ScratchDirectory, UnsyncedFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from millstream.clock import Clock
    from millstream.network.server.request import RequestHandler
    from millstream.node.config import NodeConfig
    from millstream.protocol.message import Message
    from millstream.server.api_server import ApiServer

_logger = logging.getLogger(__name__)

T = TypeVar("T")

HOST: Final = "127.0.0.1"
ADVANCE_STEP_MAX_MS: Final = 5 * 86_400_000
"""How far a manual clock moves at once: less than a heartbeat's interval, see below."""

_DEFAULTS: Final[Mapping[str, str]] = {
    # A client that was forgotten must not keep a test from ending.
    "millstream.shutdown.drain.timeout.ms": "1000",
    # Tests begin many groups and wait for each; latecomers are rare.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
_MANUAL_CLOCK_DEFAULTS: Final[Mapping[str, str]] = {
    # When a test lets a week pass in one step, the broker has missed no heartbeat and its
    # clients were not idle: they had no time.
    "broker.heartbeat.interval.ms": str(10 * 86_400_000),
    "broker.session.timeout.ms": str(24 * 86_400_000),
    "connections.max.idle.ms": "-1",
    # Clients live in the present, and the clock need not.
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),
}
_SETTLING_TURNS: Final = 8
"""Turns of the loop after which what a moment of the clock has set off is under way."""

_numbers = itertools.count(1)


class EmbeddedBroker:
    """A broker of this process: `with EmbeddedBroker() as broker: ...`.

    Its methods may be called on any thread but the broker's own. `stop` and `start` keep address
    and data; `close`, or the end of the `with` block, removes what was made for it. A forked
    child process can use the broker of its parent through its address, and not control it.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        in_memory: bool = False,
        clock: ManualClock | None = None,
    ) -> None:
        """Starts nothing yet.

        `settings` are by Kafka's keys, as in `server.properties`. Data is in a temporary
        directory, or in one in memory, or in the given `directory`, which stays. Only there
        records are synced to disk; the others need not survive the machine.
        """
        _require_possible(settings or {}, directory, in_memory=in_memory)
        self._settings = {key: as_text(value) for key, value in (settings or {}).items()}
        self._given_directory = None if directory is None else os.fspath(directory)
        self._in_memory = in_memory
        self._scratch: ScratchDirectory | None = None
        self._clock: Clock = clock or SystemClock()
        self._pid = os.getpid()
        self._name = f"millstream-broker-{next(_numbers)}"
        self._reserved: socket.socket | None = None
        self._port = 0
        self._thread: LoopThread | None = None
        self._node: Node | None = None
        self.failure: Exception | None = None
        """Why the broker stopped by itself, if it did."""
        self.faults = Faults(self.disconnect_clients)
        """What shall go wrong."""

    def __enter__(self) -> Self:
        if not self.is_running:
            self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Where it is.

    @property
    def is_running(self) -> bool:
        """Whether it serves clients."""
        return self._node is not None and self.failure is None

    @property
    def bootstrap_servers(self) -> str:
        """What a client connects to, as host:port; the same after a restart."""
        return self._running().bootstrap_servers

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that the broker is."""
        return self._running().cluster_id

    @property
    def directory(self) -> str:
        """Where its data is."""
        if self._given_directory is not None:
            return self._given_directory
        if self._scratch is None:
            self._scratch = ScratchDirectory(in_memory=self._in_memory)
        return self._scratch.path

    # Start and stop.

    def start(self) -> None:
        """Start; when this returns, clients are served. What keeps it from starting is raised."""
        self._require_own_process()
        if self._node is not None:
            raise InvalidArgument("this broker is started already: stop it first")
        self.failure = None
        is_first = self._port == 0
        try:
            self._thread, self._node = self._start_thread(self._config())
        except BaseException:
            if is_first:
                self._release()
            raise
        self._port = self._node.advertised[0].port

    def stop(self) -> None:
        """Stop in order, as on SIGTERM; data and address stay for the next start."""
        self._end(is_clean=True)

    def kill(self) -> None:
        """Stop as if the process had died: nothing is answered, closed or written any more."""
        self._end(is_clean=False)
        # Nothing was closed, so the files are open for as long as their owners refer to each
        # other; a process that dies leaves none.
        gc.collect()

    def restart(self) -> None:
        """Stop in order and start again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop for good; temporary data is removed. Again is fine, in a forked child too."""
        if os.getpid() != self._pid:
            return
        self.stop()
        self._release()

    def _release(self) -> None:
        """Give back the port and the temporary data."""
        self._port = 0
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _start_thread(self, config: NodeConfig) -> tuple[LoopThread, Node]:
        thread = LoopThread(self._name)
        try:
            return thread, thread.run(self._start(config))
        except BaseException:
            thread.close()
            raise

    async def _start(self, config: NodeConfig) -> Node:
        is_kept = self._given_directory is not None
        node = Node(
            config,
            SystemEnvironment(
                clock=self._clock,
                filesystem=DiskFileSystem() if is_kept else UnsyncedFileSystem(),
            ),
            on_fatal=self._failed,
            intercept=self._intercept,
        )
        await node.start()
        return node

    def _intercept(self, apis: ApiServer) -> RequestHandler:
        if isinstance(apis, KafkaApis):
            self.faults.intercept(apis.fast_path)
            return FaultyHandler(apis, self.faults, asyncio.get_running_loop())
        return apis.handle

    def _failed(self, error: Exception) -> None:
        _logger.error("the embedded broker cannot go on: %s", error)
        self.failure = error

    def _end(self, *, is_clean: bool) -> None:
        self._require_own_process()
        node, thread = self._node, self._thread
        if node is None or thread is None:
            return
        self._node = self._thread = None
        try:
            thread.run(node.stop() if is_clean and self.failure is None else node.kill())
        finally:
            self.faults.intercept(None)
            thread.close()

    # What it is made of.

    def _config(self) -> NodeConfig:
        defaults = dict(_DEFAULTS)
        if isinstance(self._clock, ManualClock):
            defaults |= _MANUAL_CLOCK_DEFAULTS
        if "listeners" not in self._settings:
            self._reserve_port()
            defaults["listeners"] = f"PLAINTEXT://{HOST}:{self._port},CONTROLLER://{HOST}:0"
        return node_config({**defaults, **self._settings, "log.dirs": self.directory})

    def _reserve_port(self) -> None:
        """Hold the port, so that nobody else gets it while this broker is stopped.

        On Linux a socket may listen where another of the same user is bound and does not listen.
        """
        if self._port == 0 and sys.platform == "linux":
            self._reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind((HOST, 0))
            self._port = self._reserved.getsockname()[1]

    # Topics.

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic; when this returns, clients can use it."""
        response = self._ask_controller(creation(name, partitions, config or {}), 7)
        assert isinstance(response, CreateTopicsResponse)
        raise_first(response.topics)

    def delete_topics(self, *names: str) -> None:
        """Delete topics; those that do not exist are fine."""
        known = self._all_topics()
        states = [DeleteTopicState(name=name) for name in names if name in known]
        if not states:
            return
        response = self._ask_controller(DeleteTopicsRequest(topics=states), 6)
        assert isinstance(response, DeleteTopicsResponse)
        raise_first(response.responses)

    def topics(self) -> list[str]:
        """The names of all topics but the broker's own."""
        return [name for name in self._all_topics() if not name.startswith("__")]

    def _all_topics(self) -> list[str]:
        broker = self._running().broker
        return [] if broker is None else self._call(broker.metadata.topic_names)

    def reset(self) -> None:
        """Delete topics, groups, transactions, faults and whatever was set while it ran.

        It is as good as a new broker then, at once.
        """
        self.faults.clear()
        self.delete_topics(*self._all_topics())
        self._forget_settings()

    def _forget_settings(self) -> None:
        node = self._running()
        if node.broker is None:
            return
        metadata = node.broker.metadata
        configs = self._call(lambda: metadata.image.configs)
        request = forgetting(configs, node.config.topics.min_insync_replicas)
        if request.resources:
            response = self._ask_controller(request, 1)
            assert isinstance(response, IncrementalAlterConfigsResponse)
            raise_first(response.responses)

    def _ask_controller(self, request: Message, version: int) -> Message:
        controller = self._running().controller
        assert controller is not None

        async def ask() -> Message:
            answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
            context = RequestContext(now_ms=now_ms, wall_ms=wall_ms, version=version)
            controller.submit(request, context, answered.set_result)
            return await answered

        assert self._thread is not None
        return self._thread.run(ask())

    # Connections and time.

    def disconnect_clients(self) -> None:
        """Close every connection at once; clients may connect again."""
        sockets = self._running().sockets
        assert sockets is not None

        def disconnect() -> None:
            for channel in list(sockets.processor.channels.values()):
                channel.abort()

        self._call(disconnect)

    def advance(self, ms: int) -> None:
        """Let time pass on the manual clock, and do what became due on the way."""
        if not isinstance(self._clock, ManualClock):
            raise InvalidArgument("this broker has the machine's clock: give it a ManualClock")
        if self._thread is None:
            self._clock.advance(ms)
        else:
            self._thread.run(self._advance(self._clock, ms))

    async def _advance(self, clock: ManualClock, ms: int) -> None:
        node = self._running()
        assert node.sockets is not None
        while True:
            step_ms = min(ms, ADVANCE_STEP_MAX_MS)
            clock.advance(step_ms)
            ms -= step_ms
            node.timers.fire_due()
            for sockets in (node.sockets, node.controller_sockets):
                if sockets is not None:
                    sockets.processor.run_deadlines()
            for _ in range(_SETTLING_TURNS):
                await asyncio.sleep(0)
            if not ms:
                return

    # The rest.

    def _running(self) -> Node:
        self._require_own_process()
        if self.failure is not None:
            raise MillstreamError(f"the embedded broker stopped: {self.failure}") from self.failure
        if self._node is None:
            raise InvalidArgument("this broker is not started: call start(), or use `with`")
        return self._node

    def _call(self, function: Callable[[], T]) -> T:
        assert self._thread is not None
        return self._thread.call(function)

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise InvalidArgument(
                f"this broker runs in process {self._pid}; a forked child can only connect to it"
            )


def _require_possible(
    settings: Mapping[str, object], directory: object, *, in_memory: bool
) -> None:
    if directory is not None and in_memory:
        raise InvalidArgument("data is in the given directory or in memory, not both")
    for key in ("log.dirs", "log.dir"):
        if key in settings:
            raise InvalidArgument(f"{key} cannot be set here: give `directory`")
