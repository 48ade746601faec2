"""A request as its handler sees it, and what a handler may answer.

`KafkaChannel` makes a `Request` of every frame and calls the listener's `RequestHandler`, a plain
function on the loop's thread. It answers at once, or returns PENDING and calls `Request.complete`
later. Nothing here touches a socket, so a simulator can drive the same handlers.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from millstream.network.endpoint import SecurityProtocol
from millstream.network.server.connection_state import ConnectionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.protocol.api import ApiKey
    from millstream.protocol.notation import VersionRange
    from millstream.types import ReadableBuffer

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection nobody authenticated."""


class Outcome(Enum):
    """What a handler returns instead of a response."""

    PENDING = "PENDING"
    """The response comes later, through `Request.complete`."""
    NO_RESPONSE = "NO_RESPONSE"
    """The client expects none: Produce with acks=0."""
    CLOSE = "CLOSE"
    """Send what was answered before, then close the connection."""


PENDING: Final = Outcome.PENDING
NO_RESPONSE: Final = Outcome.NO_RESPONSE
CLOSE: Final = Outcome.CLOSE


class FileRegion(Protocol):
    """Bytes of a file that are sent without passing through this process where possible."""

    @property
    def position(self) -> int:
        """Where in the file they begin."""
        ...

    @property
    def length(self) -> int:
        """How many they are."""
        ...

    def fileno(self) -> int:
        """The descriptor for `os.sendfile`, or -1 if there is none and `read` must do."""
        ...

    def read(self) -> ReadableBuffer:
        """The bytes; fewer than `length` if the file was cut underneath."""
        ...


ResponsePart: TypeAlias = "ReadableBuffer | FileRegion"
Response: TypeAlias = "bytes | Sequence[ResponsePart]"
"""A whole frame, its size in front: as one `bytes`, or in parts where records lie between.

Whoever returns parts does not change them any more."""


class RequestHandler(Protocol):
    """The seam between the network and the broker: one plain function per listener.

    An exception out of it is a bug: it is logged and closes the connection.
    """

    def __call__(self, request: Request, /) -> Response | Outcome:
        """Handle one request. Its bytes are valid until the return, see `Request.retain`."""
        ...


class Connection:
    """What a handler may know of the connection a request came on, and ask of it.

    `KafkaChannel` is the real one; it overrides the last five methods.
    """

    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "client_software_name",
        "client_software_version",
        "connection_id",
        "listener_name",
        "local_address",
        "peer_host",
        "peer_port",
        "principal",
        "security_protocol",
        "state",
    )

    def __init__(
        self,
        listener_name: str,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        connection_id: int = 0,
    ) -> None:
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.connection_id = connection_id
        self.peer_host = ""
        self.peer_port = 0
        self.local_address: tuple[str, int] = ("", 0)
        self.principal: str = ANONYMOUS
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.state = ConnectionState()
        self._client_id: str | None = None
        self._client_id_bytes = b""

    @property
    def is_open(self) -> bool:
        """Whether answers can be sent still."""
        return self.state.is_open

    def client_id_of(self, raw: bytes) -> str:
        """The decoded client id. A connection's requests nearly always carry the same one."""
        if self._client_id is None or raw != self._client_id_bytes:
            self._client_id_bytes = raw
            self._client_id = raw.decode("utf-8", "replace")
        return self._client_id

    def answered(self, request: Request) -> None:
        """A pending request of this connection got its response."""
        raise NotImplementedError

    def mute_until(self, deadline_ms: int) -> None:
        """Read nothing more before a moment of the monotonic clock: how a quota throttles."""
        raise NotImplementedError

    def hold(self) -> None:
        """Handle no further request of this connection before `release`."""
        raise NotImplementedError

    def release(self) -> None:
        """Go on with the requests behind the one that made it hold."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close at once; responses that were not sent yet are dropped."""
        raise NotImplementedError


class Request:
    """One request frame: `buffer[start:end]` is header and body, `buffer[body:end]` the body.

    The buffer is writable, so that a batch can be patched in place, and it is shared: once the
    handler has returned, other requests are received into it. A handler that needs the bytes
    longer calls `retain` first.
    """

    __slots__ = (
        "_client_id_length",
        "api_key",
        "api_version",
        "body",
        "buffer",
        "connection",
        "correlation_id",
        "end",
        "is_retained",
        "received_ms",
        "response",
        "start",
    )

    def __init__(
        self,
        connection: Connection,
        buffer: memoryview,
        start: int,
        body: int,
        end: int,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id_length: int,
        received_ms: int,
    ) -> None:
        self.connection = connection
        self.buffer: memoryview = buffer
        self.start = start
        self.body = body
        self.end = end
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self._client_id_length = client_id_length
        self.received_ms = received_ms
        self.response: Response | Outcome = PENDING
        self.is_retained = False

    @property
    def frame(self) -> memoryview:
        """Header and body."""
        return self.buffer[self.start : self.end]

    @property
    def size(self) -> int:
        """How many bytes header and body have."""
        return self.end - self.start

    @property
    def client_id(self) -> str | None:
        """What the client calls itself; None if it sent null."""
        length = self._client_id_length
        if length < 0:
            return None
        begin = self.start + _CLIENT_ID_OFFSET
        return self.connection.client_id_of(bytes(self.buffer[begin : begin + length]))

    def retain(self) -> None:
        """Keep the bytes valid, without a copy, for as long as anything refers to them.

        To be called before the handler returns. They count against `queued.max.requests` and
        `queued.max.request.bytes` until the request is answered.
        """
        self.is_retained = True

    def hold(self) -> Callable[[], None]:
        """Retain the bytes, and let requests behind this one wait until the result is called."""
        self.retain()
        self.connection.hold()
        return self.connection.release

    def complete(self, response: Response | Outcome) -> None:
        """Answer a request for which the handler returned PENDING. On the loop's thread only.

        Responses leave in the order of the requests: this one waits for those before it. On a
        connection that is gone it does nothing.
        """
        if response is PENDING:
            raise ValueError("a request cannot be completed with PENDING")
        if self.response is not PENDING:
            raise ValueError(f"{self!r} was answered before")
        self.response = response
        self.connection.answered(self)

    def detach(self) -> None:
        """Forget the bytes, which now belong to the next read: they cannot be misread later."""
        if self._client_id_length > 0:
            raw = bytes(self.buffer[self.start + _CLIENT_ID_OFFSET :][: self._client_id_length])
            self.buffer = memoryview(bytes(_CLIENT_ID_OFFSET) + raw)
        else:
            self.buffer = _NO_BYTES
        self.start = 0
        self.body = self.end = len(self.buffer)

    def __repr__(self) -> str:
        return (
            f"Request(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id})"
        )


_CLIENT_ID_OFFSET: Final = 10
_NO_BYTES: Final = memoryview(b"")


def header_versions(apis: Mapping[ApiKey, VersionRange]) -> dict[int, int]:
    """The APIs a listener answers, as its channels look them up.

    Key: the four bytes of api key and version as one number. Value: the request header's version.
    """
    return {
        (api << 16) | version: api.request_header_version(version)
        for api, versions in apis.items()
        for version in range(versions.lowest, versions.highest + 1)
    }
