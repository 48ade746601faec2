"""`millstream cluster start`: the processes of a cluster and the signals that end them.

It performs what `Supervisor` decides. Nodes are in sessions of their own, so that Ctrl-C reaches
this process alone, and write their logs themselves, so that they go on if this process is killed.
What a node writes is repeated on stderr, with its name before each line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cli.cluster_plan import LOG_NAME, PROPERTIES_NAME, node_directory, own_settings
from millstream.cli.cluster_state import NodeStatus, leader_of_quorum, write_state
from millstream.cli.output import complain
from millstream.cli.supervisor import (
    Announce,
    End,
    Launch,
    Supervisor,
    Tell,
    Urgency,
)
from millstream.clock import SystemClock
from millstream.node.main import END_OF_CLUSTER
from millstream.node.properties import from_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.cli.cluster_plan import ClusterPlan, PlannedNode
    from millstream.cli.supervisor import Effect

_LOOK_SECONDS: Final = 0.1
_LAST_LINES: Final = 10
_LOG_BYTES_MAX: Final = 64 << 20
_READ_BYTES: Final = 1 << 20
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _LogTail:
    """What a node's process adds to its log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._position = 0
        self._unfinished = b""

    def begin(self) -> None:
        """A new process of the node writes; a log that has become long is put aside."""
        if self.path.exists() and self.path.stat().st_size > _LOG_BYTES_MAX:
            self.path.replace(f"{self.path}.1")
        self._position = self.path.stat().st_size if self.path.exists() else 0
        self._unfinished = b""
        self.last.clear()

    def read(self) -> list[str]:
        """The lines since last time."""
        if not self.path.exists() or self.path.stat().st_size <= self._position:
            return []
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read(_READ_BYTES)
        self._position += len(data)
        *whole, self._unfinished = (self._unfinished + data).split(b"\n")
        lines = [each.decode(errors="replace") for each in whole]
        self.last.extend(lines)
        return lines


class _NodeProcess:
    """The process of a node, the present one after all those before."""

    def __init__(self, directory: str, plan: ClusterPlan, node: PlannedNode) -> None:
        self.node = node
        self._path = Path(node_directory(directory, node))
        self._own = own_settings(directory, plan, node)
        self.tail = _LogTail(self._path / LOG_NAME)
        self.process: asyncio.subprocess.Process | None = None
        self._urgency: Urgency | None = None

    async def run(self, on_ready: Callable[[], None]) -> str:
        """Run a process to its end, which is told as in `ended with exit code 1`."""
        self.tail.begin()
        arguments = ["server", "start", "--config", str(self._path / PROPERTIES_NAME), "--json"]
        with self.tail.path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "millstream", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                start_new_session=True,
            )
        if self._urgency is not None:
            self.end(self._urgency)
        assert self.process.stdout is not None
        if await self.process.stdout.readline():
            on_ready()
        code = await self.process.wait()
        self.process = None
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def end(self, urgency: Urgency) -> None:
        """Send the signal; a node takes the second one as a wish to stop at once."""
        is_first = self._urgency is None
        self._urgency = urgency
        if self.process is None:
            return
        match urgency:
            case Urgency.KILLED:
                number = signal.SIGKILL
            case Urgency.UNASKED:
                number = END_OF_CLUSTER
            case Urgency.AT_ONCE if is_first:
                number = END_OF_CLUSTER
            case _:
                number = signal.SIGTERM
        self.process.send_signal(number)

    def _environment(self) -> dict[str, str]:
        """The variables of this process, without those that would make all nodes the same one."""
        return {
            name: value
            for name, value in os.environ.items()
            if not from_environment({name: value}, self._own)[0]
        }


class ClusterRun:
    """All processes of a cluster, from start to end."""

    def __init__(
        self, directory: str, plan: ClusterPlan, announce: Callable[[Sequence[NodeStatus]], None]
    ) -> None:
        self._directory = directory
        self._plan = plan
        self._announce = announce
        self._clock = SystemClock()
        self._supervisor = Supervisor([each.id for each in plan.nodes])
        self._processes = {each.id: _NodeProcess(directory, plan, each) for each in plan.nodes}
        self._tasks: set[asyncio.Task[None]] = set()
        self._noted: list[NodeStatus] = []

    async def run(self) -> bool:
        """Run until the end of all; whether everything went as it should."""
        loop = asyncio.get_running_loop()
        taken = [each for each in _SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
        for number in taken:
            loop.add_signal_handler(number, self._stop, number)
        try:
            self._perform(self._supervisor.start(self._now_ms))
            while not self._supervisor.is_over or self._tasks:
                await asyncio.wait({*self._tasks, self._pause()}, return_when="FIRST_COMPLETED")
                self._repeat_logs()
                self._perform(self._supervisor.tick(self._now_ms))
        finally:
            for number in taken:
                loop.remove_signal_handler(number)
            for process in self._processes.values():
                process.end(Urgency.IN_ORDER)
        return not self._supervisor.has_failed

    def _pause(self) -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(_LOOK_SECONDS), name="pause")

    @property
    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Launch(node_id):
                    work = self._watch(self._processes[node_id])
                    task = asyncio.create_task(work, name=f"node-{node_id}")
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                case End(node_id, urgency):
                    self._processes[node_id].end(urgency)
                case Tell(text):
                    self._say(text)
                case Announce():
                    self._note()
                    with suppress(OSError):
                        self._announce(self._noted)
        self._note()

    def _say(self, text: str) -> None:
        """A line for whoever watches; that nobody does any more is no reason to stop."""
        with suppress(OSError):
            complain(text)

    async def _watch(self, process: _NodeProcess) -> None:
        node_id = process.node.id

        def on_ready() -> None:
            self._perform(self._supervisor.ready(node_id, self._now_ms))

        try:
            how = await process.run(on_ready)
        except OSError as error:
            how = f"could not be started: {error.strerror}"
        self._repeat_logs()
        last = list(process.tail.last)
        self._perform(self._supervisor.ended(node_id, how, last, self._now_ms))

    def _stop(self, received: signal.Signals) -> None:
        if not self._supervisor.is_stopping:
            self._say(f"{received.name}: stopping the cluster; once more to stop it at once")
        apart = [each.id for each in self._plan.nodes if not each.is_controller]
        controllers = [each.id for each in self._plan.controllers]
        # Until the last there is one who leads, and none of the others is elected for a moment.
        leader = leader_of_quorum(self._directory, self._plan)
        last = [each for each in controllers if each == leader]
        others = [each for each in controllers if each != leader]
        effects = self._supervisor.stop_asked(self._now_ms, apart, [others, last])
        self._perform(effects)

    def _repeat_logs(self) -> None:
        for node_id, process in self._processes.items():
            lines = process.tail.read()
            with suppress(OSError):
                sys.stderr.writelines(f"node {node_id} | {line}\n" for line in lines)
                sys.stderr.flush()

    def _note(self) -> None:
        """Write down how the nodes are, if that has changed."""
        found = []
        for node_id, process in self._processes.items():
            pid = None if process.process is None else process.process.pid
            restarts = self._supervisor.restarts(node_id)
            found.append(NodeStatus(node_id, self._supervisor.state(node_id), pid, restarts))
        if found != self._noted:
            self._noted = found
            # A full disk takes no note, and must not end the nodes besides.
            with suppress(OSError):
                write_state(self._directory, found)
