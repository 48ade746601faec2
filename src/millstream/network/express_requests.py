"""Requests that the selector takes from its user and sends by itself, and who hears the answers.

`NetworkClient` has one of these. Its user says how such requests begin (`head`), and knows by the
correlation id, once one was sent, what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import BrokerUnreachable
from millstream.network.broker_link import InFlight
from millstream.network.client_selector import Dispatched
from millstream.protocol.frame import SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.network.broker_link import BrokerLink, OnDone, TakeFrame
    from millstream.network.client_selector import Answered
    from millstream.network.request_framing import RequestFraming
    from millstream.protocol.api import ApiKey
    from millstream.types import ReadableBuffer


class ExpressRequest(NamedTuple):
    """What was sent, and who waits for the answer."""

    api: ApiKey
    version: int
    timeout_ms: int
    on_done: OnDone
    take: TakeFrame
    """Takes the frame of the usual answer, which is not worth decoding."""


class ExpressRequests:
    """The express requests of a client."""

    def __init__(self, framing: RequestFraming) -> None:
        self._framing = framing
        self.find: Callable[[int], ExpressRequest | None] = lambda _correlation_id: None
        """Asked what was sent, by its correlation id."""
        self.settle: Callable[[list[Answered], int], tuple[int, bool]] = lambda *_: (0, False)
        """Takes the usual answers to what was sent: how many, the first of them first, and whether
        that was all there is to do."""

    def head(self, api: ApiKey, version: int, body: bytes) -> bytes:
        """How a request begins, without its size: a header with no correlation id yet, `body`."""
        return b"".join(self._framing.framed(api, version, 0, [body]))[SIZE_BYTES:]

    def note_sent(self, link: BrokerLink | None, event: Dispatched, now_ms: int) -> bool:
        """Expect an answer to what the selector has sent; False if there is none to come."""
        request = self.find(event.correlation_id)
        if request is None:
            return False
        api, version, timeout_ms, on_done, take = request
        if link is None:
            on_done(BrokerUnreachable("the connection was lost", was_sent=True), now_ms)
            return False
        link.used_ms = now_ms
        deadline_ms = event.sent_ms + timeout_ms
        sent = InFlight(api, version, deadline_ms, timeout_ms, on_done, None, 0, True, take)
        link.expect(event.correlation_id, sent)
        return True

    def take(
        self,
        answered: list[Answered],
        links: Mapping[int, BrokerLink],
        on_frame: Callable[[BrokerLink, ReadableBuffer, int], bool],
        now_ms: int,
    ) -> bool:
        """Have requests settled by whom they are from; whether that was all there is to do."""
        count, is_all = self.settle(answered, now_ms)
        for place, event in enumerate(answered):
            link = links.get(event.connection_id)
            if link is not None:
                link.used_ms = now_ms
            if place >= count:  # Not the usual after all: as if the two had come one by one.
                is_all = False
                sent = Dispatched(event.connection_id, event.correlation_id, now_ms)
                if self.note_sent(link, sent, now_ms) and link is not None:
                    on_frame(link, event.frame, now_ms)
        return is_all
