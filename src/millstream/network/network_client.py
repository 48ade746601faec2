"""Requests to brokers over connections that come and go: the client's half of the wire.

`NetworkClient` is a state machine over a `ClientSelector`: it is told the time and the selector's
events by its driver (`client.runtime`, or a broker that talks to others) and never waits. It
connects when a request needs it, backs off exponentially, asks each broker for its versions,
bounds the requests in flight, expires them, honours throttling and closes what is idle. It knows
nothing of topics, and never sends a request twice.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    BrokerUnreachable,
    ClientClosed,
    MillstreamError,
    ProtocolError,
    UnsupportedVersion,
)
from millstream.network.backoff import Backoff
from millstream.network.broker_directory import BrokerDirectory
from millstream.network.broker_link import (
    BrokerLink,
    Feature,
    InFlight,
    LinkState,
    OnDone,
    OnFrame,
    Order,
    RequestSource,
    VersionedRequest,
    Waiting,
)
from millstream.network.client_selector import (
    Connected,
    Disconnected,
    Received,
    Repeated,
    StandingOrder,
)
from millstream.network.handshake import FIRST_VERSION, AskAgain, read_versions, versions_request
from millstream.protocol.api import API_BY_KEY, ApiKey, negotiate_api
from millstream.protocol.primitives import encode_string

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from millstream.network.client_selector import ClientSelector, SelectorEvent
    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer

__all__ = [
    "Feature",
    "NetworkClient",
    "NetworkClientConfig",
    "OnDone",
    "OnFrame",
    "RequestSource",
    "VersionedRequest",
]

FIRST_ORDER_CORRELATION_ID: Final = 1 << 30
"""Standing orders count from here, other requests from 1: they never meet."""
_ORDER_CORRELATION_IDS: Final = 1 << 16
"""How many ids a standing order has to itself until they are used again."""
_NO_TAGS: Final = b"\0"
_NOT_KAFKA: Final = "does not speak Kafka; is it a Kafka listener without TLS?"

_request_head = struct.Struct(">ihhi").pack
_read_correlation_id = struct.Struct(">i").unpack_from

_CANCELLED: Final = Order(ApiKey.HEARTBEAT, 0, lambda _response, _now_ms: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkClientConfig:
    """How patient a client is with its brokers; the defaults are Kafka's."""

    client_id: str = ""
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    connection_setup_timeout_ms: int = 10_000
    connection_setup_timeout_max_ms: int = 30_000
    max_in_flight: int = 5
    idle_ms: int = 540_000
    """Close a connection that was not used for so long; -1: never."""


