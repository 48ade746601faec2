"""Where the replicas of new partitions go.

Racks take turns from a random start, brokers take turns within their rack, brokers that are not
fenced come first, and the leader is never a fenced one. One `ReplicaPlacer` places the partitions
of one topic, so that consecutive partitions land on consecutive racks and brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import InvalidReplicationFactor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random


@dataclass(frozen=True, slots=True)
class UsableBroker:
    """A broker that may get replicas."""

    id: int
    rack: str | None
    is_fenced: bool


class _Ring:
    """Brokers of one rack and kind, in random order, the first one moving on by one each time."""

    def __init__(self, broker_ids: list[int], random: Random) -> None:
        self._ids = broker_ids
        random.shuffle(self._ids)
        self._start = 0
        self._taken = 0

    def begin_partition(self) -> None:
        if self._taken:
            self._start = (self._start + 1) % len(self._ids)
        self._taken = 0

    def next(self) -> int | None:
        if self._taken == len(self._ids):
            return None
        broker_id = self._ids[(self._start + self._taken) % len(self._ids)]
        self._taken += 1
        return broker_id


class ReplicaPlacer:
    """Places partition after partition."""

    def __init__(self, brokers: Iterable[UsableBroker], random: Random) -> None:
        unfenced: dict[str, list[int]] = {}
        fenced: dict[str, list[int]] = {}
        for broker in sorted(brokers, key=lambda each: each.id):
            group = fenced if broker.is_fenced else unfenced
            group.setdefault(broker.rack or "", []).append(broker.id)
        self._broker_count = sum(map(len, [*unfenced.values(), *fenced.values()]))
        self._has_unfenced = bool(unfenced)
        racks = sorted({*unfenced, *fenced})
        self._unfenced = [_Ring(unfenced.get(rack, []), random) for rack in racks]
        self._fenced = [_Ring(fenced.get(rack, []), random) for rack in racks]
        self._start = random.randrange(len(racks)) if racks else 0

    def place(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, leader first."""
        self._check(replication_factor)
        for ring in (*self._unfenced, *self._fenced):
            ring.begin_partition()
        racks = len(self._unfenced)
        replicas: list[int] = []
        turn = 0
        while len(replicas) < replication_factor:
            rack = (self._start + turn) % racks
            # Until there is a leader, racks with fenced brokers only are passed over.
            chosen = self._unfenced[rack].next()
            if chosen is None and replicas:
                chosen = self._fenced[rack].next()
            if chosen is not None:
                replicas.append(chosen)
            turn += 1
        self._start = (self._start + 1) % racks
        return replicas

    def _check(self, replication_factor: int) -> None:
        if replication_factor < 1:
            raise InvalidReplicationFactor(
                f"the replication factor is {replication_factor}; it must be 1 or more"
            )
        if not self._has_unfenced:
            raise InvalidReplicationFactor("no broker is registered and unfenced: none can lead")
        if replication_factor > self._broker_count:
            raise InvalidReplicationFactor(
                f"the replication factor is {replication_factor}, but only "
                f"{self._broker_count} brokers are registered"
            )
