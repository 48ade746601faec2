"""Requests that the selector sends by itself, regularly, and who hears the answers.

`NetworkClient` has one of these. One lives as long as its connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.network.client.broker_link import InFlight, Periodic
from millstream.network.client.selector import PeriodicRequest
from millstream.protocol.api import API_BY_KEY, ApiKey, negotiate_api

if TYPE_CHECKING:
    from millstream.network.client.broker_link import BrokerLink, OnDone
    from millstream.network.client.request_framing import RequestFraming
    from millstream.network.client.selector import ClientSelector, Repeated
    from millstream.protocol.message import Message

_CANCELLED: Final = Periodic(ApiKey.HEARTBEAT, 0, lambda _response, _now_ms: None)


class PeriodicRequests:
    """The periodic requests of all connections of a client."""

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
        periodic_id = self._next_id
        self._next_id += 1
        correlation_id = self._framing.first_periodic_id(periodic_id)
        parts = self._framing.framed(api, version, correlation_id, request.encode_parts(version))
        link.periodic[periodic_id] = Periodic(api, version, on_response)
        self._links[periodic_id] = link
        repeated = PeriodicRequest(b"".join(parts), *times_ms, correlation_id)
        self._selector.repeat(link.connection_id, periodic_id, repeated)
        return periodic_id

    def cancel(self, periodic_id: int) -> None:
        """End one."""
        link = self._links.pop(periodic_id, None)
        if link is not None:
            link.periodic.pop(periodic_id, None)
            self._selector.cancel(periodic_id)

    def note_sent(self, link: BrokerLink, event: Repeated, timeout_ms: int) -> None:
        """Expect an answer to what the selector has sent."""
        # One that was cancelled when it was on its way is answered nevertheless.
        periodic = link.periodic.get(event.periodic_id, _CANCELLED)
        sent = InFlight(
            periodic.api,
            periodic.version,
            event.sent_ms + timeout_ms,
            timeout_ms,
            periodic.on_response,
            None,
            event.periodic_id,
        )
        link.expect(event.correlation_id, sent)

    def take_all(self, link: BrokerLink) -> list[Periodic]:
        """The periodic requests of a connection that has ended, which end with it."""
        ended, link.periodic = link.periodic, {}
        for periodic_id in ended:
            del self._links[periodic_id]
        return list(ended.values())
