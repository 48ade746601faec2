"""What a client knows of its connection to one broker: state, versions, requests under way.

`NetworkClient` owns one link per node and alone changes it. Pure data and small rules; it has
never seen a socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.errors import MillstreamError, UnsupportedVersion
from millstream.protocol.api import negotiate_api
from millstream.protocol.frame import decode_response, decode_response_header
from millstream.protocol.message import Message
from millstream.types import ReadableBuffer

if TYPE_CHECKING:
    from millstream.protocol.api import ApiKey
    from millstream.protocol.notation import VersionRange

OnDone: TypeAlias = Callable[[Message | MillstreamError, int], None]
"""Told the response or one error, and the time; called exactly once."""

OnFrame: TypeAlias = Callable[[ReadableBuffer | MillstreamError, int, int], None]
"""Told the response's frame (or one error), where its body begins, and the time."""

TakeFrame: TypeAlias = Callable[[ReadableBuffer, int], bool | None]
"""Told the response's frame, and the time. None if it is to be decoded, else whether that was all:
nobody else has to act on it."""


NEVER_MS: Final = 1 << 62


class LinkState(Enum):
    """How far a connection is."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    HANDSHAKING = "handshaking"
    """Connected; the broker has not yet told its versions."""
    READY = "ready"


TRANSITIONS: Final[Mapping[LinkState, frozenset[LinkState]]] = {
    LinkState.DISCONNECTED: frozenset({LinkState.CONNECTING}),
    LinkState.CONNECTING: frozenset({LinkState.HANDSHAKING, LinkState.DISCONNECTED}),
    LinkState.HANDSHAKING: frozenset({LinkState.READY, LinkState.DISCONNECTED}),
    LinkState.READY: frozenset({LinkState.DISCONNECTED}),
}


class VersionedRequest(NamedTuple):
    """A request that looks different in different versions: built when the version is known."""

    api: ApiKey
    build: Callable[[int], Message]
    highest: int | None = None
    """No newer version than this, if given."""


RequestSource: TypeAlias = Message | VersionedRequest


class Feature(NamedTuple):
    """A feature of a cluster: what it is at, and what the broker could do."""

    name: str
    level: int
    """0 if it is not in use."""
    min_supported: int
    max_supported: int


class Periodic(NamedTuple):
    """A periodic request: what it asks, and who hears of the answers."""

    api: ApiKey
    version: int
    on_response: OnDone


class InFlight(NamedTuple):
    """A request that was sent and not answered. It has one of the two callbacks."""

    api: ApiKey
    version: int
    deadline_ms: int
    timeout_ms: int
    on_done: OnDone | None
    on_frame: OnFrame | None
    periodic_id: int = 0
    """The periodic request that it belongs to; 0 for an ordinary request."""
    take: TakeFrame | None = None
    """Of a request that the selector sent by itself, within its own limit of requests in flight:
    asked to take the frame before it is decoded."""

    def fail(self, error: MillstreamError, now_ms: int) -> None:
        """End it."""
        _fail(self.on_done, self.on_frame, error, now_ms)

    def finish_unanswered(self, now_ms: int) -> None:
        """End it, if no response is expected."""
        if self.on_frame is not None:
            self.on_frame(b"", 0, now_ms)
        elif self.on_done is not None:
            self.on_done(self.api.response(), now_ms)

    def body_position(self, frame: ReadableBuffer) -> int:
        """Where the body begins in the response's frame."""
        return decode_response_header(frame, self.api, self.version)[1]

    def decode(self, frame: ReadableBuffer) -> Message:
        """The response."""
        return decode_response(frame, self.api, self.version)[1]


class Waiting(NamedTuple):
    """A request that waits for the connection, or for room among those in flight."""

    api: ApiKey
    version: int | None
    body: RequestSource | Sequence[ReadableBuffer]
    """To be encoded, or encoded already."""
    deadline_ms: int
    timeout_ms: int
    on_done: OnDone | None
    on_frame: OnFrame | None
    expects_response: bool

    def fail(self, error: MillstreamError, now_ms: int) -> None:
        """End it."""
        _fail(self.on_done, self.on_frame, error, now_ms)

    def version_for(self, link: BrokerLink) -> int:
        """The version to send it in; UnsupportedVersion if the broker has none that fits."""
        theirs = link.versions.get(int(self.api))
        if self.version is None:
            version = negotiate_api(self.api, theirs)
            highest = self.body.highest if isinstance(self.body, VersionedRequest) else None
            return version if highest is None else min(version, highest)
        if theirs is None or not theirs.covers(self.version):
            offer = "does not offer it" if theirs is None else f"offers versions {theirs}"
            raise UnsupportedVersion(
                f"{self.api.api_name} version {self.version}: {link.name} {offer}"
            )
        return self.version

    def encode(self, version: int) -> Sequence[ReadableBuffer]:
        """The body in a version."""
        if isinstance(self.body, VersionedRequest):
            return self.body.build(version).encode_parts(version)
        return self.body.encode_parts(version) if isinstance(self.body, Message) else self.body


