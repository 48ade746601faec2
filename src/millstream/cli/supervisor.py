"""Which processes of a cluster are to run now: a state machine that is told what happened and when.

`cluster_run` brings it events and does what it says. A node that dies is started again, later each
time; one that never comes up is given up with its last words. At the end brokers stop while there
are controllers to take their leave of, then the controllers, which ask nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BACKOFF_MS: Final = 500
BACKOFF_MAX_MS: Final = 30_000
LASTING_MS: Final = 60_000
"""A node that ran for so long has recovered: its next death counts as the first."""
STARTS_MAX: Final = 5
"""How often a node may end before it was ready, one time after the other."""
SLOW_START_MS: Final = 30_000
STOP_MS: Final = 30_000
"""How long a node may take to stop in order."""
HURRIED_STOP_MS: Final = 5000
"""How long one may take that was told to stop at once."""


class NodeState(StrEnum):
    """How a node's process is."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    """It ended, and is not ready again yet."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    """It never came up, and is not tried any more."""


class Urgency(IntEnum):
    """How a process is ended."""

    IN_ORDER = 1
    UNASKED = 2
    """In order as well, but no controller is asked: they all stop."""
    AT_ONCE = 3
    KILLED = 4


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a node's process."""

    node_id: int


@dataclass(frozen=True, slots=True)
class End:
    """End a node's process."""

    node_id: int
    urgency: Urgency


@dataclass(frozen=True, slots=True)
class Tell:
    """Say a line to whoever watches."""

    text: str


@dataclass(frozen=True, slots=True)
class Announce:
    """All nodes are ready for the first time."""


Effect: TypeAlias = Launch | End | Tell | Announce


@dataclass(slots=True)
class _Process:
    """What is known of one node."""

    id: int
    state: NodeState = NodeState.STOPPED
    is_alive: bool = False
    since_ms: int = 0
    """When it was launched, was ready, or was told to end."""
    failures: int = 0
    """How often it ended since it last ran for long."""
    starts_in_vain: int = 0
    restarts: int = 0
    launch_at_ms: int | None = None
    urgency: Urgency | None = None
    is_slow: bool = False


