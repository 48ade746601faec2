"""Requests that the selector sends by itself, regularly: who gave the order, who hears the answers.

`NetworkClient` has one of these. An order lives as long as its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.network.client.broker_link import InFlight, Order
from millstream.network.client.selector import StandingOrder
from millstream.protocol.api import API_BY_KEY, ApiKey, negotiate_api

if TYPE_CHECKING:
    from millstream.network.client.broker_link import BrokerLink, OnDone
    from millstream.network.client.request_framing import RequestFraming
    from millstream.network.client.selector import ClientSelector, Repeated
    from millstream.protocol.message import Message

_CANCELLED: Final = Order(ApiKey.HEARTBEAT, 0, lambda _response, _now_ms: None)


class StandingOrders:
    """The orders of all connections of a client."""

    def __init__(self, selector: ClientSelector, framing: RequestFraming) -> None:
        self._selector = selector
        self._framing = framing
        self._next_id = 1
        self._links: dict[int, BrokerLink] = {}

    def place(
        self,
        link: BrokerLink,
        request: Message,
        times_ms: tuple[int, int, int],
        on_response: OnDone,
    ) -> int:
        """Have a request sent first, every and until these times."""
        api = API_BY_KEY[request.KEY]
        version = negotiate_api(api, link.versions.get(int(api)))
        order_id = self._next_id
        self._next_id += 1
        correlation_id = self._framing.first_order_id(order_id)
        parts = self._framing.framed(api, version, correlation_id, request.encode_parts(version))
        link.orders[order_id] = Order(api, version, on_response)
        self._links[order_id] = link
        order = StandingOrder(b"".join(parts), *times_ms, correlation_id)
        self._selector.repeat(link.connection_id, order_id, order)
        return order_id

    def cancel(self, order_id: int) -> None:
        """End an order."""
        link = self._links.pop(order_id, None)
        if link is not None:
            link.orders.pop(order_id, None)
            self._selector.cancel(order_id)

    def note_sent(self, link: BrokerLink, event: Repeated, timeout_ms: int) -> None:
        """Expect an answer to what the selector has sent."""
        # One that was cancelled when it was on its way is answered nevertheless.
        order = link.orders.get(event.order_id, _CANCELLED)
        sent = InFlight(
            order.api,
            order.version,
            event.sent_ms + timeout_ms,
            timeout_ms,
            order.on_response,
            None,
            event.order_id,
        )
        link.expect(event.correlation_id, sent)

    def take_all(self, link: BrokerLink) -> list[Order]:
        """The orders of a connection that has ended, which end with it."""
        orders, link.orders = link.orders, {}
        for order_id in orders:
            del self._links[order_id]
        return list(orders.values())
