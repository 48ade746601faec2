"""A simulated world: virtual time, chance from one seed, a network and the machines in it.

Everything that happens in it is a function of the seed. What is worth telling is noted, so that two
runs can be compared and a failure be read.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from millstream.testing.simulation.machine import SimMachine
from millstream.testing.simulation.network import SimNetwork
from millstream.testing.simulation.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.node.config import NodeConfig


class World:
    """Machines under virtual time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"{seed} world")
        self.schedule = Schedule(Random(f"{seed} schedule"))
        self.network = SimNetwork(self.schedule, Random(f"{seed} network"))
        self.machines: dict[str, SimMachine] = {}
        self.notes: list[str] = []
        """What happened, with its time."""
        self.error: BaseException | None = None
        """What went wrong inside of a node, and is no fault that was made on purpose."""

    @property
    def now_ms(self) -> int:
        """The time since the beginning."""
        return self.schedule.now_us // 1000

    def machine(self, host: str, config: NodeConfig | None = None) -> SimMachine:
        """A new machine."""
        made = self.machines[host] = SimMachine(self, host, config)
        return made

    def note(self, text: str) -> None:
        """Remember that something happened."""
        self.notes.append(f"{self.schedule.now_us / 1_000_000:12.6f} {text}")

    def fail(self, host: str, error: BaseException | None, text: str) -> None:
        """Something went wrong inside of a node: `run_for` raises it."""
        self.note(f"{host}: {text}: {error!r}")
        if self.error is None:
            self.error = error or RuntimeError(f"{host}: {text}")

    def run_for(self, ms: int) -> None:
        """Let time pass."""
        self.run_until(lambda: False, ms)

    def run_until(self, holds: Callable[[], bool], limit_ms: int) -> bool:
        """Let time pass until something holds, or so long; whether it holds."""
        end_us = self.schedule.now_us + limit_ms * 1000
        reached = self.schedule.run_until(end_us, lambda: self.error is not None or holds())
        if self.error is not None:
            raise self.error
        return reached

    def close(self) -> None:
        """End every process where it is. Again is fine."""
        for machine in self.machines.values():
            machine.end_process()
