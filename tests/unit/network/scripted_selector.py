"""A `ClientSelector` that does what a test says: no socket, no waiting, no thread."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millstream.network.client.selector import (
    Connected,
    Disconnected,
    PeriodicRequest,
    Received,
    Repeated,
    SelectorEvent,
)
from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.protocol.frame import decode_request, encode_response
from millstream.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.protocol.message import Message
    from millstream.protocol.notation import VersionRange
    from millstream.types import ReadableBuffer


class SentRequest(NamedTuple):
    """A request that the client has sent."""

    api: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    message: Message


@dataclass
class Connection:
    """One connection, as the test sees it."""

    connection_id: int
    host: str
    port: int
    requests: deque[SentRequest] = field(default_factory=deque)
    """Sent and not yet answered by the test."""
    is_closed: bool = False
    """Whether the client has hung up."""

    @property
    def apis(self) -> list[str]:
        return [each.api.api_name for each in self.requests]


class ScriptedSelector:
    """Connections by the order in which the client asked for them."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.periodic: dict[int, tuple[int, PeriodicRequest]] = {}
        self.events: list[SelectorEvent] = []
        self.wakes = 0
        self.is_shut_down = False
        self.polled_timeouts: list[int | None] = []

    # What the client calls.

    def connect(self, connection_id: int, host: str, port: int) -> None:
        self.connections.append(Connection(connection_id, host, port))

    def send(self, connection_id: int, parts: Sequence[ReadableBuffer]) -> None:
        frame = b"".join(parts)
        size = int.from_bytes(frame[:4], "big")
        assert size == len(frame) - 4
        header, message = decode_request(frame[4:])
        api = API_BY_KEY[header.request_api_key]
        sent = SentRequest(
            api, header.request_api_version, header.correlation_id, header.client_id, message
        )
        self._find(connection_id).requests.append(sent)

    def close(self, connection_id: int) -> None:
        self._find(connection_id).is_closed = True

    def repeat(self, connection_id: int, periodic_id: int, periodic: PeriodicRequest) -> None:
        self.periodic[periodic_id] = (connection_id, periodic)

    def cancel(self, periodic_id: int) -> None:
        self.periodic.pop(periodic_id, None)

    def poll(self, timeout_ms: int | None) -> list[SelectorEvent]:
        self.polled_timeouts.append(timeout_ms)
        return self.take()

    def wake(self) -> None:
        self.wakes += 1

    def shutdown(self) -> None:
        self.is_shut_down = True

    # What the test calls.

    @property
    def last(self) -> Connection:
        return self.connections[-1]

    def take(self) -> list[SelectorEvent]:
        """The events so far, for `NetworkClient.handle`."""
        events, self.events = self.events, []
        return events

    def accept(self, connection: Connection) -> None:
        """Let a connection stand; the handshake follows with `tell_versions`."""
        self.events.append(Connected(connection.connection_id))

    def tell_versions(
        self, connection: Connection, versions: Mapping[ApiKey, VersionRange] | None = None
    ) -> None:
        """Answer ApiVersions: everything that is released, or as given."""
        self.answer(connection, api_versions(versions))

    def answer(self, connection: Connection, message: Message, *, index: int = 0) -> None:
        """Answer a request that was sent, the oldest unless told otherwise."""
        request = connection.requests[index]
        del connection.requests[index]
        frame = encode_response(message, request.version, request.correlation_id)[4:]
        self.receive(connection, frame)

    def receive(self, connection: Connection, frame: bytes) -> None:
        self.events.append(Received(connection.connection_id, frame))

    def drop(self, connection: Connection, reason: str = "gone") -> None:
        self.events.append(Disconnected(connection.connection_id, reason))

    def fire(self, periodic_id: int, sent_ms: int, times: int = 0) -> int:
        """A periodic request is sent for the `times`th time; gives its correlation id."""
        connection_id, periodic = self.periodic[periodic_id]
        correlation_id = periodic.correlation_id + times
        self.events.append(Repeated(connection_id, periodic_id, correlation_id, sent_ms))
        return correlation_id

    def _find(self, connection_id: int) -> Connection:
        return next(each for each in self.connections if each.connection_id == connection_id)


def api_versions(
    versions: Mapping[ApiKey, VersionRange] | None = None, *, error_code: int = 0
) -> ApiVersionsResponse:
    """What a broker says it speaks."""
    if versions is None:
        versions = {api: api.released for api in ApiKey if api.released.highest >= 0}
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersion(api_key=api, min_version=each.lowest, max_version=each.highest)
            for api, each in versions.items()
        ],
    )