class NetworkClient(BrokerDirectory):
    """Connections to the brokers of one cluster. One thread drives it."""

    def __init__(
        self, selector: ClientSelector, config: NetworkClientConfig, random: Random
    ) -> None:
        super().__init__(random)
        self._selector = selector
        self._config = config
        self._reconnect = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._setup = Backoff(
            config.connection_setup_timeout_ms, config.connection_setup_timeout_max_ms
        )
        self._by_connection: dict[int, BrokerLink] = {}
        self._next_connection_id = 1
        self._next_correlation_id = 1
        self._next_order_id = 1
        self._order_links: dict[int, BrokerLink] = {}
        client_id = encode_string(config.client_id)
        self._client_ids = (client_id, client_id + _NO_TAGS)

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
            source=request,
            body_parts=None,
            api=api,
            version=version,
            deadline_ms=now_ms + limit_ms,
            timeout_ms=limit_ms,
            on_done=on_done,
            on_frame=None,
            expects_response=expects_response,
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
            source=None,
            body_parts=body_parts,
            api=api,
            version=version,
            deadline_ms=now_ms + limit_ms,
            timeout_ms=limit_ms,
            on_done=None,
            on_frame=on_frame,
            expects_response=expects_response,
        )
        self._submit(node_id, waiting, now_ms)

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

        `on_response` gets every response. The order ends with the connection: then it gets one
        error. Raises BrokerUnreachable unless the broker is connected. Returns the order's id.
        """
        link = self._links.get(node_id)
        if link is None or link.state is not LinkState.READY:
            raise BrokerUnreachable(f"broker {node_id} is not connected")
        api = API_BY_KEY[request.KEY]
        version = negotiate_api(api, link.versions.get(int(api)))
        order_id = self._next_order_id
        self._next_order_id += 1
        block = order_id % ((1 << 31) // _ORDER_CORRELATION_IDS // 2)
        correlation_id = FIRST_ORDER_CORRELATION_ID + block * _ORDER_CORRELATION_IDS
        parts = self._framed(api, version, correlation_id, request.encode_parts(version))
        link.orders[order_id] = Order(api, version, on_response)
        self._order_links[order_id] = link
        order = StandingOrder(b"".join(parts), first_ms, every_ms, until_ms, correlation_id)
        self._selector.repeat(link.connection_id, order_id, order)
        return order_id

    def cancel(self, order_id: int) -> None:
        """End a standing order; its callback is not called any more."""
        link = self._order_links.pop(order_id, None)
        if link is not None:
            link.orders.pop(order_id, None)
            self._selector.cancel(order_id)

    # What the driver calls.

    def handle(self, events: Sequence[SelectorEvent], now_ms: int) -> None:
        """Take what the selector has seen. Events of connections that were given up are stale."""
        for event in events:
            link = self._by_connection.get(event.connection_id)
            if link is None:
                continue
            if type(event) is Received:
                self._on_frame(link, event.frame, now_ms)
            elif type(event) is Repeated:
                self._on_repeated(link, event)
            elif type(event) is Connected:
                link.move_to(LinkState.HANDSHAKING)
                self._ask_versions(link, FIRST_VERSION, now_ms)
            elif type(event) is Disconnected:
                self._on_disconnected(link, event.reason, now_ms)

    def poll(self, now_ms: int) -> int | None:
        """Expire what took too long, close what is idle, send what waited; the next deadline."""
        next_ms: int | None = None
        for retired in list(self._retired):
            self._close_if_done(retired)
        for link in (*self._links.values(), *self._retired):
            self._expire(link, now_ms)
            if link.waiting:
                self._serve_waiting(link, now_ms)
            due_ms = link.due_ms(now_ms, self._config.idle_ms)
            if due_ms is not None and (next_ms is None or due_ms < next_ms):
                next_ms = due_ms
        return next_ms

    def close(self, now_ms: int) -> None:
        """Give everything up: requests under way fail with ClientClosed."""
        for link in (*self._links.values(), *self._retired):
            if link.state is not LinkState.DISCONNECTED:
                self._selector.close(link.connection_id)
                self._disconnect(link)
            self._fail_all(link, ClientClosed("the client was closed"), now_ms)
        self._links.clear()
        self._retired.clear()

    # Connections.

    def _has_room(self, link: BrokerLink, now_ms: int) -> bool:
        return (
            link.state is LinkState.READY
            and len(link.in_flight) - link.orders_in_flight < self._config.max_in_flight
            and not link.is_throttled(now_ms)
        )

    def _connect(self, link: BrokerLink, now_ms: int) -> None:
        link.move_to(LinkState.CONNECTING)
        link.connection_id = self._next_connection_id
        self._next_connection_id += 1
        self._by_connection[link.connection_id] = link
        setup_ms = self._setup.after(link.reconnect_failures + 1, self._random)
        link.setup_deadline_ms = now_ms + setup_ms
        link.used_ms = now_ms
        self._selector.connect(link.connection_id, link.host, link.port)

    def _ask_versions(self, link: BrokerLink, version: int, now_ms: int) -> None:
        link.api_versions_version = version
        body = versions_request().encode_parts(version)
        correlation_id = self._take_correlation_id()
        parts = self._framed(ApiKey.API_VERSIONS, version, correlation_id, body)
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
        link.versions = spoken.versions
        link.features = spoken.features
        link.move_to(LinkState.READY)
        link.reconnect_failures = 0
        link.last_failure = ""
        link.used_ms = now_ms
        self.throttle(link.node_id, spoken.throttle_time_ms, now_ms)
        self._serve_waiting(link, now_ms)

    def _hang_up(self, link: BrokerLink, reason: str, now_ms: int) -> None:
        self._selector.close(link.connection_id)
        self._on_disconnected(link, reason, now_ms)

    def _on_disconnected(self, link: BrokerLink, reason: str, now_ms: int) -> None:
        """A connection ended that we wanted: wait before the next try, fail what was under way."""
        link.reconnect_failures += 1
        link.reconnect_ms = now_ms + self._reconnect.after(link.reconnect_failures, self._random)
        link.last_failure = reason
        self._disconnect(link)
        self._fail_all(link, None, now_ms)
        self._close_if_done(link)

    def _disconnect(self, link: BrokerLink) -> None:
        self._by_connection.pop(link.connection_id, None)
        link.move_to(LinkState.DISCONNECTED)
        link.throttled_until_ms = 0

    def _fail_all(self, link: BrokerLink, error: MillstreamError | None, now_ms: int) -> None:
        """End every request and order of a link; without `error`, because it is unreachable."""
        in_flight, link.in_flight = link.in_flight, {}
        waiting, orders = list(link.waiting), link.orders
        link.waiting.clear()
        link.orders = {}
        for order_id in orders:
            self._order_links.pop(order_id, None)
        problem = f"{link.name}: {link.last_failure}"
        for each in in_flight.values():
            if not each.order_id:
                each.fail(error or BrokerUnreachable(problem, was_sent=True), now_ms)
        for order in orders.values():
            order.on_response(error or BrokerUnreachable(problem, was_sent=True), now_ms)
        for waited in waiting:
            waited.fail(error or BrokerUnreachable(problem), now_ms)

    def _close_if_done(self, link: BrokerLink) -> None:
        """Hang up on a broker that was forgotten, once nothing is under way."""
        if link not in self._retired or link.in_flight or link.orders:
            return
        self._retired.remove(link)
        if link.state is not LinkState.DISCONNECTED:
            self._selector.close(link.connection_id)
            self._disconnect(link)

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

    def _serve_waiting(self, link: BrokerLink, now_ms: int) -> None:
        if link.state is LinkState.DISCONNECTED and now_ms >= link.reconnect_ms:
            self._connect(link, now_ms)
        while link.waiting and self._has_room(link, now_ms):
            self._send_now(link, link.waiting.popleft(), now_ms)

    def _send_now(self, link: BrokerLink, waiting: Waiting, now_ms: int) -> None:
        try:
            version = self._version_for(link, waiting)
            parts = waiting.encode(version)
        except MillstreamError as error:
            waiting.fail(error, now_ms)
            return
        correlation_id = self._take_correlation_id()
        framed = self._framed(waiting.api, version, correlation_id, parts)
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
            link.in_flight[correlation_id] = sent
        self._selector.send(link.connection_id, framed)
        if not waiting.expects_response:
            sent.finish_unanswered(now_ms)

    def _version_for(self, link: BrokerLink, waiting: Waiting) -> int:
        theirs = link.versions.get(int(waiting.api))
        if waiting.version is not None:
            if theirs is None or not theirs.covers(waiting.version):
                offer = "does not offer it" if theirs is None else f"offers versions {theirs}"
                raise UnsupportedVersion(
                    f"{waiting.api.api_name} version {waiting.version}: {link.name} {offer}"
                )
            return waiting.version
        version = negotiate_api(waiting.api, theirs)
        highest = waiting.source.highest if isinstance(waiting.source, VersionedRequest) else None
        return version if highest is None else min(version, highest)

    def _framed(
        self, api: ApiKey, version: int, correlation_id: int, body: Sequence[ReadableBuffer]
    ) -> list[ReadableBuffer]:
        client_id = self._client_ids[api.request_header_version(version) - 1]
        size = 8 + len(client_id) + sum(map(len, body))
        head = _request_head(size, api, version, correlation_id) + client_id
        if len(body) == 1 and type(body[0]) is bytes:
            return [head + body[0]]
        return [head, *body]

    def _take_correlation_id(self) -> int:
        taken = self._next_correlation_id
        self._next_correlation_id = taken + 1 if taken + 1 < FIRST_ORDER_CORRELATION_ID else 1
        return taken

    def _on_frame(self, link: BrokerLink, frame: ReadableBuffer, now_ms: int) -> None:
        if link.state is LinkState.HANDSHAKING:
            self._on_versions(link, frame, now_ms)
            return
        answered = None
        if len(frame) >= 4:
            answered = link.in_flight.pop(_read_correlation_id(frame)[0], None)
        if answered is None:
            self._hang_up(link, "it answered a request that was not sent", now_ms)
            return
        link.used_ms = now_ms
        try:
            self._finish(link, answered, frame, now_ms)
        except ProtocolError as error:
            answered.fail(error, now_ms)
            self._hang_up(link, f"its answer could not be read: {error}", now_ms)
        if link.waiting:
            self._serve_waiting(link, now_ms)
        elif self._retired:
            self._close_if_done(link)

    def _finish(
        self, link: BrokerLink, answered: InFlight, frame: ReadableBuffer, now_ms: int
    ) -> None:
        if answered.order_id and answered.order_id not in link.orders:
            return  # Cancelled meanwhile.
        if answered.on_frame is not None:
            answered.on_frame(frame, answered.body_position(frame), now_ms)
            return
        message = answered.decode(frame)
        self.throttle(link.node_id, getattr(message, "throttle_time_ms", 0), now_ms)
        assert answered.on_done is not None
        answered.on_done(message, now_ms)

    def _on_repeated(self, link: BrokerLink, event: Repeated) -> None:
        # One that was cancelled when it was on its way is answered nevertheless.
        order = link.orders.get(event.order_id, _CANCELLED)
        timeout_ms = self._config.request_timeout_ms
        link.in_flight[event.correlation_id] = InFlight(
            order.api,
            order.version,
            event.sent_ms + timeout_ms,
            timeout_ms,
            order.on_response,
            None,
            event.order_id,
        )

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
        late_waiting = [each for each in link.waiting if now_ms >= each.deadline_ms]
        for each in late_waiting:
            link.waiting.remove(each)
            why = link.last_failure or "it has not answered what was sent before"
            problem = f"{link.name}: {each.api.api_name} could not be sent in time: {why}"
            each.fail(BrokerUnreachable(problem), now_ms)