def _fail(
    on_done: OnDone | None, on_frame: OnFrame | None, error: MillstreamError, now_ms: int
) -> None:
    if on_frame is not None:
        on_frame(error, 0, now_ms)
    elif on_done is not None:
        on_done(error, now_ms)


class BrokerLink:
    """One broker's address, and the connection to it."""

    __slots__ = (
        "api_versions_version",
        "connection_id",
        "features",
        "host",
        "in_flight",
        "is_member",
        "last_failure",
        "look_ms",
        "node_id",
        "periodic",
        "port",
        "reconnect_failures",
        "reconnect_ms",
        "setup_deadline_ms",
        "state",
        "throttled_until_ms",
        "used_ms",
        "versions",
        "waiting",
    )

    def __init__(self, node_id: int, host: str, port: int, *, is_member: bool) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.is_member = is_member
        """Whether requests that any broker can answer may be sent here."""
        self.state = LinkState.DISCONNECTED
        self.connection_id = 0
        self.versions: dict[int, VersionRange] = {}
        """By API key, as the broker said last; kept while the connection is down."""
        self.features: tuple[Feature, ...] = ()
        self.api_versions_version = -1
        """The version of the ApiVersions request that is under way."""
        self.in_flight: dict[int, InFlight] = {}
        """By correlation id, in the order they were sent."""
        self.waiting: deque[Waiting] = deque()
        self.periodic: dict[int, Periodic] = {}
        """Periodic requests by id."""
        self.reconnect_failures = 0
        self.reconnect_ms = 0
        """Not before this time."""
        self.setup_deadline_ms = 0
        self.throttled_until_ms = 0
        self.used_ms = 0
        self.last_failure = ""
        self.look_ms = 0
        """Nothing is due before this time: a lower bound of `due_ms` that costs nothing to ask."""

    @property
    def address(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """For messages: which broker, and where."""
        return self.address if self.node_id < 0 else f"broker {self.node_id} ({self.address})"

    @property
    def load(self) -> int:
        """How many requests are sent or wait to be."""
        return len(self.in_flight) + len(self.waiting)

    @property
    def selector_in_flight(self) -> int:
        """How many of the requests in flight the selector sent by itself."""
        return sum(
            1 for each in self.in_flight.values() if each.periodic_id or each.take is not None
        )

    def move_to(self, state: LinkState) -> None:
        """Change the state; only legal ways."""
        assert state in TRANSITIONS[self.state]
        self.state = state

    def become_ready(
        self, versions: dict[int, VersionRange], features: tuple[Feature, ...]
    ) -> None:
        """The connection stands, and the broker has said what it speaks."""
        self.versions = versions
        self.features = features
        self.move_to(LinkState.READY)
        self.reconnect_failures = 0
        self.last_failure = ""

    def is_throttled(self, now_ms: int) -> bool:
        """Whether the broker asked for silence until later."""
        return now_ms < self.throttled_until_ms

    def take_late(self, now_ms: int) -> list[Waiting]:
        """The requests that have waited for too long, which wait no longer."""
        late = [each for each in self.waiting if now_ms >= each.deadline_ms]
        if late:
            self.waiting = deque(each for each in self.waiting if now_ms < each.deadline_ms)
        return late

    def is_idle(self, now_ms: int, idle_ms: int) -> bool:
        """Whether it stands and nobody has used it for `idle_ms`; never if that is below 0."""
        return (
            self.state is LinkState.READY
            and 0 <= idle_ms <= now_ms - self.used_ms
            and not self.load
            and not self.periodic
        )

    def expect(self, correlation_id: int, sent: InFlight) -> None:
        """An answer is to come."""
        self.in_flight[correlation_id] = sent
        self.look_by(sent.deadline_ms)

    def look_by(self, ms: int) -> None:
        """Something new is due at that time."""
        self.look_ms = min(self.look_ms, ms)

    def look_again(self, now_ms: int, idle_ms: int) -> None:
        """Find out anew when something is due."""
        due_ms = self.due_ms(now_ms, idle_ms)
        self.look_ms = NEVER_MS if due_ms is None else due_ms

    def due_ms(self, now_ms: int, idle_ms: int) -> int | None:
        """When it has to be looked at again."""
        times = [each.deadline_ms for each in self.waiting]
        match self.state:
            case LinkState.CONNECTING | LinkState.HANDSHAKING:
                times.append(self.setup_deadline_ms)
            case LinkState.DISCONNECTED:
                if self.waiting:
                    times.append(self.reconnect_ms)
            case LinkState.READY:
                times += [each.deadline_ms for each in self.in_flight.values()]
                if self.is_throttled(now_ms) and self.waiting:
                    times.append(self.throttled_until_ms)
                if not self.in_flight and not self.periodic and idle_ms >= 0:
                    times.append(self.used_ms + idle_ms)
        return min(times, default=None)
