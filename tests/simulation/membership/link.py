"""A member's connection to the coordinator: in order, one request at a time, and not for ever."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.decision import Caller
from millstream.errors import ApiError, BrokerUnreachable, MillstreamError
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.network.client.network_client import OnDone, RequestSource
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message
    from tests.simulation.membership.world import SimWorld

DELAY_MAX_MS = 20
OUTAGE_MAX_MS = 4_000
RESPONSES: dict[type[Message], type[Message]] = {
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    HeartbeatRequest: HeartbeatResponse,
    JoinGroupRequest: JoinGroupResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
}


class _Queued(NamedTuple):
    message: Message
    on_done: OnDone


class SimLink:
    """One connection; whatever it carries is lost when it breaks."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._random = world.random
        self._queue: deque[_Queued] = deque()
        self._is_busy = False
        self._life = 0
        self._up_ms = 0
        self._orders: dict[int, OnDone] = {}
        self._next_order = 1
        self.deaf_until_ms = 0
        """Until then the member's process cannot run; what was ordered is sent all the same."""

    # A `Link`.

    def is_ready(self, now_ms: int) -> bool:
        return now_ms >= self._up_ms

    def due_ms(self, now_ms: int) -> int | None:
        return max(now_ms + 1, self._up_ms)

    def lost(self, now_ms: int) -> None:
        pass

    def worked(self) -> None:
        pass

    def version_of(self, api: ApiKey) -> int | None:
        return 1

    def send(
        self, request: RequestSource, now_ms: int, on_done: OnDone, timeout_ms: int | None = None
    ) -> None:
        if not self.is_ready(now_ms):
            on_done(BrokerUnreachable("no connection"), now_ms)
            return
        if isinstance(request, VersionedRequest):
            message = request.build(request.api.request.VERSIONS.highest)
        else:
            message = request
        self._queue.append(_Queued(message, on_done))
        self._serve()

    def send_leave(self, request: RequestSource, now_ms: int, on_done: Callable[[], None]) -> None:
        self.send(request, now_ms, lambda answer, then_ms: on_done())

    def repeat(
        self, request: Message, first_ms: int, every_ms: int, until_ms: int, on_response: OnDone
    ) -> int:
        if not self.is_ready(self._world.now_ms):
            raise BrokerUnreachable("no connection")
        request_id = self._next_order
        self._next_order += 1
        self._orders[request_id] = on_response

        def beat() -> None:
            if request_id in self._orders and self._world.now_ms < until_ms:
                self._queue.append(_Queued(request, self._heard(request_id)))
                self._serve()
                self._world.after(every_ms, beat)

        self._world.after(first_ms - self._world.now_ms, beat)
        return request_id

    def cancel(self, request_id: int) -> None:
        self._orders.pop(request_id, None)

    def _heard(self, request_id: int) -> OnDone:
        def hear(answer: Message | MillstreamError, now_ms: int) -> None:
            on_response = self._orders.get(request_id)
            if on_response is not None and not isinstance(answer, MillstreamError):
                on_response(answer, now_ms)

        return hear

    # The wire.

    def hang_up(self, outage_ms: int) -> None:
        """The connection breaks, and stays away for a while."""
        self._life += 1
        self._is_busy = False
        self._up_ms = self._world.now_ms + outage_ms
        queued, orders = list(self._queue), list(self._orders.values())
        self._queue.clear()
        self._orders.clear()
        error = BrokerUnreachable("the connection broke")
        for on_done in [each.on_done for each in queued] + orders:
            self._hand_over(partial(self._fail, on_done, error))

    def _fail(self, on_done: OnDone, error: MillstreamError) -> None:
        on_done(error, self._world.now_ms)

    def _serve(self) -> None:
        if self._is_busy or not self._queue:
            return
        self._is_busy = True
        life = self._life
        self._world.after(self._random.randint(1, DELAY_MAX_MS), lambda: self._arrive(life))

    def _arrive(self, life: int) -> None:
        if life != self._life or not self._queue:
            return
        if self._random.random() < self._world.loss:
            self.hang_up(self._random.randint(0, OUTAGE_MAX_MS))
            return
        message = self._queue[0].message

        def done(outcome: Message | ApiError) -> None:
            answer = outcome
            if isinstance(outcome, ApiError):
                answer = RESPONSES[type(message)](error_code=outcome.code)  # type: ignore[call-arg]  # all have it
            self._world.after(
                self._random.randint(1, DELAY_MAX_MS), lambda: self._answer(life, answer)
            )

        self._world.coordinate(message, done)

    def _answer(self, life: int, answer: Message | ApiError) -> None:
        if life != self._life:
            return
        if self._random.random() < self._world.loss:
            self.hang_up(self._random.randint(0, OUTAGE_MAX_MS))
            return
        assert not isinstance(answer, ApiError)
        asked = self._queue.popleft()
        self._is_busy = False
        self._hand_over(lambda: asked.on_done(answer, self._world.now_ms))
        self._serve()

    def _hand_over(self, call: Callable[[], None]) -> None:
        """Tell the member, unless its process cannot run: then when it can, in order."""
        if self._world.now_ms >= self.deaf_until_ms:
            call()
        else:
            self._world.after(
                self.deaf_until_ms - self._world.now_ms, lambda: self._hand_over(call)
            )


def caller_of(message: Message) -> Caller:
    """Who asks, in the newest version."""
    return Caller("client", "/127.0.0.1", message.VERSIONS.highest)
