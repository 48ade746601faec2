"""Faults that a client may meet, on demand: slow answers, errors, connections that break.

`EmbeddedBroker.faults` is one. A test's thread says what shall happen; the broker's thread meets it
in front of its request handlers. The broker's fast path declines the APIs with faults and no other.
Requests of one connection stay in order, delayed or not, as they do in any Kafka broker.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from millstream.errors import ERRORS_BY_CODE, ApiError, InvalidArgument, ProtocolError
from millstream.network.server.request import CLOSE, PENDING, Connection
from millstream.protocol.api import ApiKey

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator

    from millstream.network.server.request import Outcome, Request, Response
    from millstream.server.api_server import ApiServer

_logger = logging.getLogger(__name__)

_FOR_EVER: Final = 1 << 62
_EVERY_API: Final = (1 << 64) - 1
_LAST_API_BIT: Final = 63
_API_NAMES: Final = {api.api_name.lower(): api for api in ApiKey}
_ERROR_NAMES: Final = {error.wire_name: error for error in ERRORS_BY_CODE.values()}


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error, without doing what was asked."""

    error: ApiError


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection instead of an answer."""

    after_handling: bool


Action: TypeAlias = "Fail | Drop"


class _Delay:
    """An answer that takes its time."""

    __slots__ = ("ms", "times")

    def __init__(self, ms: int, times: int) -> None:
        self.ms = ms
        self.times = times


class _Planned:
    """An action and how often it will still be taken."""

    __slots__ = ("action", "times")

    def __init__(self, action: Action, times: int) -> None:
        self.action = action
        self.times = times


class FastPath(Protocol):
    """What answers requests that the handlers do not see."""

    declined_apis: int
    """A bit for each API whose requests it leaves to the handlers; the last for all beyond."""


class Faults:
    """What goes wrong next. Methods may be called on any thread.

    An API is named as in Kafka's protocol ("Produce") or by its `ApiKey`. Unless `times` says
    otherwise, errors and broken connections happen once, and delays until `clear`. Faults of one
    API happen in the order in which they were asked for.
    """

    def __init__(self, disconnect: Callable[[], None] = lambda: None) -> None:
        """`disconnect` closes every connection that is open."""
        self._disconnect = disconnect
        self._guard = threading.Lock()
        self._delays: dict[int, deque[_Delay]] = {}
        self._actions: dict[int, deque[_Planned]] = {}
        self._is_unavailable = False
        self._fast_path: FastPath | None = None
        self.is_quiet = True
        """Whether nothing goes wrong: all that a request pays when nothing was asked for."""

    def delay(self, api: ApiKey | str, ms: int, *, times: int | None = None) -> None:
        """Begin to handle requests only so many milliseconds later, of real time."""
        if ms < 0:
            raise InvalidArgument(f"a delay of {ms} ms: it must be 0 or more")
        delay = _Delay(ms, _checked_times(times))
        with self._guard:
            self._delays.setdefault(_checked_api(api), deque()).append(delay)
            self._note_planned()

    def fail(
        self, api: ApiKey | str, error: ApiError | type[ApiError] | str | int, *, times: int = 1
    ) -> None:
        """Answer with an error: its class, Kafka's name or its wire code. Nothing is done."""
        self._plan(api, Fail(_checked_error(error)), times)

    def drop(self, api: ApiKey | str, *, times: int = 1, after_handling: bool = False) -> None:
        """Close the connection instead of answering.

        With `after_handling` the request is done first: the client cannot know that it was.
        """
        self._plan(api, Drop(after_handling), times)

    @contextmanager
    def unavailable(self) -> Iterator[None]:
        """Within the block, every connection is closed and every request closes its own."""
        self._set_unavailable(True)
        try:
            self._disconnect()
            yield
        finally:
            self._set_unavailable(False)

    def clear(self) -> None:
        """Let nothing more go wrong; what is being delayed still is."""
        with self._guard:
            self._delays.clear()
            self._actions.clear()
            self._is_unavailable = False
            self._note_planned()

    def intercept(self, fast_path: FastPath | None) -> None:
        """For the broker: what it answers with before its handlers see a request."""
        with self._guard:
            self._fast_path = fast_path
            self._note_planned()

    def take(self, api_key: int) -> tuple[int, Action | None]:
        """For the broker: by how much the next request of an API is late, and what happens."""
        with self._guard:
            delay_ms, action = self._take_delay(api_key), self._take_action(api_key)
            self._note_planned()
        return delay_ms, action

    def _take_delay(self, api_key: int) -> int:
        delays = self._delays.get(api_key)
        if not delays:
            return 0
        delay = delays[0]
        delay.times -= 1
        if delay.times == 0:
            delays.popleft()
        return delay.ms

    def _take_action(self, api_key: int) -> Action | None:
        if self._is_unavailable:
            return Drop(after_handling=False)
        actions = self._actions.get(api_key)
        if not actions:
            return None
        planned = actions[0]
        planned.times -= 1
        if planned.times == 0:
            actions.popleft()
        return planned.action

    def _plan(self, api: ApiKey | str, action: Action, times: int) -> None:
        planned = _Planned(action, _checked_times(times))
        with self._guard:
            self._actions.setdefault(_checked_api(api), deque()).append(planned)
            self._note_planned()

    def _set_unavailable(self, is_unavailable: bool) -> None:
        with self._guard:
            self._is_unavailable = is_unavailable
            self._note_planned()

    def _note_planned(self) -> None:
        """Let the next request of an API with faults, and of no other, come to the handlers."""
        declined = _EVERY_API if self._is_unavailable else 0
        for plans in (self._delays, self._actions):
            for api_key, planned in plans.items():
                if planned:
                    declined |= 1 << min(api_key, _LAST_API_BIT)
        self.is_quiet = not declined
        if self._fast_path is not None:
            self._fast_path.declined_apis = declined


