"""The load of `millstream perf consume`: records through `Consumer`, as an application reads them.

`perf_run` turns it until it is done. Each consumer reads the partitions it was given, from where it
was told on, and fetches ahead by itself. Nothing is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from millstream.cli.perf_meter import Meter
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.client.consumer.consumer import Consumer

_TURN_S_MAX: Final = 0.1
_RECORDS_PER_POLL: Final = 5_000
_value_of: Final = attrgetter("value")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How to read, and when to stop."""

    records_max: int | None = None
    duration_ns: int | None = None
    is_columnar: bool = False
    """Whether columns are taken, and no objects made for records."""
    is_timed: bool = False
    """Whether the age of records is measured."""


@dataclass(slots=True)
class Position:
    """Where reading a partition is, and where it shall end."""

    offset: int
    end: int | None = None
    """None to go on for ever."""

    @property
    def is_open(self) -> bool:
        """Whether there is more to read."""
        return self.end is None or self.offset < self.end

    @property
    def left(self) -> int:
        """How many offsets are still to be read, as far as there is an end."""
        return 0 if self.end is None else max(0, self.end - self.offset)


class ConsumeLoad:
    """Reads through any number of consumers."""

    def __init__(
        self,
        assigned: Mapping[Consumer, Mapping[TopicPartition, Position]],
        plan: ReadPlan,
        *,
        ticks: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """`assigned` are the partitions that each consumer reads."""
        self.meter = Meter()
        self._open = {
            consumer: {place: at for place, at in positions.items() if at.is_open}
            for consumer, positions in assigned.items()
        }
        self._positions = [at for positions in assigned.values() for at in positions.values()]
        self._plan = plan
        self._ticks = ticks
        self._wall_ms = wall_ms
        self._is_ending = False
        self._todo = sum(at.left for at in self._positions)
        for consumer, positions in self._open.items():
            consumer.assign(positions)
            for place, at in positions.items():
                consumer.seek(place, at.offset)
        self._started_ns = ticks()

    def turn(self) -> bool:
        """Take what is there, or wait for it, a bit; False when there is nothing more to read."""
        if self._is_ending or self._has_enough(self._ticks()):
            return False
        reading = [consumer for consumer, positions in self._open.items() if positions]
        for consumer in reading:
            # Who has to wait for several must not wait for the first.
            self._take(consumer, _TURN_S_MAX / len(reading))
        return bool(reading)

    def end(self) -> None:
        """Read no more; what is on its way is not waited for."""
        self._is_ending = True

    def progress(self) -> float | None:
        """How much is done, from 0 to 1; None if there is no end."""
        plan = self._plan
        shares = []
        if self._todo:
            shares.append(1 - sum(at.left for at in self._positions) / self._todo)
        if plan.records_max is not None:
            shares.append(self.meter.records / plan.records_max)
        if plan.duration_ns is not None:
            shares.append((self._ticks() - self._started_ns) / plan.duration_ns)
        return min(1.0, max(shares)) if shares else None

    def _has_enough(self, now_ns: int) -> bool:
        plan = self._plan
        if plan.records_max is not None and self.meter.records >= plan.records_max:
            return True
        return plan.duration_ns is not None and now_ns - self._started_ns >= plan.duration_ns

    def _take(self, consumer: Consumer, wait_s: float) -> None:
        if self._plan.is_columnar:
            columns = consumer.poll_arrow(wait_s, columns=["value"])
            if columns is not None:
                self.meter.add(len(columns), 0)
        else:
            self._take_records(consumer, wait_s)
        self._advance(consumer)

    def _take_records(self, consumer: Consumer, wait_s: float) -> None:
        wanted = _RECORDS_PER_POLL
        if self._plan.records_max is not None:
            wanted = min(wanted, self._plan.records_max - self.meter.records)
        records = consumer.poll(wait_s, max_records=max(1, wanted))
        if not records:
            return
        value_bytes = sum(map(len, filter(None, map(_value_of, records))))
        self.meter.add(len(records), value_bytes)
        if self._plan.is_timed:
            age_ms = max(0, self._wall_ms() - records[-1].timestamp)
            self.meter.time(age_ms * 1_000_000, len(records))

    def _advance(self, consumer: Consumer) -> None:
        """Note how far it is; partitions that are at their end are read no more."""
        positions = self._open[consumer]
        for place, at in list(positions.items()):
            if at.end is not None:
                at.offset = consumer.position(place)
                if not at.is_open:
                    del positions[place]
                    consumer.pause([place])
