"""One run: a broker, clients of every kind, a time of trouble, and a time in which all must come
right again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.coordinator.broker import SimBroker
from tests.simulation.coordinator.model import Model
from tests.simulation.coordinator.network import Network
from tests.simulation.coordinator.producers import IdempotentProducer
from tests.simulation.coordinator.schedule import Schedule
from tests.simulation.coordinator.workers import (
    CommittedReader,
    Committer,
    Transformer,
    Worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TROUBLE_MS = 40_000
CALM_MS = 400_000
"""How long it may take at most until everything is done."""
TURN_ENDS = 0.3
"""How likely a turn of the loop ends with an event: it may see several before what it put off."""
_KINDS = (
    ["eager"],
    ["cooperative"],
    ["consumer"],
    ["eager", "consumer"],
    ["cooperative", "consumer"],
)
TRANSFORMERS, COMMITTERS = "transformers", "committers"


class World:
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._turns = Random(seed)
        self.schedule = Schedule()
        self.broker = SimBroker(self.schedule, self.random)
        self.network = Network(self.broker, self.schedule, self.random)
        self.model = Model()
        self.restlessness = self.random.choice([0.0, 0.02, 0.1])
        """How likely a member leaves after a piece of work, to join again."""
        self._kinds = self.random.choice(_KINDS)
        # A static member that misses a rebalance is not told. A cooperative one would go on.
        self._is_static = "cooperative" not in self._kinds and self.random.random() < 0.5
        self._deaths = self.random.choice([0, 2, 6])
        self._failovers = self.random.choice([0, 3, 10])
        self.workers: list[Worker] = []
        self._count = 0

    def begin_trace(self) -> None:
        """Keep the messages from now on."""
        self.network.trace = []

    @property
    def trace(self) -> list[str]:
        """The messages that were kept."""
        return self.network.trace or []

    def run(self) -> None:
        """Trouble, then calm; raises AssertionError if a promise is broken."""
        self._populate()
        for _ in range(self._deaths):
            self.schedule.after(self.random.randint(0, TROUBLE_MS), self._replace_one)
        for _ in range(self._failovers):
            at_ms = self.random.randint(0, TROUBLE_MS)
            self.schedule.after(at_ms, self.broker.fail_over_something)
        self._pass_until(self.schedule.now_ms + TROUBLE_MS, lambda: False)
        self.network.loss = 0.0
        self.restlessness = 0.0
        self.broker.heal()
        self._pass_until(self.schedule.now_ms + CALM_MS, self._is_done)
        assert self._is_done(), self._state()
        self.model.check_input(self.broker)
        self.model.check_output(self.broker, TRANSFORMERS)

    # Clients.

    def _populate(self) -> None:
        self.producers = [
            IdempotentProducer(self, f"p{number}", number % 4, self.random.randint(8, 16))
            for number in range(5)
        ]
        for _ in range(self.random.randint(2, 3)):
            self._add_transformer()
        for _ in range(self.random.randint(1, 3)):
            self._add_committer()
        self.reader = CommittedReader(self, "reader")

    def _kind(self) -> str:
        return self.random.choice(self._kinds)

    def _add_transformer(self, name: str = "") -> None:
        self._count += 1
        name = name or f"t{self._count}"
        is_new = self.random.random() < 0.75
        instance = name if self._is_static else None
        made = Transformer(self, name, TRANSFORMERS, self._kind(), instance, is_new=is_new)
        self.workers.append(made)

    def _add_committer(self, name: str = "") -> None:
        self._count += 1
        name = name or f"c{self._count}"
        instance = name if self._is_static else None
        self.workers.append(Committer(self, name, COMMITTERS, self._kind(), instance))

    def _replace_one(self) -> None:
        """A worker dies, and another one takes its place: with its name, perhaps."""
        dead = self.random.choice(self.workers)
        dead.die()
        self.workers.remove(dead)
        name = dead.name if self.random.random() < 0.7 else ""
        if isinstance(dead, Committer):
            self._add_committer(name)
        else:
            self._add_transformer(name)

    # Time.

    def _pass_until(self, end_ms: int, holds: Callable[[], bool]) -> None:
        events = 0
        while (next_ms := self.schedule.next_ms) is not None and next_ms <= end_ms:
            due_ms = self.broker.coordinators.next_deadline_ms()
            if due_ms is not None and due_ms <= next_ms:
                self.schedule.advance_to(due_ms)
                self.broker.coordinators.tick()
            else:
                self.schedule.step()
            if self._turns.random() < TURN_ENDS:
                self.broker.settle()
            self.model.check(self.broker, self.workers)
            events += 1
            if events % 50 == 0 and holds():
                break
        self.broker.settle()

    def _is_done(self) -> bool:
        """Whether every record is written, transformed and committed."""
        if any(each.left for each in self.producers):
            return False
        ends = [self.broker.partition("input", each).log.log_end_offset for each in range(4)]
        outputs = [self.broker.partition("output", each).log for each in range(2)]
        return all(
            self._committed(group, partition) == ends[partition]
            for group in (TRANSFORMERS, COMMITTERS)
            for partition in range(4)
        ) and all(log.last_stable_offset == log.log_end_offset for log in outputs)

    def _committed(self, group: str, partition: int) -> int:
        for shard in self.broker.group_shards():
            found = shard.offsets.committed.get(group, "input", partition)
            if found is not None:
                return found.offset
        return 0

    def _state(self) -> str:
        """For a run that does not end well."""
        lines = [f"{each.name} has {len(each.left)} left" for each in self.producers]
        for group in (TRANSFORMERS, COMMITTERS):
            offsets = [self._committed(group, each) for each in range(4)]
            lines.append(f"{group}: {offsets}")
        lines += [
            f"{each.name} {each.kind} {each.member_id} {each.generation} {each.positions}"
            for each in self.workers
        ]
        for shard in self.broker.group_shards():
            lines += [
                f"{each.group_id} {each.type} {each.state_name}" for each in shard.groups.values()
            ]
        return "\n".join(lines)


def run_seed(seed: int) -> None:
    """One run."""
    World(seed).run()
