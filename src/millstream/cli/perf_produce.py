"""The load of `millstream perf produce`: batches on their way to every leader at once.

`perf_run` turns it until it is done. It paces itself, keeps each connection's requests within their
limit and measures every answer. It neither prints nor retries: a load that hides a fault measures
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.faults import CommandFailed
from millstream.cli.perf_meter import Meter
from millstream.cli.perf_pipe import answered
from millstream.cli.topic_io import Acks, check_produced, produce_request
from millstream.errors import MessageTooLarge, RecordListTooLarge
from millstream.protocol.messages import MetadataRequest, MetadataResponse, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.cli.cluster_view import TopicView
    from millstream.cli.perf_payload import Batch, Payload
    from millstream.cli.perf_pipe import Pipe

_TURN_S_MAX: Final = 0.1
"""How long a turn waits, so that Ctrl-C and the progress are not kept waiting."""


class Posted(NamedTuple):
    """A batch on its way."""

    batch: Batch
    due_ns: int


class Departure(NamedTuple):
    """When the next batch is due, and its records."""

    due_ns: int
    records: int


@dataclass(frozen=True, slots=True)
class Timetable:
    """When records are due: at once, or so many in a second."""

    records_per_batch: int
    records_max: int | None = None
    duration_ns: int | None = None
    records_per_second: float | None = None
    linger_ns: int = 0
    """How long a batch waits to be filled, where there is a rate."""

    def next(self, sent: int, started_ns: int, now_ns: int) -> Departure | None:
        """The batch after `sent` records; None when there is none to come."""
        records = self.records_per_batch
        if self.records_max is not None:
            records = min(records, self.records_max - sent)
        due_ns = now_ns
        if self.records_per_second is not None:
            # A batch leaves when it is full, or when its first record has waited long enough.
            interval_ns = 1e9 / self.records_per_second
            records = min(records, max(1, int(self.linger_ns / interval_ns)))
            due_ns = started_ns + int((sent + records) * interval_ns)
        if records <= 0 or (
            self.duration_ns is not None and due_ns - started_ns > self.duration_ns
        ):
            return None
        return Departure(due_ns, records)

    def progress(self, records: int, elapsed_ns: int) -> float:
        """How much of it is done, from 0 to 1."""
        shares = [0.0]
        if self.records_max is not None:
            shares.append(records / self.records_max)
        if self.duration_ns is not None:
            shares.append(elapsed_ns / self.duration_ns)
        return min(1.0, max(shares))


class ProduceLoad:
    """Sends what is due wherever there is room, and takes the answers as they come."""

    def __init__(
        self,
        topic: TopicView,
        pipes: Mapping[int, Sequence[Pipe[Posted]]],
        payload: Payload,
        timetable: Timetable,
        *,
        acks: Acks,
        in_flight_max: int,
        timeout_ms: int,
        ticks: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """`pipes` are those to each partition's leader."""
        self.meter = Meter()
        self._topic = topic
        self._pipes_of = pipes
        self._pipes = list(dict.fromkeys(pipe for lane in pipes.values() for pipe in lane))
        self._partitions = cycle(pipes)
        self._payload = payload
        self._timetable = timetable
        self._acks = acks
        self._in_flight_max = in_flight_max
        self._timeout_ms = timeout_ms
        self._ticks = ticks
        self._wall_ms = wall_ms
        self._started_ns = ticks()
        self._sent = 0
        self._is_ending = False

    def turn(self) -> bool:
        """Send a batch, or wait for an answer, a bit; False when everything is answered."""
        now_ns = self._ticks()
        departure = None
        if not self._is_ending:
            departure = self._timetable.next(self._sent, self._started_ns, now_ns)
        if departure is None:
            return self._turn_out(now_ns)
        wait_s = (departure.due_ns - now_ns) / 1e9
        if wait_s <= 0:
            wait_s = 0 if self._depart(departure, now_ns) else _TURN_S_MAX
        self._take_answers(min(wait_s, _TURN_S_MAX), now_ns)
        return True

    def end(self) -> None:
        """Send no more; the answers that are still to come are waited for."""
        self._is_ending = True

    def progress(self) -> float:
        """How much is done, from 0 to 1."""
        return self._timetable.progress(self.meter.records, self._ticks() - self._started_ns)

    def _turn_out(self, now_ns: int) -> bool:
        if any(pipe.in_flight for pipe in self._pipes):
            self._take_answers(_TURN_S_MAX, now_ns)
            return True
        if self._acks is Acks.NONE:
            # Requests are served in order: when this one is answered, the batches were read.
            for pipe in self._pipes:
                pipe.call(MetadataRequest(topics=[]), MetadataResponse, self._timeout_ms)
        return False

    def _depart(self, departure: Departure, now_ns: int) -> bool:
        """Send a batch to the next partition whose leader has room; False if none has."""
        for partition in islice(self._partitions, len(self._pipes_of)):
            pipe = min(self._pipes_of[partition], key=lambda each: each.in_flight)
            if pipe.in_flight < self._in_flight_max:
                self._send(pipe, partition, departure, now_ns)
                return True
        return False

    def _send(self, pipe: Pipe[Posted], partition: int, departure: Departure, now_ns: int) -> None:
        batch = self._payload.batch(departure.records, self._wall_ms())
        request = produce_request(self._topic, partition, batch.data, self._acks, self._timeout_ms)
        self._sent += batch.records
        if self._acks is Acks.NONE:
            pipe.send(request, self._timeout_ms)
            self.meter.add(batch.records, batch.value_bytes, len(batch.data))
        else:
            pipe.post(request, Posted(batch, departure.due_ns), now_ns)

    def _take_answers(self, wait_s: float, now_ns: int) -> None:
        for pipe in answered(self._pipes, wait_s, now_ns):
            (batch, due_ns), response = pipe.take(ProduceResponse)
            latency_ns = self._ticks() - due_ns
            try:
                check_produced(response)
            except (MessageTooLarge, RecordListTooLarge) as error:
                raise CommandFailed(
                    f"a batch of {len(batch.data):,} bytes is too large for {self._topic.name}: "
                    "give a smaller --batch-size or --size, or raise the topic's max.message.bytes"
                ) from error
            self.meter.add(batch.records, batch.value_bytes, len(batch.data))
            self.meter.time(latency_ns, batch.records)