@dataclass(slots=True)
class Supervisor:
    """The processes of one cluster, from the first start to the end of all."""

    node_ids: Sequence[int]
    is_announced: bool = False
    has_failed: bool = False
    """Whether something went wrong that the exit code should say."""
    _processes: dict[int, _Process] = field(init=False)
    _groups: list[tuple[list[int], Urgency]] | None = None
    """Who stops next, and after them; None while nobody does."""

    def __post_init__(self) -> None:
        self._processes = {each: _Process(each) for each in self.node_ids}

    # What is known.

    @property
    def is_stopping(self) -> bool:
        """Whether all nodes are to end."""
        return self._groups is not None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to watch."""
        if any(each.is_alive for each in self._processes.values()):
            return False
        is_hopeless = all(each.state is NodeState.FAILED for each in self._processes.values())
        return is_hopeless or self.is_stopping

    def state(self, node_id: int) -> NodeState:
        """How a node is."""
        return self._processes[node_id].state

    def restarts(self, node_id: int) -> int:
        """How often a node was started again."""
        return self._processes[node_id].restarts

    # What happens.

    def start(self, now_ms: int) -> list[Effect]:
        """Start all nodes: none of them is ready before it finds enough of the others."""
        return [self._launch(each, NodeState.STARTING, now_ms) for each in self._processes.values()]

    def ready(self, node_id: int, now_ms: int) -> list[Effect]:
        """A node serves."""
        process = self._processes[node_id]
        if process.state not in (NodeState.STARTING, NodeState.RESTARTING):
            return []
        is_again = process.state is NodeState.RESTARTING
        process.state, process.since_ms = NodeState.RUNNING, now_ms
        process.starts_in_vain, process.is_slow = 0, False
        effects: list[Effect] = [Tell(f"node {node_id} is ready again")] if is_again else []
        if not self.is_announced and all(
            each.state is NodeState.RUNNING for each in self._processes.values()
        ):
            self.is_announced = True
            effects.append(Announce())
        return effects

    def ended(self, node_id: int, how: str, last_lines: Sequence[str], now_ms: int) -> list[Effect]:
        """A node's process is gone; `how` reads behind its name, as in `node 1 had exit code 1`."""
        process = self._processes[node_id]
        was_ready = process.state is NodeState.RUNNING
        process.is_alive = False
        if self.is_stopping:
            process.state = NodeState.STOPPED
            return self._stop_next(now_ms)
        if was_ready and now_ms - process.since_ms >= LASTING_MS:
            process.failures = 0
        process.failures += 1
        process.starts_in_vain += not was_ready
        if process.starts_in_vain >= STARTS_MAX:
            return self._give_up(process, how, last_lines, now_ms)
        delay_ms = min(BACKOFF_MS << (process.failures - 1), BACKOFF_MAX_MS)
        process.launch_at_ms = now_ms + delay_ms
        if self.is_announced:
            process.state = NodeState.RESTARTING
        where = "" if was_ready else " before it was ready"
        return [Tell(f"node {node_id} {how}{where}; it is started again in {delay_ms / 1000:g} s")]

    def stop_asked(
        self,
        now_ms: int,
        brokers: Sequence[int],
        controllers: Iterable[Sequence[int]],
    ) -> list[Effect]:
        """Stop brokers and then controllers, group by group; asked again all at once, by force."""
        if self._groups is None:
            self._groups = [(list(brokers), Urgency.IN_ORDER)]
            self._groups += [(list(each), Urgency.UNASKED) for each in controllers]
            for process in self._processes.values():
                process.launch_at_ms = None
                if not process.is_alive and process.state is not NodeState.FAILED:
                    process.state = NodeState.STOPPED
            return self._stop_next(now_ms)
        self._groups.clear()
        alive = [each for each in self._processes.values() if each.is_alive]
        least = min((each.urgency or Urgency.IN_ORDER for each in alive), default=Urgency.KILLED)
        urgency = Urgency.AT_ONCE if least < Urgency.AT_ONCE else Urgency.KILLED
        return [self._end(each, urgency, now_ms) for each in alive if each.urgency != urgency]

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        for process in self._processes.values():
            if process.launch_at_ms is not None and now_ms >= process.launch_at_ms:
                process.restarts += 1
                effects.append(self._launch(process, process.state, now_ms))
            elif process.is_alive and process.urgency is not None:
                effects += self._hurry(process, now_ms)
            elif process.is_alive and process.state is not NodeState.RUNNING:
                effects += self._notice_slow_start(process, now_ms)
        return effects

    # How it comes to that.

    def _launch(self, process: _Process, state: NodeState, now_ms: int) -> Launch:
        process.state, process.is_alive = state, True
        process.launch_at_ms, process.since_ms = None, now_ms
        return Launch(process.id)

    def _give_up(
        self, process: _Process, how: str, last_lines: Sequence[str], now_ms: int
    ) -> list[Effect]:
        process.state = NodeState.FAILED
        self.has_failed = True
        words = "".join(f"\n    {each}" for each in last_lines) or " nothing"
        text = (
            f"node {process.id} {how}, for the {process.starts_in_vain}th time before it was "
            f"ready, and is not started any more; the last it said:{words}"
        )
        if self.is_announced:
            return [Tell(text)]
        # Nobody has been told that the cluster is there: it is not left half started.
        rest = [each.id for each in self._processes.values() if each.is_alive]
        return [Tell(text), *self.stop_asked(now_ms, (), [rest])]

    def _notice_slow_start(self, process: _Process, now_ms: int) -> list[Effect]:
        if process.is_slow or now_ms < process.since_ms + SLOW_START_MS:
            return []
        process.is_slow = True
        return [
            Tell(
                f"node {process.id} is not ready after {SLOW_START_MS // 1000} s; its log says more"
            )
        ]

    def _stop_next(self, now_ms: int) -> list[Effect]:
        """Let the next group go when the one before it has gone."""
        assert self._groups is not None
        processes = self._processes.values()
        if any(each.is_alive and each.urgency is not None for each in processes):
            return []
        while self._groups:
            group, urgency = self._groups.pop(0)
            alive = [self._processes[each] for each in group if self._processes[each].is_alive]
            if alive:
                return [self._end(each, urgency, now_ms) for each in alive]
        return []

    def _end(self, process: _Process, urgency: Urgency, now_ms: int) -> End:
        process.state, process.urgency, process.since_ms = NodeState.STOPPING, urgency, now_ms
        return End(process.id, urgency)

    def _hurry(self, process: _Process, now_ms: int) -> list[Effect]:
        assert process.urgency is not None
        is_patient = process.urgency < Urgency.AT_ONCE
        limit_ms = STOP_MS if is_patient else HURRIED_STOP_MS
        if process.urgency is Urgency.KILLED or now_ms < process.since_ms + limit_ms:
            return []
        urgency = Urgency.AT_ONCE if is_patient else Urgency.KILLED
        text = f"node {process.id} still stops after {limit_ms // 1000} s: it is ended by force"
        return [Tell(text), self._end(process, urgency, now_ms)]
