"""What goes wrong among simulated brokers, drawn from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.clock import ManualClock
    from tests.simulation.clients.brokers import SimBrokers
    from tests.simulation.producer.network import SimSelector


class Faults:
    """Leaders and coordinators move, brokers restart, sessions are lost, time jumps."""

    def __init__(
        self,
        brokers: SimBrokers,
        clock: ManualClock,
        random: Random,
        selectors: Callable[[], Sequence[SimSelector]],
    ) -> None:
        """`selectors` gives those of all clients that are there now."""
        self._brokers = brokers
        self._clock = clock
        self._random = random
        self._selectors = selectors

    def happen(self) -> None:
        """Perhaps something; mostly nothing."""
        random, brokers = self._random, self._brokers
        node = random.choice(brokers.brokers)
        chance = random.random()
        if chance < 0.04:
            brokers.move_leader(random.randrange(len(brokers.logs)), node)
        elif chance < 0.06:
            self._stop(node)
        elif chance < 0.14 and brokers.down:
            brokers.down.pop()
        elif chance < 0.16:
            brokers.reading.lose_sessions(node)
        elif chance < 0.18:
            brokers.move_coordinator(node)
        elif chance < 0.20:
            # Other connections to the same broker go on: what they carry is reordered.
            random.choice(self._selectors()).break_connections(node)
        elif chance < 0.21:
            self._clock.advance(random.choice([10, 200, 3_000]))

    def _stop(self, node: int) -> None:
        self._brokers.down.add(node)
        self._brokers.reading.lose_sessions(node)
        for selector in self._selectors():
            selector.break_connections(node)

    def end(self) -> None:
        """Every broker is there, and answers."""
        self._brokers.down.clear()
        for selector in self._selectors():
            selector.break_chance = 0.0
