"""Heartbeats that leave on time whatever this process is doing.

In steady state the same request is sent again and again, so it is handed to the selector as a
periodic request: a compiled selector sends it from a thread that never waits for Python. The
periodic request ends by itself when the application has not polled for too long, and is renewed
while it polls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.consumer.membership.machine import Link
    from millstream.network.client.network_client import OnDone
    from millstream.protocol.message import Message


class PeriodicHeartbeat:
    """At most one periodic request with the coordinator."""

    def __init__(self, link: Link, until_ms: Callable[[int], int], on_response: OnDone) -> None:
        self._link = link
        self._until_of = until_ms
        self._on_response = on_response
        self._request_id: int | None = None
        self._first_ms = 0
        self._until_ms = 0
        self._interval_ms = 0

    @property
    def is_running(self) -> bool:
        """Whether the coordinator hears of us without our doing."""
        return self._request_id is not None

    def start(self, request: Message, interval_ms: int, now_ms: int) -> None:
        """Send this from now on, in place of what was sent before; first after one interval."""
        self._interval_ms = max(1, interval_ms)
        self._place(request, now_ms + self._interval_ms, now_ms)

    def renew(self, request: Message, now_ms: int) -> None:
        """Go on while the application polls; the next one leaves when it would have left anyway."""
        self._place(request, now_ms + (self._first_ms - now_ms) % self._interval_ms, now_ms)

    def _place(self, request: Message, first_ms: int, now_ms: int) -> None:
        self.stop()
        self._first_ms = first_ms
        self._until_ms = self._until_of(now_ms)
        try:
            self._request_id = self._link.repeat(
                request, self._first_ms, self._interval_ms, self._until_ms, self._hear
            )
        except BrokerUnreachable as error:
            self._on_response(error, now_ms)

    def stop(self) -> None:
        """Send no more; answers to what was sent are not heard."""
        if self._request_id is not None:
            self._link.cancel(self._request_id)
            self._request_id = None

    def may_have_sent(self, now_ms: int) -> bool:
        """Whether answers may be on their way, which nobody hears if the request is replaced."""
        return self._request_id is not None and now_ms >= self._first_ms

    def needs_renewal(self, now_ms: int) -> bool:
        """Whether half of the time is over for which it was given, and the application polls."""
        if self._request_id is None:
            return False
        until_ms = self._until_of(now_ms)
        half_ms = max(self._interval_ms, (until_ms - now_ms) // 2)
        return until_ms > self._until_ms and self._until_ms - now_ms <= half_ms

    def _hear(self, answer: Message | Exception, now_ms: int) -> None:
        if self._request_id is None:
            return  # Stopped since.
        if isinstance(answer, Exception):
            self._request_id = None  # It has ended with the connection.
        self._on_response(answer, now_ms)  # type: ignore[arg-type]  # OnDone's own union
