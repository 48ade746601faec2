"""Requests to brokers over connections that come and go: the client's half of the wire.

`NetworkClient` is a state machine over a `ClientSelector`: it is told the time and the selector's
events by its driver (`client.runtime`, or a broker that talks to others) and never waits. It
connects when a request needs it, backs off exponentially, asks each broker for its versions,
bounds the requests in flight, expires them, honours throttling and closes what is idle. It knows
nothing of topics, and never sends a request twice. Bootstrap addresses are brokers with ids below 0
until the cluster has told who its members are.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import (
    BrokerUnreachable,
    ClientClosed,
    MillstreamError,
    ProtocolError,
    UnsupportedVersion,
)
from millstream.network.client.broker_link import (
    NEVER_MS,
    BrokerLink,
    Feature,
    InFlight,
    LinkState,
    OnDone,
    OnFrame,
    RequestSource,
    TakeFrame,
    VersionedRequest,
    Waiting,
)
from millstream.network.client.config import NetworkClientConfig
from millstream.network.client.handshake import (
    FIRST_VERSION,
    AskAgain,
    read_versions,
    versions_request,
)
from millstream.network.client.link_reports import LinkReports
from millstream.network.client.periodic_requests import PeriodicRequests
from millstream.network.client.request_framing import RequestFraming
from millstream.network.client.selector import (
    Connected,
    Disconnected,
    Dispatched,
    Received,
    Repeated,
)
from millstream.protocol.api import API_BY_KEY, ApiKey, negotiate_api
from millstream.protocol.frame import SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from millstream.network.client.selector import ClientSelector, SelectorEvent
    from millstream.protocol.message import Message
    from millstream.protocol.notation import VersionRange
    from millstream.types import ReadableBuffer

__all__ = [
    "Feature",
    "NetworkClient",
    "NetworkClientConfig",
    "OnDone",
    "OnFrame",
    "RequestSource",
    "SentRequest",
    "VersionedRequest",
]

_NOT_KAFKA: Final = "does not speak Kafka; is it a Kafka listener without TLS?"

_read_correlation_id = struct.Struct(">i").unpack_from


class SentRequest(NamedTuple):
    """A request that the selector took and sent by itself, and who waits for its answer."""

    api: ApiKey
    version: int
    timeout_ms: int
    on_done: OnDone
    take: TakeFrame
    """Takes the frame of the usual answer, which is not worth decoding."""


class NetworkClient:
    """Connections to the brokers of one cluster. One thread drives it."""

    def __init__(
        self, selector: ClientSelector, config: NetworkClientConfig, random: Random
    ) -> None:
        self._random = random
        self._reports = LinkReports()
        self._links: dict[int, BrokerLink] = {}
        self._retired: list[BrokerLink] = []
        """Links that get no new request; they end when what is under way is done."""
        self.on_lost: Callable[[], object] = lambda: None
        """Told of each connection that failed or was ended by the other side, even if no request
        was under way: another broker may do its work by now."""
        self._selector = selector
        self._config = config
        self._reconnect, self._setup = config.reconnect_backoff(), config.setup_timeout()
        self._by_connection: dict[int, BrokerLink] = {}
        self._next_connection_id = 1
        self._framing = RequestFraming(config.client_id)
        self._periodic = PeriodicRequests(selector, self._framing)
        self.find_sent: Callable[[int, int], SentRequest | None] = lambda *_: None
        """Asked what the selector has sent by itself, by the correlation id and the time; None if
        no answer comes."""

    # The brokers: what is known of each, and whom to ask.

    def set_address(self, node_id: int, host: str, port: int, *, is_member: bool = True) -> None:
        """Name a broker, or where it has moved to.

        Requests for any broker never go to one that is not a member. After a move requests under
        way may end on the old connection; those that wait go to the new address.
        """
        old = self._links.get(node_id)
        if old is not None and (old.host, old.port) == (host, port):
            return
        link = BrokerLink(node_id, host, port, is_member=is_member)
        if old is not None:
            old.waiting, link.waiting = link.waiting, old.waiting
            self._retired.append(old)
        self._links[node_id] = link

    def forget(self, node_id: int) -> None:
        """Take a broker off the list; what is under way may end, new requests fail."""
        link = self._links.pop(node_id, None)
        if link is not None:
            self._retired.append(link)

    def knows(self, node_id: int) -> bool:
        """Whether there is an address for a broker."""
        return node_id in self._links

    def members(self) -> list[int]:
        """The brokers that requests for any broker may go to."""
        return [each.node_id for each in self._links.values() if each.is_member]

    def is_connected(self, node_id: int) -> bool:
        """Whether a connection stands and its versions are known."""
        link = self._links.get(node_id)
        return link is not None and link.state is LinkState.READY

    def is_avoided(self, node_id: int, now_ms: int) -> bool:
        """Whether the last connection failed, and it is too early for the next."""
        link = self._links.get(node_id)
        return (
            link is not None and link.state is LinkState.DISCONNECTED and now_ms < link.reconnect_ms
        )

    def sending_connection(self, node_id: int, now_ms: int) -> int:
        """The connection on which requests may be sent; 0 if there is none for now."""
        link = self._links.get(node_id)
        if link is None or link.state is not LinkState.READY or link.is_throttled(now_ms):
            return 0
        return link.connection_id

    def connection_delay_ms(self, node_id: int, now_ms: int) -> int:
        """How long until it makes sense to try again; 0 if a request may be sent now."""
        link = self._links.get(node_id)
        if link is None:
            return 0
        match link.state:
            case LinkState.DISCONNECTED:
                return max(0, link.reconnect_ms - now_ms)
            case LinkState.READY:
                return max(0, link.throttled_until_ms - now_ms)
            case _:
                return max(0, link.setup_deadline_ms - now_ms)

    def version_of(self, node_id: int, api: ApiKey) -> int | None:
        """The version that both sides speak; None while unknown or if there is none."""
        link = self._links.get(node_id)
        try:
            return None if link is None else negotiate_api(api, link.versions.get(int(api)))
        except UnsupportedVersion:
            return None

    def offers(self, node_id: int, api: ApiKey) -> bool:
        """Whether the broker has said that it knows an API."""
        link = self._links.get(node_id)
        return link is not None and int(api) in link.versions

    def versions_of(self, node_id: int) -> Mapping[int, VersionRange]:
        """The versions of each API that a node has told; empty while it has not."""
        link = self._links.get(node_id)
        return {} if link is None else link.versions

    def features_of(self, node_id: int) -> tuple[Feature, ...]:
        """The features of the cluster, as the broker said when it was connected to."""
        link = self._links.get(node_id)
        return () if link is None else link.features

    def in_flight(self, node_id: int) -> int:
        """How many requests to a broker are not answered yet, or wait to be sent."""
        link = self._links.get(node_id)
        return 0 if link is None else link.load

    def throttle(self, node_id: int, throttle_time_ms: int, now_ms: int) -> None:
        """Leave a broker alone for as long as it asked for."""
        link = self._links.get(node_id)
        if link is not None and throttle_time_ms > 0:
            link.throttled_until_ms = max(link.throttled_until_ms, now_ms + throttle_time_ms)

    def _note_lost(self, link: BrokerLink, reason: str) -> None:
        link.last_failure = reason
        self.on_lost()

    def failures(self) -> list[str]:
        """Why the last connections of members failed or ended, of those that are not connected.

        Any thread may ask, while the one that owns the links adds and removes some.
        """
        return [
            f"{link.name}: {link.last_failure}"
            for link in list(self._links.values())
            if link.is_member and link.last_failure and link.state is not LinkState.READY
        ]

    def failure_counts(self) -> dict[int, int]:
        """How often in a row each member could not be connected to."""
        return {
            link.node_id: link.reconnect_failures for link in self._links.values() if link.is_member
        }

    def is_cut_off(self) -> bool:
        """Whether every member has refused a new connection after it had failed before."""
        return all(
            link.state is LinkState.DISCONNECTED and link.reconnect_failures > 1
            for link in self._links.values()
            if link.is_member
        )

    def least_loaded(self, now_ms: int) -> int | None:
        """The broker to ask what any can answer; None if all have to be left alone for now."""
        candidates = [
            link
            for link in self._links.values()
            if link.is_member
            and (link.state is not LinkState.DISCONNECTED or now_ms >= link.reconnect_ms)
        ]
        if not candidates:
            return None
        first = self._random.randrange(len(candidates))
        in_turn = candidates[first:] + candidates[:first]
        return min(in_turn, key=lambda link: _reluctance(link, now_ms)).node_id

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        """Whether a request would be sent at once; begins to connect if that is what is missing."""
        link = self._links.get(node_id)
        if link is None:
            return False
        if link.state is LinkState.DISCONNECTED and now_ms >= link.reconnect_ms:
            self._connect(link, now_ms)
        return self._has_room(link, now_ms)

    # Requests.

    def send(
        self,
        node_id: int,
        request: RequestSource,
        now_ms: int,
        on_done: OnDone,
        *,
        timeout_ms: int | None = None,
        version: int | None = None,
        expects_response: bool = True,
    ) -> None:
        """Send a request, connecting first if need be; `on_done` is called exactly once.

        Without `version` the newest that both sides speak is used. A request that expects no
        response is done, with an empty one, as soon as it is handed to the connection.
        """
        api = request.api if isinstance(request, VersionedRequest) else API_BY_KEY[request.KEY]
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        waiting = Waiting(
            api, version, request, now_ms + limit_ms, limit_ms, on_done, None, expects_response
        )
        self._submit(node_id, waiting, now_ms)

    def send_frame(
        self,
        node_id: int,
        api: ApiKey,
        version: int,
        body_parts: Sequence[ReadableBuffer],
        now_ms: int,
        on_frame: OnFrame,
        *,
        timeout_ms: int | None = None,
        expects_response: bool = True,
    ) -> None:
        """Send a body that is encoded already and get the response's frame, for hot paths.

        Who decodes the frame reports its throttle time with `throttle`. A request that expects
        no response is done with an empty frame.
        """
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        waiting = Waiting(
            api, version, body_parts, now_ms + limit_ms, limit_ms, None, on_frame, expects_response
        )
        self._submit(node_id, waiting, now_ms)

    def request_head(self, api: ApiKey, version: int, body: bytes) -> bytes:
        """How a request begins, without its size: a header with no correlation id yet, `body`."""
        return b"".join(self._framing.framed(api, version, 0, [body]))[SIZE_BYTES:]

    def repeat(
        self,
        node_id: int,
        request: Message,
        first_ms: int,
        every_ms: int,
        until_ms: int,
        on_response: OnDone,
    ) -> int:
        """Have the selector send a request regularly, on time whatever this process is doing.

        `on_response` gets every response. It ends with the connection: then it gets one
        error. Raises BrokerUnreachable unless the broker is connected. Returns its id.
        """
        link = self._links.get(node_id)
        if link is None or link.state is not LinkState.READY:
            raise BrokerUnreachable(f"broker {node_id} is not connected")
        return self._periodic.place(link, request, (first_ms, every_ms, until_ms), on_response)

    def cancel(self, periodic_id: int) -> None:
        """End a periodic request; its callback is not called any more."""
        self._periodic.cancel(periodic_id)

    # What the driver calls.

    def handle(self, events: Sequence[SelectorEvent], now_ms: int) -> bool:
        """Take what the selector has seen. Events of connections that were given up are stale.

        Tells whether that was all: nobody else has to act on any of it.
        """
        is_all = True
        for event in events:
            link = self._by_connection.get(event.connection_id)
            if type(event) is Dispatched:
                is_all &= self._on_dispatched(link, event, now_ms)
            elif type(event) is not Received or link is None:
                is_all = False
                self._on_change(link, event, now_ms)
            else:
                is_all &= self._on_frame(link, event.frame, now_ms)
        return is_all

    def _on_dispatched(self, link: BrokerLink | None, event: Dispatched, now_ms: int) -> bool:
        """Expect an answer to what the selector has sent; False if there is none to come."""
        request = self.find_sent(event.correlation_id, now_ms)
        if request is None:
            return False
        api, version, timeout_ms, on_done, take = request
        if link is None:
            on_done(BrokerUnreachable("the connection was lost", was_sent=True), now_ms)
            return False
        link.used_ms = now_ms
        deadline_ms = event.sent_ms + timeout_ms
        sent = InFlight(api, version, deadline_ms, timeout_ms, on_done, None, take=take)
        link.expect(event.correlation_id, sent)
        return True

    def _on_change(self, link: BrokerLink | None, event: SelectorEvent, now_ms: int) -> None:
        if link is None:
            return
        if type(event) is Repeated:
            self._periodic.note_sent(link, event, self._config.request_timeout_ms)
        elif type(event) is Connected:
            link.move_to(LinkState.HANDSHAKING)
            self._ask_versions(link, FIRST_VERSION, now_ms)
        elif type(event) is Disconnected:
            self._on_disconnected(link, event.reason, now_ms)

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called next at the latest."""
        self.expire(now_ms)
        return self.next_due_ms(now_ms)

    def expire(self, now_ms: int) -> None:
        """Give up what took too long, close what is idle, send what had to wait."""
        for retired in list(self._retired):
            self._fail_waiting(retired, now_ms)
            self._close_if_done(retired)
        for link in (*self._links.values(), *self._retired):
            if now_ms >= link.look_ms:
                self._expire(link, now_ms)
                if link.waiting:
                    self._serve_waiting(link, now_ms)
                link.look_again(now_ms, self._config.idle_ms)

    def next_due_ms(self, now_ms: int) -> int | None:
        """When the next deadline is, or a little earlier; None without any."""
        due_ms = min([each.look_ms for each in self._links.values()], default=NEVER_MS)
        if self._retired:
            due_ms = min(due_ms, *[each.look_ms for each in self._retired])
        return None if due_ms == NEVER_MS else due_ms

    def close(self, now_ms: int, error: ClientClosed) -> None:
        """Give everything up: requests under way fail with this error."""
        links = [*self._links.values(), *self._retired]
        self._links.clear()  # First, so that who hears of it cannot send again.
        self._retired.clear()
        for link in links:
            if link.state is not LinkState.DISCONNECTED:
                self._selector.close(link.connection_id)
                self._disconnect(link)
            self._fail_all(link, error, now_ms)

    # Connections.

    def _has_room(self, link: BrokerLink, now_ms: int) -> bool:
        return (
            link.state is LinkState.READY
            and len(link.in_flight) - link.selector_in_flight < self._config.max_in_flight
            and not link.is_throttled(now_ms)
        )

    def _connect(self, link: BrokerLink, now_ms: int) -> None:
        link.move_to(LinkState.CONNECTING)
        link.connection_id = self._next_connection_id
        self._next_connection_id += 1
        self._by_connection[link.connection_id] = link
        setup_ms = self._setup.after(link.reconnect_failures + 1, self._random)
        link.setup_deadline_ms = now_ms + setup_ms
        link.look_by(link.setup_deadline_ms)
        link.used_ms = now_ms
        self._selector.connect(link.connection_id, link.host, link.port)

    def _ask_versions(self, link: BrokerLink, version: int, now_ms: int) -> None:
        link.api_versions_version = version
        body = versions_request().encode_parts(version)
        correlation_id = self._framing.next_id()
        parts = self._framing.framed(ApiKey.API_VERSIONS, version, correlation_id, body)
        self._selector.send(link.connection_id, parts)

    def _on_versions(self, link: BrokerLink, frame: ReadableBuffer, now_ms: int) -> None:
        try:
            spoken = read_versions(frame, link.api_versions_version)
        except MillstreamError as error:
            reason = f"it {_NOT_KAFKA}" if isinstance(error, ProtocolError) else str(error)
            self._hang_up(link, reason, now_ms)
            return
        if isinstance(spoken, AskAgain):
            self._ask_versions(link, spoken.version, now_ms)
            return
        link.become_ready(spoken.versions, spoken.features)
        self._reports.on_connected(link)
        link.used_ms = now_ms
        link.look_again(now_ms, self._config.idle_ms)
        self.throttle(link.node_id, spoken.throttle_time_ms, now_ms)
        self._serve_waiting(link, now_ms)

    def _hang_up(self, link: BrokerLink, reason: str, now_ms: int) -> None:
        self._reports.on_hung_up(link, reason)
        self._selector.close(link.connection_id)
        self._on_disconnected(link, reason, now_ms)

    def _on_disconnected(self, link: BrokerLink, reason: str, now_ms: int) -> None:
        """A connection ended that we wanted: wait before the next try, fail what was under way."""
        link.reconnect_failures += 1
        self._reports.on_ended(link, reason, now_ms)
        link.reconnect_ms = now_ms + self._reconnect.after(link.reconnect_failures, self._random)
        self._note_lost(link, reason)
        self._disconnect(link)
        self._fail_all(link, None, now_ms)
        self._close_if_done(link)

    def _disconnect(self, link: BrokerLink) -> None:
        self._by_connection.pop(link.connection_id, None)
        link.move_to(LinkState.DISCONNECTED)

    def _fail_all(self, link: BrokerLink, error: MillstreamError | None, now_ms: int) -> None:
        """End all requests of a link, periodic ones too; without `error`: it is unreachable."""
        in_flight, link.in_flight = link.in_flight, {}
        waiting, ended = list(link.waiting), self._periodic.take_all(link)
        link.waiting.clear()
        problem = f"{link.name}: {link.last_failure}"
        for each in in_flight.values():
            if not each.periodic_id:
                each.fail(error or BrokerUnreachable(problem, was_sent=True), now_ms)
        for periodic in ended:
            periodic.on_response(error or BrokerUnreachable(problem, was_sent=True), now_ms)
        for waited in waiting:
            waited.fail(error or BrokerUnreachable(problem), now_ms)

    def _close_if_done(self, link: BrokerLink) -> None:
        """Hang up on a broker that was forgotten, once nothing is under way."""
        if link not in self._retired or link.load or link.periodic:
            return
        self._retired.remove(link)
        if link.state is not LinkState.DISCONNECTED:
            self._selector.close(link.connection_id)
            self._disconnect(link)

    def _fail_waiting(self, link: BrokerLink, now_ms: int) -> None:
        """Requests that were not sent when their broker was forgotten."""
        waiting = list(link.waiting)
        link.waiting.clear()
        for each in waiting:
            each.fail(BrokerUnreachable(f"{link.name} is not in the cluster any more"), now_ms)

    # Requests under way.

    def _submit(self, node_id: int, waiting: Waiting, now_ms: int) -> None:
        link = self._links.get(node_id)
        if link is None:
            waiting.fail(BrokerUnreachable(f"broker {node_id} is not known"), now_ms)
        elif not link.waiting and self._has_room(link, now_ms):
            self._send_now(link, waiting, now_ms)
        else:
            link.waiting.append(waiting)
            self.is_ready(node_id, now_ms)  # Connects.
            link.look_again(now_ms, self._config.idle_ms)

    def _serve_waiting(self, link: BrokerLink, now_ms: int) -> None:
        if link.state is LinkState.DISCONNECTED and now_ms >= link.reconnect_ms:
            self._connect(link, now_ms)
        while link.waiting and self._has_room(link, now_ms):
            self._send_now(link, link.waiting.popleft(), now_ms)

    def _send_now(self, link: BrokerLink, waiting: Waiting, now_ms: int) -> None:
        try:
            version = waiting.version_for(link)
            parts = waiting.encode(version)
        except MillstreamError as error:
            waiting.fail(error, now_ms)
            return
        correlation_id = self._framing.next_id()
        framed = self._framing.framed(waiting.api, version, correlation_id, parts)
        sent = InFlight(
            waiting.api,
            version,
            # The broker's time counts from now on; waiting to be sent had the same limit.
            now_ms + waiting.timeout_ms,
            waiting.timeout_ms,
            waiting.on_done,
            waiting.on_frame,
        )
        link.used_ms = now_ms
        if waiting.expects_response:
            link.expect(correlation_id, sent)
        self._selector.send(link.connection_id, framed)
        if not waiting.expects_response:
            sent.finish_unanswered(now_ms)

    def _on_frame(self, link: BrokerLink, frame: ReadableBuffer, now_ms: int) -> bool:
        """Answer who waits for it; whether that was all there is to do."""
        if link.state is LinkState.HANDSHAKING:
            self._on_versions(link, frame, now_ms)
            return False
        answered = None
        if len(frame) >= 4:
            answered = link.in_flight.pop(_read_correlation_id(frame)[0], None)
        if answered is None:
            self._hang_up(link, "it answered a request that was not sent", now_ms)
            return False
        link.used_ms = now_ms
        taken = None if answered.take is None else answered.take(frame, now_ms)
        if taken is None and (answered.periodic_id == 0 or answered.periodic_id in link.periodic):
            self._finish(link, answered, frame, now_ms)
        if link.waiting:
            self._serve_waiting(link, now_ms)
        elif self._retired:
            self._close_if_done(link)
        return bool(taken) and not link.waiting

    def _finish(
        self, link: BrokerLink, answered: InFlight, frame: ReadableBuffer, now_ms: int
    ) -> None:
        message, position = None, 0
        try:
            if answered.on_frame is None:
                message = answered.decode(frame)
            else:
                position = answered.body_position(frame)
        except ProtocolError as error:
            answered.fail(error, now_ms)
            self._hang_up(link, f"its answer could not be read: {error}", now_ms)
            return
        if answered.on_frame is not None:
            answered.on_frame(frame, position, now_ms)
        elif answered.on_done is not None and message is not None:
            self.throttle(link.node_id, getattr(message, "throttle_time_ms", 0), now_ms)
            answered.on_done(message, now_ms)

    def _expire(self, link: BrokerLink, now_ms: int) -> None:
        if link.state in (LinkState.CONNECTING, LinkState.HANDSHAKING):
            if now_ms >= link.setup_deadline_ms:
                self._hang_up(link, "no connection in time; check the address", now_ms)
        elif link.in_flight:
            late = next((e for e in link.in_flight.values() if now_ms >= e.deadline_ms), None)
            if late is not None:
                seconds = late.timeout_ms / 1000
                self._hang_up(link, f"no answer to {late.api.api_name} in {seconds:g} s", now_ms)
        elif link.is_idle(now_ms, self._config.idle_ms):
            self._selector.close(link.connection_id)
            self._disconnect(link)
        for each in link.take_late(now_ms):
            why = link.last_failure or "it has not answered what was sent before"
            problem = f"{link.name}: {each.api.api_name} could not be sent in time: {why}"
            each.fail(BrokerUnreachable(problem), now_ms)


def _reluctance(link: BrokerLink, now_ms: int) -> tuple[int, int]:
    if link.state is LinkState.READY and not link.is_throttled(now_ms):
        return 0, link.load
    # One that is being connected to is worth more than one that failed or was never tried.
    return (2, link.reconnect_failures) if link.state is LinkState.DISCONNECTED else (1, link.load)
