"""A `ClientSelector` in virtual time: what is sent arrives late, or the connection breaks."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, NamedTuple

from millstream.network.client.selector import Connected, Disconnected, Received
from millstream.protocol.frame import decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.clock import ManualClock
    from millstream.network.client.selector import PeriodicRequest, SelectorEvent
    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer
    from tests.simulation.producer.cluster import SimCluster


class Delayed(NamedTuple):
    """An answer that a broker gives after a while."""

    answer: Message
    wait_ms: int


class SimSelector:
    """Connections of one client to a `SimCluster`."""

    def __init__(self, cluster: SimCluster, clock: ManualClock, random: Random) -> None:
        self._cluster = cluster
        self._clock = clock
        self._random = random
        self._nodes: dict[int, int] = {}
        self._free_at_ms: dict[int, int] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._events: list[SelectorEvent] = []
        self._is_woken = False
        self.delay_ms_max = 5
        self.break_chance = 0.0
        self.late_ms_max = 0
        """How long a request may lie at a broker after its connection broke: it is done all the
        same, perhaps after what came over the next connection."""

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._queue, (time_ms, next(self._order), action))

    def connect(self, connection_id: int, host: str, port: int) -> None:
        """Stands after a while, unless the broker is down."""
        node = int(host.removeprefix("broker-"))
        self._nodes[connection_id] = node

        def finish() -> None:
            if node in self._cluster.down:
                self._lose(connection_id)
            elif connection_id in self._nodes:
                self._events.append(Connected(connection_id))

        self.at(self._clock.monotonic_ms() + self._delay(), finish)

    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None:
        """In order, late; now and then the connection breaks before or after the broker acts."""
        frame = b"".join(parts)[4:]
        fate = self._random.random() / self.break_chance if self.break_chance else 2.0
        arrival_ms = self._in_order(connection_id)

        def arrive() -> None:
            if connection_id not in self._nodes:
                return
            node = self._nodes[connection_id]
            if node in self._cluster.down or fate < 0.5:
                self._lose(connection_id)
                if self.late_ms_max and fate < 0.25:
                    self._do_late(node, frame)
                return
            header, request = decode_request(frame)
            version = header.request_api_version
            answer = self._cluster.handle(node, request, version)
            if fate < 1:
                self._lose(connection_id)
                return
            wait_ms = 0
            if isinstance(answer, Delayed):
                answer, wait_ms = answer
            encoded = encode_response(answer, version, header.correlation_id)[4:]
            back_ms = self._in_order(connection_id, wait_ms)
            self.at(back_ms, lambda: self._receive(connection_id, encoded))

        self.at(arrival_ms, arrive)

    def _do_late(self, node: int, frame: bytes) -> None:
        def act() -> None:
            if node not in self._cluster.down:
                header, request = decode_request(frame)
                self._cluster.handle(node, request, header.request_api_version)

        self.at(self._clock.monotonic_ms() + self._random.randint(0, self.late_ms_max), act)

    def close(self, connection_id: int) -> None:
        """No event follows."""
        self._nodes.pop(connection_id, None)

    def break_connections(self, node: int) -> None:
        """A broker has gone down."""
        for connection_id in [each for each, at in self._nodes.items() if at == node]:
            self._lose(connection_id)

    def repeat(self, connection_id: int, periodic_id: int, periodic: PeriodicRequest) -> None:
        """Producers repeat nothing."""
        raise NotImplementedError

    def cancel(self, periodic_id: int) -> None:
        """Producers repeat nothing."""
        raise NotImplementedError

    def poll(self, timeout_ms: int | None) -> list[SelectorEvent]:
        """Let time pass until something happens, or the time is over."""
        now_ms = self._clock.monotonic_ms()
        until_ms = None if timeout_ms is None else now_ms + timeout_ms
        while not self._events and not self._is_woken:
            next_ms = self._queue[0][0] if self._queue else None
            if next_ms is None and until_ms is None:
                break
            if next_ms is None or (until_ms is not None and next_ms > until_ms):
                assert until_ms is not None
                self._clock.advance(max(0, until_ms - self._clock.monotonic_ms()))
                break
            self._clock.advance(max(0, next_ms - self._clock.monotonic_ms()))
            heapq.heappop(self._queue)[2]()
        self._is_woken = False
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """The next poll returns at once."""
        self._is_woken = True

    def shutdown(self) -> None:
        """Nothing is left to close."""
        self._nodes.clear()

    def _delay(self) -> int:
        return self._random.randint(0, self.delay_ms_max)

    def _in_order(self, connection_id: int, wait_ms: int = 0) -> int:
        soon_ms = self._clock.monotonic_ms() + wait_ms + self._delay()
        at_ms = max(soon_ms, self._free_at_ms.get(connection_id, 0))
        self._free_at_ms[connection_id] = at_ms
        return at_ms

    def _receive(self, connection_id: int, frame: bytes) -> None:
        if connection_id in self._nodes:
            self._events.append(Received(connection_id, frame))

    def _lose(self, connection_id: int) -> None:
        if self._nodes.pop(connection_id, None) is not None:
            self._events.append(Disconnected(connection_id, "broken by the simulation"))
