"""The way from this node to the active controller, in this process or another.

Whoever needs the controller has a `NodeToControllerChannel` of their own: the lifecycle, the ISR
proposals, the directories, the requests of clients. Requests wait in order until somebody leads the
quorum, and go again at the head of the queue if the one who was asked does not lead any more. What
a client asked for travels in an envelope that says who it is; what the node itself asks, as it is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millstream.errors import (
    ApiError,
    ClientClosed,
    MillstreamError,
    NotController,
    RequestTimedOut,
    UnsupportedVersion,
)
from millstream.network.client.config import NetworkClientConfig
from millstream.node.peer_client import PeerClient
from millstream.protocol.api import API_BY_KEY
from millstream.protocol.messages.envelope import EnvelopeResponse
from millstream.server.envelopes import open_envelope, put_in_envelope
from millstream.server.forwarding import fail_forwarded, says_not_controller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.controller.decision import RequestContext
    from millstream.node.environment import Environment
    from millstream.node.timers import Timers
    from millstream.protocol.message import Message
    from millstream.protocol.notation import VersionRange
    from millstream.raft.effects import Peer

LOOK_AGAIN_MS: Final = 100
"""How often to look who leads, while nobody is known to."""
RETRY_MS: Final = 50
"""How long to wait after a controller could not be reached, or was none any more."""
IN_FLIGHT_MAX: Final = 5
SOCKET_TIMEOUT_MS: Final = 30_000
SETUP_TIMEOUT_MS: Final = 10_000
"""How long to wait for the answer to one attempt."""


class LocalController(Protocol):
    """The controller of this process."""

    @property
    def is_active(self) -> bool:
        """Whether it decides."""
        ...

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        """Decide, or refuse with NOT_CONTROLLER."""
        ...


class _Queued(NamedTuple):
    request: Message
    context: RequestContext
    callback: Callable[[Message], None]
    deadline_ms: int | None


class NodeToControllerChannel:
    """Requests of one purpose on their way to whoever is the active controller."""

    def __init__(
        self,
        node_id: int,
        environment: Environment,
        timers: Timers,
        *,
        find: Callable[[], Peer | None],
        local: LocalController | None,
        timeout_ms: int | None,
    ) -> None:
        """`find` tells who leads the quorum; `timeout_ms`: None for as long as it takes."""
        self._node_id = node_id
        self._clock = environment.clock
        self._find = find
        self._local = local
        self._timeout_ms = timeout_ms
        self._queue: deque[_Queued] = deque()
        self._in_flight = 0
        self._paused_until_ms = 0
        self._is_closed = False
        self._alarm = timers.alarm(self.look)
        # A machine that was away answers a new attempt sooner than one that was made meanwhile:
        # no attempt to connect lasts longer than the requests that wait for it.
        setup_ms = SETUP_TIMEOUT_MS if timeout_ms is None else min(SETUP_TIMEOUT_MS, timeout_ms)
        config = NetworkClientConfig(
            client_id=str(node_id),
            reconnect_backoff_ms=RETRY_MS,
            reconnect_backoff_max_ms=RETRY_MS,
            connection_setup_timeout_ms=setup_ms,
            connection_setup_timeout_max_ms=setup_ms,
            max_in_flight=IN_FLIGHT_MAX,
        )
        self._client = PeerClient(environment, config, timers)

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        """Hand a request in; `callback` gets the response, once, perhaps before the return."""
        deadline_ms = None
        if self._timeout_ms is not None:
            deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        queued = _Queued(request, context, callback, deadline_ms)
        if self._is_closed:
            _refuse(queued, NotController())
            return
        self._queue.append(queued)
        self.look()

    def controller_versions(self) -> Mapping[int, VersionRange]:
        """What the active controller of another process takes, by API; empty while unknown."""
        found = self._find()
        if found is None or found.id == self._node_id:
            return {}
        return self._client.versions_of(found.id)

    def look(self) -> None:
        """Send what waits, if there is somebody to send to; give up what has waited too long.

        Also to be called when another node leads.
        """
        self._expire()
        while self._queue and self._in_flight < IN_FLIGHT_MAX and self._send_next():
            pass
        self._arm()

    def close(self) -> None:
        """Answer everybody who waits, and send nothing more."""
        self._is_closed = True
        self._client.close()
        while self._queue:
            _refuse(self._queue.popleft(), NotController())

    # Asking and being answered.

    def _send_next(self) -> bool:
        """Send the first request; False if that has to wait."""
        if self._clock.monotonic_ms() < self._paused_until_ms:
            return False
        if self._local is not None and self._local.is_active:
            self._ask_local(self._local, self._queue.popleft())
            return True
        found = self._find()
        if found is None or found.id == self._node_id:
            return False
        self._ask(found, self._queue.popleft())
        return True

    def _ask_local(self, local: LocalController, queued: _Queued) -> None:
        try:
            local.submit(
                queued.request, queued.context, lambda response: self._finish(queued, response)
            )
        except ApiError as error:
            _refuse(queued, error)

    def _ask(self, controller: Peer, queued: _Queued) -> None:
        self._in_flight += 1
        request = queued.request
        is_of_a_client = bool(queued.context.client_host)
        self._client.send(
            controller.id,
            controller.endpoint.host,
            controller.endpoint.port,
            put_in_envelope(request, queued.context) if is_of_a_client else request,
            lambda result, now_ms: self._answered(queued, result),
            timeout_ms=self._attempt_ms(queued),
        )

    def _attempt_ms(self, queued: _Queued) -> int:
        if queued.deadline_ms is None:
            return SOCKET_TIMEOUT_MS
        return min(SOCKET_TIMEOUT_MS, max(1, queued.deadline_ms - self._clock.monotonic_ms()))

    def _answered(self, queued: _Queued, result: Message | MillstreamError) -> None:
        self._in_flight -= 1
        if isinstance(result, UnsupportedVersion):
            _refuse(queued, result)
        elif isinstance(result, ClientClosed) or self._is_closed:
            _refuse(queued, NotController())
        elif isinstance(result, MillstreamError):
            self._again(queued)
        elif not isinstance(result, EnvelopeResponse):
            self._finish(queued, result)
        elif result.error_code == NotController.code:
            self._again(queued)
        else:
            api = API_BY_KEY[queued.request.KEY]
            response = open_envelope(result, api, queued.context.version)
            if isinstance(response, ApiError):
                _refuse(queued, response)
            else:
                self._finish(queued, response)
        self.look()

    def _finish(self, queued: _Queued, response: Message) -> None:
        """Hand an answer on, unless it says that another node must be asked."""
        if says_not_controller(response) and not self._is_closed:
            self._again(queued)
            self._arm()
        else:
            queued.callback(response)

    def _again(self, queued: _Queued) -> None:
        self._queue.appendleft(queued)
        self._paused_until_ms = self._clock.monotonic_ms() + RETRY_MS

    # Time.

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        late = [each for each in self._queue if each.deadline_ms and each.deadline_ms <= now_ms]
        for each in late:
            self._queue.remove(each)
            problem = "the cluster has had no active controller in that time"
            _refuse(each, RequestTimedOut(problem))

    def _arm(self) -> None:
        if not self._queue or self._is_closed:
            self._alarm.set(None)
            return
        now_ms = self._clock.monotonic_ms()
        is_paused = now_ms < self._paused_until_ms
        due_ms = self._paused_until_ms if is_paused else now_ms + LOOK_AGAIN_MS
        deadlines = [each.deadline_ms for each in self._queue if each.deadline_ms is not None]
        self._alarm.set(min([due_ms, *deadlines]))


def _refuse(queued: _Queued, error: ApiError) -> None:
    queued.callback(fail_forwarded(queued.request, error, queued.context.version))
