"""A `ClientSelector` without sockets: the client library talks to clusters in memory.

A test registers what answers at a host and port; every client that is made while the fixture
`memory_network` holds connects there. Frames are real ones, in the newest versions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from millstream.clock import SystemClock
from millstream.network.client.selector import Connected, Disconnected, Received
from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.protocol.frame import decode_request, encode_response
from millstream.protocol.messages import FetchRequest, FetchResponse
from millstream.protocol.messages.api_versions import (
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tests.unit.network.scripted_selector import api_versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.network.client.selector import PeriodicRequest, SelectorEvent
    from millstream.protocol.message import Message
    from millstream.protocol.messages import ApiVersionsResponse
    from millstream.types import ReadableBuffer


class Answering(Protocol):
    """What can be connected to."""

    def respond(self, request: Message) -> Message | None:
        """The answer; None to hang up."""
        ...


_clock = SystemClock()


def _now_s() -> float:
    return _clock.monotonic_ms() / 1000


PLACES: dict[tuple[str, int], Answering] = {}
"""Who answers where."""


class MemorySelector:
    """Connections to `PLACES`."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_woken = False
        self._events: list[tuple[float, SelectorEvent]] = []
        self._connections: dict[int, Answering] = {}

    def connect(self, connection_id: int, host: str, port: int) -> None:
        found = PLACES.get((host, port))
        if found is None:
            self._put(Disconnected(connection_id, "nobody is there"))
        else:
            self._connections[connection_id] = found
            self._put(Connected(connection_id))

    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None:
        header, message = decode_request(b"".join(parts)[4:])
        api = API_BY_KEY[header.request_api_key]
        if connection_id not in self._connections:
            return
        if api is ApiKey.API_VERSIONS:
            answer: Message | None = _versions()
        else:
            answer = self._connections[connection_id].respond(message)
        if answer is None:
            del self._connections[connection_id]
            self._put(Disconnected(connection_id, "it hung up"))
            return
        frame = encode_response(answer, header.request_api_version, header.correlation_id)
        self._put(Received(connection_id, frame[4:]), _wait_s(message, answer))

    def close(self, connection_id: int) -> None:
        self._connections.pop(connection_id, None)

    def repeat(self, connection_id: int, periodic_id: int, periodic: PeriodicRequest) -> None:
        raise AssertionError("no periodic requests here")

    def cancel(self, periodic_id: int) -> None:
        raise AssertionError("no periodic requests here")

    def poll(self, timeout_ms: int | None) -> list[SelectorEvent]:
        until = None if timeout_ms is None else _now_s() + timeout_ms / 1000
        with self._condition:
            while True:
                now = _now_s()
                due = [event for at, event in self._events if at <= now]
                if due or self._is_woken or (until is not None and now >= until):
                    self._is_woken = False
                    self._events = [each for each in self._events if each[0] > now]
                    return due
                times = [at for at, _ in self._events] + ([] if until is None else [until])
                self._condition.wait(min(times) - now if times else None)

    def wake(self) -> None:
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def shutdown(self) -> None:
        self._connections.clear()

    def _put(self, event: SelectorEvent, wait_s: float = 0.0) -> None:
        with self._condition:
            self._events.append((_now_s() + wait_s, event))
            self._condition.notify()


def _versions() -> ApiVersionsResponse:
    answer = api_versions()
    answer.supported_features = [
        SupportedFeatureKey(name="metadata.version", min_version=7, max_version=30),
        SupportedFeatureKey(name="share.version", min_version=0, max_version=1),
    ]
    answer.finalized_features = [
        FinalizedFeatureKey(name="metadata.version", min_version_level=30, max_version_level=30)
    ]
    return answer


def _wait_s(request: Message, answer: Message) -> float:
    """A broker that has no records waits for some."""
    if not isinstance(request, FetchRequest) or not isinstance(answer, FetchResponse):
        return 0.0
    is_empty = not any(
        each.records or each.error_code for topic in answer.responses for each in topic.partitions
    )
    return request.max_wait_ms / 1000 if is_empty else 0.0
