"""One change of the assignment at a time, each acknowledged before the next is told.

The state machines of both group protocols give their events to the consumer through here, and go
on when the user's listener has run. It never runs a listener itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from millstream.client.consumer.membership.events import Revoked

if TYPE_CHECKING:
    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.consumer.membership.port import AssignmentOwner
    from millstream.types import TopicPartition

Then: TypeAlias = Callable[[int], None]
"""What to go on with, told the time."""


class Handover:
    """Events on their way to the user's thread, in order."""

    def __init__(self, owner: AssignmentOwner) -> None:
        self._owner = owner
        self._events: deque[tuple[RebalanceEvent, Then | None]] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether an event has not been acknowledged."""
        return bool(self._events)

    @property
    def being_revoked(self) -> frozenset[TopicPartition]:
        """The partitions that the user's listener is about to give up."""
        revoked = (event.partitions for event, _ in self._events if isinstance(event, Revoked))
        return frozenset().union(*revoked)

    def give(self, event: RebalanceEvent, then: Then | None = None) -> None:
        """Tell the consumer, now or when it is done with what it was told before."""
        self._events.append((event, then))
        if len(self._events) == 1:
            self._owner.on_rebalance(event)

    def acknowledge(self, event: RebalanceEvent, now_ms: int) -> None:
        """The listener has run; anything but the event that was given is ignored."""
        if not self._events or self._events[0][0] != event:
            return
        _, then = self._events.popleft()
        has_next = bool(self._events)
        if then is not None:
            then(now_ms)
        # What `then` gave was told by `give` unless it had to wait behind something.
        if has_next:
            self._owner.on_rebalance(self._events[0][0])

    def abandon(self) -> None:
        """Nobody will acknowledge any more."""
        self._events.clear()
