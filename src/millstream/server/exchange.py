"""One request that a handler is working on, and the way back for its response.

`ApiServer` makes one for every request that is not on the two hot paths. A handler asks it who is
asking; one whose response comes later keeps it and calls `answer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.controller.decision import RequestContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.network.server.request import Connection, Request
    from millstream.protocol.message import Message


class Exchange:
    """A decoded request, who sent it, and where its response goes."""

    __slots__ = ("_complete", "early_response", "is_returned", "message", "request")

    def __init__(
        self, request: Request, message: Message, complete: Callable[[Exchange, Message], None]
    ) -> None:
        self.request = request
        self.message = message
        self.is_returned = False
        """Whether the handler has returned: from then on a response must be sent by `complete`."""
        self.early_response: Message | None = None
        """The response of a handler that answered before it returned."""
        self._complete = complete

    @property
    def version(self) -> int:
        """The version of the request, and so of its response."""
        return self.request.api_version

    @property
    def connection(self) -> Connection:
        """Where the request came from."""
        return self.request.connection

    @property
    def listener(self) -> str:
        """The listener it came in by: endpoints in the answer are those of the same one."""
        return self.request.connection.listener_name

    def context(self, clock: Clock) -> RequestContext:
        """Who asks and when, as the controller wants to know it."""
        return RequestContext(
            self.request.connection.principal,
            clock.monotonic_ms(),
            clock.wall_ms(),
            self.request.api_version,
            self.request.client_id or "",
            self.request.connection.peer_host,
        )

    def answer(self, response: Message) -> None:
        """Give the response of a handler that returns none; once, before or after its return."""
        if self.is_returned:
            self._complete(self, response)
        else:
            self.early_response = response
