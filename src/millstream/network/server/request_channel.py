"""Requests between their arrival and their responses: the order and the account.

`InFlight` is a connection's queue of unanswered requests. `RequestChannel`, one per broker, is the
account of what they take: a request costs nothing while its handler runs; it is counted while a
large frame is being received, and while a handler that answers later retains its bytes. When the
account is full, whoever needs more is muted until some is paid back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeAlias

from millstream.network.server.request import PENDING, Request

if TYPE_CHECKING:
    from millstream._accel.broker.fast_path import Deferred
    from millstream.network.server.config import SocketServerConfig
    from millstream.network.server.connection_state import ConnectionState
    from millstream.network.server.request import Outcome, Response


class Waiter(Protocol):
    """A connection that was muted because the account is full."""

    def room_was_made(self) -> None:
        """Try again."""
        ...


class RequestChannel:
    """How many requests keep their bytes in memory, how many bytes, and which connections wait."""

    __slots__ = (
        "_bytes_max",
        "_requests_max",
        "_waiters",
        "bytes_in_memory",
        "requests_retained",
    )

    def __init__(self, config: SocketServerConfig) -> None:
        self._requests_max = config.queued_max_requests
        self._bytes_max = config.queued_max_request_bytes
        self._waiters: deque[Waiter] = deque()
        self.requests_retained = 0
        self.bytes_in_memory = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be taken."""
        is_out_of_bytes = 0 <= self._bytes_max <= self.bytes_in_memory
        return is_out_of_bytes or self.requests_retained >= self._requests_max

    def take_bytes(self, size: int) -> None:
        """Count a large frame whose reception begins; the last one in may exceed the limit."""
        self.bytes_in_memory += size

    def take_request(self, size: int) -> None:
        """Count a request whose bytes are retained."""
        self.requests_retained += 1
        self.bytes_in_memory += size

    def give_bytes(self, size: int) -> None:
        """A large frame was handled, or its connection is gone."""
        self.bytes_in_memory -= size
        self._wake()

    def give_request(self, size: int) -> None:
        """A retained request was answered, or its connection is gone."""
        self.requests_retained -= 1
        self.bytes_in_memory -= size
        self._wake()

    def wait(self, waiter: Waiter) -> None:
        """Remember a connection to be told when there is room; first come, first served."""
        self._waiters.append(waiter)

    def _wake(self) -> None:
        while self._waiters and not self.is_full:
            self._waiters.popleft().room_was_made()


Unanswered: TypeAlias = "Request | Deferred"


class InFlight(deque[Unanswered]):
    """A connection's requests that wait for their responses, or for those before them.

    Those of the full path are `Request`s, those of the fast path `Deferred`.
    """

    __slots__ = ("_account", "_state")

    def __init__(self, account: RequestChannel, state: ConnectionState) -> None:
        super().__init__()
        self._account = account
        self._state = state

    def add(self, request: Request) -> None:
        """A request that was not answered at once."""
        self.append(request)
        self._state.in_flight += 1
        if request.is_retained:
            self._account.take_request(request.size)
        else:
            request.detach()

    def defer(self, deferred: Deferred) -> None:
        """An answer that the fast path gives later."""
        if deferred.response is None:
            deferred.response = PENDING
        self.append(deferred)
        self._state.deferred += 1

    @property
    def is_head_answered(self) -> bool:
        """Whether the oldest one can be sent."""
        return bool(self) and self[0].response is not PENDING

    def take_answer(self) -> Response | Outcome:
        """The response of the oldest one, which is in flight no more."""
        request = self.popleft()
        self._release(request)
        response: Response | Outcome = request.response
        return response

    def drop(self) -> None:
        """Nobody will get these responses."""
        while self:
            self._release(self.popleft())

    def _release(self, request: Unanswered) -> None:
        if not isinstance(request, Request):
            self._state.deferred -= 1
            return
        self._state.in_flight -= 1
        if request.is_retained:
            self._account.give_request(request.size)
