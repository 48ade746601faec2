"""Producer ids: unique in the cluster, handed out from blocks that the controller grants.

InitProducerId asks here. The next block is asked for while the current one still has some, so
hardly anybody waits for it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.controller.decision import RequestContext
from millstream.errors import ApiError, CoordinatorLoadInProgress, error_for_code
from millstream.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.server.ports import ControllerChannel

    IdDone: TypeAlias = Callable[[int | ApiError], None]

PREFETCH_AT: Final = 100
"""A new block is asked for when so few ids are left; a block has 1000."""
WAITING_MAX: Final = 10_000
"""How many askers may wait for a block; more are told to try again."""


class ProducerIdManager:
    """The blocks that this broker was granted."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        controller: ControllerChannel,
        clock: Clock,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._controller = controller
        self._clock = clock
        self._ids: deque[range] = deque()
        self._is_asking = False
        self._waiting: deque[IdDone] = deque()

    def generate(self, done: IdDone) -> None:
        """Give `done` an id that nobody has, at once or when there is a block; or an error."""
        if len(self._waiting) >= WAITING_MAX:
            done(CoordinatorLoadInProgress("too many producers wait for an id"))
            return
        self._waiting.append(done)
        self._serve()
        if sum(map(len, self._ids)) <= PREFETCH_AT and not self._is_asking:
            self._ask()

    def _serve(self) -> None:
        while self._waiting and self._ids:
            block = self._ids.popleft()
            if len(block) > 1:
                self._ids.appendleft(block[1:])
            self._waiting.popleft()(block[0])

    def _ask(self) -> None:
        self._is_asking = True
        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        context = RequestContext(
            now_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.wall_ms(),
            version=AllocateProducerIdsRequest.RELEASED.highest,
        )
        self._controller.submit(request, context, self._granted)

    def _granted(self, response: Message) -> None:
        assert isinstance(response, AllocateProducerIdsResponse)
        self._is_asking = False
        if response.error_code == 0:
            start = response.producer_id_start
            self._ids.append(range(start, start + response.producer_id_len))
            self._serve()
            return
        # The askers try again, and the first of them asks the controller again.
        reason = error_for_code(response.error_code)
        error = CoordinatorLoadInProgress(f"the controller grants no producer ids now: {reason}")
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(error)
