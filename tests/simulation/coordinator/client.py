"""A simulated client: a script that sends requests, rests, and may be killed at any step."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tests.simulation.coordinator.network import Ask

if TYPE_CHECKING:
    from tests.simulation.coordinator.world import World


class Rest(NamedTuple):
    """Do nothing for a while."""

    ms: int


Step: TypeAlias = Ask | Rest | Sequence[Ask]
Script: TypeAlias = Generator[Step, Any, Any]
"""What a client does: each request is answered, with None if nobody knows what became of it."""


class Client:
    """Runs a script."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.random = world.random
        self.name = name
        self.is_alive = True
        self._script: Script = self.script()
        world.schedule.after(self.random.randint(0, 2_000), lambda: self._resume(None))

    def script(self) -> Script:
        """What it does; each kind of client has its own."""
        raise NotImplementedError

    def die(self) -> None:
        """Stop, wherever it is."""
        self.is_alive = False

    def _resume(self, value: Any) -> None:
        if not self.is_alive:
            return
        try:
            step = self._script.send(value)
        except StopIteration:
            self.is_alive = False
            return
        if isinstance(step, Rest):
            self.world.schedule.after(step.ms, lambda: self._resume(None))
        elif isinstance(step, Ask):
            self.world.network.ask([step], self.name, lambda answers: self._resume(answers[0]))
        else:
            self.world.network.ask(step, self.name, self._resume)
