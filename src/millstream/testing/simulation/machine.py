"""One simulated machine: a disk, a clock, a place in the network, and the node that runs on it.

The node is a real one. What happens to it is what happens to processes and machines: it is started
and stopped, killed, paused, slowed down; the machine loses its power or its disk is full.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from millstream.node.node import Node
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.testing.simulation.clock import SimClock
from millstream.testing.simulation.environment import SimEnvironment
from millstream.testing.simulation.loop import SimLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.server.request import RequestHandler
    from millstream.node.config import NodeConfig
    from millstream.server.api_server import ApiServer
    from millstream.testing.simulation.world import World


class SimMachine:
    """A machine of a `World`, known by its name."""

    def __init__(self, world: World, host: str, config: NodeConfig | None = None) -> None:
        """`config` is that of its node; a machine of clients has none."""
        self._world = world
        self.host = host
        self._config = config
        self._random = Random(f"{world.seed} {host}")
        self._starts = 0
        drift_ppm = self._random.randint(-200, 200)
        offset_us = self._random.randrange(1_000_000_000)
        self.clock = SimClock(world.schedule, offset_us=offset_us, drift_ppm=drift_ppm)
        self.disk = SimFileSystem(self._random, clock=self.clock)
        self.disk_delay_us = 0
        """How much longer each job of a worker takes."""
        self.loop: SimLoop | None = None
        self.environment: SimEnvironment | None = None
        self.node: Node | None = None
        self.is_serving = False
        """Whether the node has started and does not stop yet."""
        self.failure: BaseException | None = None
        """Why the last process ended by itself."""
        self.on_turn: Callable[[SimMachine], None] = lambda machine: None
        """Called after each turn of its process."""
        self.intercept: Callable[[ApiServer], RequestHandler] = lambda apis: apis.handle

    @property
    def is_running(self) -> bool:
        """Whether there is a process, be it starting, serving, paused or stopping."""
        return self.loop is not None

    @property
    def config(self) -> NodeConfig:
        """The settings of its node."""
        assert self._config is not None, f"{self.host} has no node"
        return self._config

    # The life of its process.

    def open_process(self) -> SimEnvironment:
        """Begin a process; its world."""
        assert self.loop is None, f"a process runs on {self.host} already"
        self._world.network.power_returned(self.host)
        self._starts += 1
        self.failure = None
        self.loop = SimLoop(  # type: ignore[abstract]  # What it lacks, no node uses.
            self._world.schedule,
            self.clock,
            on_turn=lambda: self.on_turn(self),
            on_error=self._callback_failed,
        )
        self.environment = SimEnvironment(
            self.host,
            self.loop,
            self._world.network,
            clock=self.clock,
            random=Random(f"{self._world.seed} {self.host} {self._starts}"),
            filesystem=self.disk,
            latency_us=self._draw_latency_us,
        )
        return self.environment

    def start(self) -> None:
        """Start the node; `is_serving` when it is up."""
        self.open_process()
        assert self.loop is not None
        self.loop.create_task(self._start(self.loop))

    def stop(self) -> None:
        """Let the node leave in order; `is_running` no more when it has."""
        if self.loop is None or self.node is None:
            return
        self.is_serving = False
        self.loop.create_task(self._stop(self.loop, self.node))

    def kill(self) -> None:
        """End the process at once; what it wrote is there."""
        if self.loop is not None:
            self._world.network.process_died(self.host)
            self.end_process()
            self.disk = self.disk.after_kill()

    def lose_power(self) -> None:
        """End the machine at once; what was not synced may be lost."""
        self._world.network.power_lost(self.host)
        self.end_process()
        self.disk = self.disk.after_power_loss()

    def pause(self) -> None:
        """Let the process stand still."""
        if self.loop is not None:
            self.loop.pause()

    def resume(self) -> None:
        """Let it go on."""
        if self.loop is not None:
            self.loop.resume()

    async def _start(self, loop: SimLoop) -> None:
        self.node = Node(
            self.config, self.environment, on_fatal=self._failed, intercept=self.intercept
        )
        try:
            await self.node.start()
        except Exception as error:
            self._ended(loop, error)
        else:
            self.is_serving = self.loop is loop

    async def _stop(self, loop: SimLoop, node: Node) -> None:
        await node.stop()
        self._ended(loop, None)

    def _failed(self, error: Exception) -> None:
        """The node cannot go on: its owner ends it, as `server start` does."""
        loop, node = self.loop, self.node
        self.is_serving = False
        if loop is not None and node is not None:
            loop.create_task(self._give_up(loop, node, error))

    async def _give_up(self, loop: SimLoop, node: Node, error: Exception) -> None:
        await node.kill()
        self._ended(loop, error)

    def _ended(self, loop: SimLoop, error: BaseException | None) -> None:
        """The process has come to its end, and is about to be no more."""
        self.is_serving = False

        def end() -> None:
            if self.loop is loop:
                self.failure = error
                self._world.note(f"{self.host}: the process ended: {error!r}")
                self.kill()

        self._world.schedule.after(0, end)

    def end_process(self) -> None:
        """Let the process do nothing any more, and tell nobody."""
        loop, self.loop = self.loop, None
        self.node = self.environment = None
        self.is_serving = False
        if loop is not None:
            loop.die()

    def _callback_failed(self, context: dict[str, Any]) -> None:
        self._world.fail(self.host, context.get("exception"), str(context.get("message")))

    def _draw_latency_us(self) -> int:
        return 100 + int(self._random.random() ** 4 * 20_000) + self.disk_delay_us
