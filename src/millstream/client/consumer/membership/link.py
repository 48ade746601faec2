"""The way to the group's coordinator: which broker it is, and a connection of its own to it.

The machines of membership send through here, and nothing else does. The connection is not shared
with fetches and commits: brokers answer the requests of a connection one after the other, and a
JoinGroup waits for all other members. Finding the coordinator is tried until it succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.client.router import ANY
from millstream.errors import (
    NO_ERROR,
    BrokerUnreachable,
    MillstreamError,
    class_for_code,
    error_for_code,
    is_retriable,
)
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.client.runtime import ClientRuntime
    from millstream.network.client.backoff import Backoff
    from millstream.network.client.network_client import OnDone, RequestSource
    from millstream.protocol.message import Message

MEMBERSHIP_NODE_ID: Final = 1 << 30
"""What the network calls the far end of this connection; no broker has such an id."""

LEAVE_TIMEOUT_MS: Final = 3_000
"""For how long a member tries to tell that it leaves."""
_GROUP: Final = 0
_KEYS_SINCE: Final = 4


class _Leave:
    """A member's last request."""

    def __init__(
        self, request: RequestSource, deadline_ms: int, on_done: Callable[[], None]
    ) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.on_done = on_done
        self.is_under_way = False


class CoordinatorLink:
    """A connection to whoever coordinates one group."""

    def __init__(
        self,
        runtime: ClientRuntime,
        group_id: str,
        backoff: Backoff,
        request_timeout_ms: int,
        random: Random,
        on_failure: Callable[[MillstreamError], None],
    ) -> None:
        self._runtime = runtime
        self._network = runtime.network
        self._group_id = group_id
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self._random = random
        self._on_failure = on_failure
        self._is_known = False
        self._is_asking = False
        self._failures = 0
        self._retry_ms = 0
        self._leaves: list[_Leave] = []

    def is_ready(self, now_ms: int) -> bool:
        """Whether the coordinator can be asked now; finds it and connects if it cannot."""
        if self._is_known:
            return self._network.is_ready(MEMBERSHIP_NODE_ID, now_ms)
        if not self._is_asking and now_ms >= self._retry_ms:
            self._ask(now_ms)
        return False

    def due_ms(self, now_ms: int) -> int | None:
        """When to ask `is_ready` again if nothing happens before."""
        if self._is_asking:
            return None
        if not self._is_known:
            return max(now_ms, self._retry_ms)
        delay_ms = self._network.connection_delay_ms(MEMBERSHIP_NODE_ID, now_ms)
        return now_ms + max(1, delay_ms)

    def lost(self, now_ms: int) -> None:
        """The coordinator is gone or has moved: find it again."""
        if self._is_known:
            self._is_known = False
            self._failures += 1
            self._retry_ms = now_ms + self._backoff.after(self._failures, self._random)

    def worked(self) -> None:
        """The coordinator has answered as one."""
        self._failures = 0

    def version_of(self, api: ApiKey) -> int | None:
        """The version that the coordinator and we speak; None if it does not offer the API."""
        return self._network.version_of(MEMBERSHIP_NODE_ID, api)

    def send(
        self, request: RequestSource, now_ms: int, on_done: OnDone, timeout_ms: int | None = None
    ) -> None:
        """One request, one answer."""
        self._network.send(
            MEMBERSHIP_NODE_ID,
            request,
            now_ms,
            on_done,
            timeout_ms=self._request_timeout_ms if timeout_ms is None else timeout_ms,
        )

    def repeat(
        self, request: Message, first_ms: int, every_ms: int, until_ms: int, on_response: OnDone
    ) -> int:
        """Send a request again and again; see `NetworkClient.repeat`."""
        return self._network.repeat(
            MEMBERSHIP_NODE_ID, request, first_ms, every_ms, until_ms, on_response
        )

    def cancel(self, request_id: int) -> None:
        """End such a repetition."""
        self._network.cancel(request_id)

    def send_leave(self, request: RequestSource, now_ms: int, on_done: Callable[[], None]) -> None:
        """Tell the coordinator that we leave, for some seconds if need be.

        Nobody gets our partitions before it knows, or before the session is over.
        """
        self._leaves.append(_Leave(request, now_ms + LEAVE_TIMEOUT_MS, on_done))
        self.poll(now_ms)

    def poll(self, now_ms: int) -> int | None:
        """Go on with LeaveGroup requests; when to be called again at the latest."""
        for leave in [each for each in self._leaves if not each.is_under_way]:
            if now_ms >= leave.deadline_ms:
                self._end(leave)
            elif self.is_ready(now_ms):
                leave.is_under_way = True
                self._send_leave(leave, now_ms)
        times = [each.deadline_ms for each in self._leaves if not each.is_under_way]
        if not times:
            return None
        due_ms = self.due_ms(now_ms)
        return min(times) if due_ms is None else min(*times, due_ms)

    def _send_leave(self, leave: _Leave, now_ms: int) -> None:
        def on_done(answer: Message | MillstreamError, then_ms: int) -> None:
            leave.is_under_way = False
            code = getattr(answer, "error_code", NO_ERROR)
            if isinstance(answer, BrokerUnreachable) or class_for_code(code).retriable:
                self.lost(then_ms)
            else:
                self._end(leave)

        self.send(leave.request, now_ms, on_done, LEAVE_TIMEOUT_MS)

    def _end(self, leave: _Leave) -> None:
        self._leaves.remove(leave)
        leave.on_done()

    def _ask(self, now_ms: int) -> None:
        self._is_asking = True
        self._runtime.router.call(
            VersionedRequest(ApiKey.FIND_COORDINATOR, self._request),
            ANY,
            self._on_answer,
            deadline_ms=now_ms + self._request_timeout_ms,
            now_ms=now_ms,
            error_of=_error_of,
        )

    def _request(self, version: int) -> Message:
        if version >= _KEYS_SINCE:
            return FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[self._group_id])
        return FindCoordinatorRequest(key=self._group_id)

    def _on_answer(self, answer: Message | MillstreamError, now_ms: int) -> None:
        self._is_asking = False
        if isinstance(answer, FindCoordinatorResponse):
            code = _error_of(answer)
            if code == NO_ERROR:
                found = answer.coordinators[0] if answer.coordinators else answer
                self._network.set_address(
                    MEMBERSHIP_NODE_ID, found.host, found.port, is_member=False
                )
                self._is_known = True
                return
            error: MillstreamError = error_for_code(code)
        else:
            assert isinstance(answer, MillstreamError)
            error = answer
        self._failures += 1
        self._retry_ms = now_ms + self._backoff.after(self._failures, self._random)
        if not is_retriable(error) and not isinstance(error, BrokerUnreachable):
            self._on_failure(error)


def _error_of(response: Message) -> int:
    assert isinstance(response, FindCoordinatorResponse)
    return response.coordinators[0].error_code if response.coordinators else response.error_code
