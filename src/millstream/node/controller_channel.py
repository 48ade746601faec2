"""The way from this node to the active controller, for handlers and for the broker itself.

In combined mode the controller is in the same process: requests are handed over as they are. While
nobody leads the quorum they wait, each until its time is up.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.controller.failures import error_response
from millstream.errors import NotController, RequestTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.controller.decision import RequestContext
    from millstream.node.controller_server import ControllerServer
    from millstream.node.timers import Timers
    from millstream.protocol.message import Message
    from millstream.raft.driver import RaftDriver

RAFT_REQUESTS: Final = frozenset({"DescribeQuorumRequest"})
"""What raft itself answers."""


class _Waiting(NamedTuple):
    deadline_ms: int
    request: Message
    context: RequestContext
    callback: Callable[[Message], None]


class LocalControllerChannel:
    """To the controller in this process."""

    def __init__(
        self,
        controller: ControllerServer,
        driver: RaftDriver,
        *,
        listener: str,
        clock: Clock,
        timers: Timers,
        timeout_ms: int,
        waits: bool = True,
    ) -> None:
        """Without `waits`, a request is refused at once while this node does not lead."""
        self._controller = controller
        self._driver = driver
        self._listener = listener
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._waits = waits
        self._waiting: deque[_Waiting] = deque()
        self._alarm = timers.alarm(self._expire)
        controller.on_active.append(self._send_waiting)

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        """Hand a request in; `callback` gets the response, once, perhaps before the return."""
        if type(request).__name__ in RAFT_REQUESTS:
            self._driver.handle(request, context.version, self._listener, callback)
        elif self._controller.is_active:
            self._controller.handle(request, context, callback)
        elif self._waits:
            deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
            self._waiting.append(_Waiting(deadline_ms, request, context, callback))
            self._alarm.advance(deadline_ms)
        else:
            callback(error_response(request, NotController()))

    def close(self) -> None:
        """Answer everybody who waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.callback(error_response(waiting.request, NotController()))

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self.submit(each.request, each.context, each.callback)

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        while self._waiting and self._waiting[0].deadline_ms <= now_ms:
            waiting = self._waiting.popleft()
            problem = "the cluster has had no active controller in that time"
            waiting.callback(error_response(waiting.request, RequestTimedOut(problem)))
        self._alarm.set(self._waiting[0].deadline_ms if self._waiting else None)
