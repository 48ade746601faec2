"""The load of `millstream perf produce`: records through `Producer`, as an application sends them.

`perf_run` turns it until it is done. It paces itself and measures when records are acknowledged;
batches, connections and retries are the producer's.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.faults import CommandFailed
from millstream.cli.perf_meter import Meter
from millstream.errors import (
    DeliveryFailed,
    MessageTooLarge,
    MillstreamError,
    OperationTimeout,
    RecordListTooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.cli.perf_payload import Chunk, Payload
    from millstream.client.producer.delivery import Delivery
    from millstream.client.producer.producer import Producer

_TURN_S_MAX: Final = 0.1
"""How long a turn waits, so that Ctrl-C and the progress are not kept waiting."""


class Acknowledged(NamedTuple):
    """A chunk whose last record has arrived, or has not."""

    records: int
    value_bytes: int
    latency_ns: int
    error: BaseException | None


class Departure(NamedTuple):
    """When the next chunk is due, and its records."""

    due_ns: int
    records: int


@dataclass(frozen=True, slots=True)
class Timetable:
    """When records are due: at once, or so many in a second."""

    records_per_chunk: int
    records_max: int | None = None
    duration_ns: int | None = None
    records_per_second: float | None = None
    linger_ns: int = 0
    """How long a chunk waits to be filled, where there is a rate."""

    def next(self, sent: int, started_ns: int, now_ns: int) -> Departure | None:
        """The chunk after `sent` records; None when there is none to come."""
        records = self.records_per_chunk
        if self.records_max is not None:
            records = min(records, self.records_max - sent)
        due_ns = now_ns
        if self.records_per_second is not None:
            # A chunk leaves when it is full, or when its first record has waited long enough.
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
    """Sends what is due, to producers in turn, and counts what is acknowledged."""

    def __init__(
        self,
        topic: str,
        producers: Sequence[Producer],
        payload: Payload,
        timetable: Timetable,
        *,
        partitions: Sequence[int] | None,
        is_acknowledged: bool,
        ticks: Callable[[], int],
    ) -> None:
        """`partitions` are taken in turn; without them the producer chooses."""
        self.meter = Meter()
        self._topic = topic
        self._producers = producers
        self._turns = cycle(producers)
        self._partitions = None if partitions is None else cycle(partitions)
        self._payload = payload
        self._timetable = timetable
        self._is_acknowledged = is_acknowledged
        self._ticks = ticks
        self._started_ns = ticks()
        self._sent = 0
        self._is_ending = False
        # Filled by the producers' threads.
        self._acknowledged: deque[Acknowledged] = deque()

    def turn(self) -> bool:
        """Send a chunk, or wait for one to be due, a bit; False when everything has arrived."""
        self._count_acknowledged()
        now_ns = self._ticks()
        departure = None
        if not self._is_ending:
            departure = self._timetable.next(self._sent, self._started_ns, now_ns)
        if departure is None:
            return self._turn_out()
        wait_s = (departure.due_ns - now_ns) / 1e9
        if wait_s > 0:
            time.sleep(min(wait_s, _TURN_S_MAX))
        else:
            self._send(departure)
        return True

    def end(self) -> None:
        """Send no more; what was sent is waited for."""
        self._is_ending = True

    def progress(self) -> float:
        """How much is done, from 0 to 1."""
        return self._timetable.progress(self.meter.records, self._ticks() - self._started_ns)

    def _turn_out(self) -> bool:
        for producer in self._producers:
            try:
                producer.flush(_TURN_S_MAX)
            except OperationTimeout:
                return True
            except DeliveryFailed as failed:
                raise self._explained(failed.errors[0]) from failed
        self._count_acknowledged()
        return False

    def _send(self, departure: Departure) -> None:
        chunk = self._payload.chunk(departure.records)
        self._sent += len(chunk.values)
        try:
            delivery = self._send_all(next(self._turns), chunk)
        except (MessageTooLarge, RecordListTooLarge) as error:
            raise self._explained(error) from error
        due_ns = departure.due_ns

        def on_done(_: Delivery) -> None:
            latency_ns = self._ticks() - due_ns
            told = Acknowledged(
                len(chunk.values), chunk.value_bytes, latency_ns, delivery.exception()
            )
            self._acknowledged.append(told)

        delivery.add_done_callback(on_done)

    def _send_all(self, producer: Producer, chunk: Chunk) -> Delivery:
        """Send the values; the handle of the last one."""
        send, topic = producer.send, self._topic
        *values, last = chunk.values
        if self._partitions is None:
            for value in values:
                send(topic, value)
            return send(topic, last)
        partition = next(self._partitions)
        for value in values:
            send(topic, value, partition=partition)
        return send(topic, last, partition=partition)

    def _count_acknowledged(self) -> None:
        while self._acknowledged:
            records, value_bytes, latency_ns, error = self._acknowledged.popleft()
            if isinstance(error, MillstreamError):
                raise self._explained(error)
            self.meter.add(records, value_bytes)
            if self._is_acknowledged:
                self.meter.time(latency_ns, records)

    def _explained(self, error: MillstreamError) -> MillstreamError:
        if not isinstance(error, MessageTooLarge | RecordListTooLarge):
            return error
        return CommandFailed(
            f"a record or a batch is too large for {self._topic}: give a smaller --size or "
            "--batch-size, or raise the topic's max.message.bytes"
        )