class FaultyHandler:
    """A listener's request handler with faults in front of it. On the loop's thread only."""

    def __init__(self, apis: ApiServer, faults: Faults, loop: asyncio.AbstractEventLoop) -> None:
        self._apis = apis
        self._handle = apis.handle
        self._faults = faults
        self._loop = loop
        # By connection, a delayed request and those that came after it.
        self._waiting: dict[Connection, deque[Request]] = {}

    def __call__(self, request: Request) -> Response | Outcome:
        """Handle a request, or let something go wrong with it."""
        waiting = self._waiting
        if waiting and request.connection in waiting:
            request.retain()
            waiting[request.connection].append(request)
            return PENDING
        if self._faults.is_quiet:
            return self._handle(request)
        delay_ms, action = self._faults.take(request.api_key)
        if delay_ms:
            request.retain()
            waiting[request.connection] = deque([request])
            self._loop.call_later(delay_ms / 1000, self._resume, request.connection, action)
            return PENDING
        return self._act(request, action)

    def _act(self, request: Request, action: Action | None) -> Response | Outcome:
        if isinstance(action, Fail):
            return self._apis.refuse(request, action.error)
        if isinstance(action, Drop):
            return self._handle_in_vain(request) if action.after_handling else CLOSE
        return self._handle(request)

    def _handle_in_vain(self, request: Request) -> Response | Outcome:
        request.connection = _BreakingConnection(request.connection)
        return PENDING if self._handle(request) is PENDING else CLOSE

    def _resume(self, connection: Connection, action: Action | None) -> None:
        """A delay is over: handle that request and what waited behind it."""
        waiting = self._waiting[connection]
        self._act_late(waiting.popleft(), action)
        while waiting:
            delay_ms, action = self._faults.take(waiting[0].api_key)
            if delay_ms:
                self._loop.call_later(delay_ms / 1000, self._resume, connection, action)
                return
            self._act_late(waiting.popleft(), action)
        del self._waiting[connection]

    def _act_late(self, request: Request, action: Action | None) -> None:
        if not request.connection.is_open:
            return
        try:
            outcome = self._act(request, action)
        except ProtocolError as error:
            _logger.warning("closed a connection: %s", error)
            outcome = CLOSE
        if outcome is not PENDING:
            request.complete(outcome)


class _BreakingConnection(Connection):
    """Stands for a connection that breaks when it is time to answer."""

    __slots__ = ("_real",)

    def __init__(self, real: Connection) -> None:
        super().__init__(real.listener_name, real.security_protocol, real.connection_id)
        self.peer_host, self.peer_port = real.peer_host, real.peer_port
        self.local_address = real.local_address
        self.principal = real.principal
        self._real = real

    def answered(self, request: Request) -> None:
        """The answer does not arrive."""
        request.response = CLOSE
        self._real.answered(request)

    def mute_until(self, deadline_ms: int) -> None:
        """As the real one."""
        self._real.mute_until(deadline_ms)

    def hold(self) -> None:
        """As the real one."""
        self._real.hold()

    def release(self) -> None:
        """As the real one."""
        self._real.release()

    def close(self, reason: str) -> None:
        """As the real one."""
        self._real.close(reason)


def _checked_times(times: int | None) -> int:
    if times is None:
        return _FOR_EVER
    if times < 1:
        raise InvalidArgument(f"a fault that happens {times} times: it must be 1 or more")
    return times


def _checked_api(api: ApiKey | str) -> ApiKey:
    if isinstance(api, ApiKey):
        return api
    found = _API_NAMES.get(_letters(api))
    if found is None:
        nearest = _nearest(api, (each.api_name for each in ApiKey), "Produce")
        raise InvalidArgument(f"{api!r} is no API of Kafka: {nearest}")
    return found


def _checked_error(error: ApiError | type[ApiError] | str | int) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, str):
        found = _ERROR_NAMES.get(error.upper())
    elif isinstance(error, int):
        found = ERRORS_BY_CODE.get(error)
    else:
        found = error
    if found is None:
        nearest = _nearest(str(error), _ERROR_NAMES, "NOT_LEADER_OR_FOLLOWER")
        raise InvalidArgument(f"{error!r} is no error of Kafka: {nearest}")
    return found("asked for by the test")


def _nearest(wrong: str, names: Iterable[str], example: str) -> str:
    """What to write instead of a name that is wrong."""
    by_letters = {_letters(each): each for each in names}
    found = difflib.get_close_matches(_letters(wrong), by_letters, n=1)
    return (
        f"did you mean {by_letters[found[0]]!r}?" if found else f"give a name such as {example!r}"
    )


def _letters(name: str) -> str:
    return name.replace("_", "").lower()
