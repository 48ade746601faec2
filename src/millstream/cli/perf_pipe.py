"""Connections with several requests on their way, and waiting for whichever answers first.

The loads of `perf` use them in place of a session's connections, which answer one request after
the other. One thread, and no clock: who sends says when.
"""

from __future__ import annotations

import select
from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from millstream.cli.connection import Connection
from millstream.cli.faults import Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.cli.connection import Address, Sent
    from millstream.protocol.message import Message

R = TypeVar("R", bound="Message")
T = TypeVar("T")


class _Waiting(NamedTuple, Generic[T]):
    sent: Sent
    sent_ns: int
    what: T


class Pipe(Connection, Generic[T]):
    """A connection that remembers what each request on its way was for."""

    def __init__(self, address: Address, timeout_ms: int) -> None:
        super().__init__(address, timeout_ms)
        self._timeout_ms = timeout_ms
        self._waiting: deque[_Waiting[T]] = deque()

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet."""
        return len(self._waiting)

    def post(self, request: Message, what: T, now_ns: int) -> None:
        """Send a request whose answer will come back with `what`."""
        self._waiting.append(_Waiting(self.send(request, self._timeout_ms), now_ns, what))

    def take(self, response: type[R]) -> tuple[T, R]:
        """The next answer, and what its request was for. Blocks until it is complete."""
        waiting = self._waiting.popleft()
        return waiting.what, self.receive(waiting.sent, response, self._timeout_ms)

    def check_patience(self, now_ns: int) -> None:
        """Raise if the oldest request has waited longer than a user would."""
        if self._waiting and now_ns - self._waiting[0].sent_ns > self._timeout_ms * 1_000_000:
            raise Unreachable(
                f"{self.address}: no answer within {self._timeout_ms / 1000:g} s: "
                "look at the broker, or give more with --timeout"
            )


def answered(pipes: Sequence[Pipe[T]], timeout_s: float, now_ns: int) -> list[Pipe[T]]:
    """The connections that something arrived on; waits that long for the first."""
    waiting = [pipe for pipe in pipes if pipe.in_flight]
    ready = select.select(waiting, [], [], timeout_s)[0]
    if not ready:
        for pipe in waiting:
            pipe.check_patience(now_ns)
    return ready
