"""Answers of one partition that wait until records are committed, or on disk.

Both tiers put what they owe here: the full path a part of a request, the fast path a whole answer.
A queue is ordered by the offset that is required, so that a high watermark that moves answers just
those it has passed, and an answer costs the same however many wait. `ChangeNotifier` has it checked
soon after the partition has changed; `AppendService` tells it the time.

It is plain Python on purpose: an answer that waits for a follower has waited for a round trip, next
to which a few calls do not count. Partitions without followers never come here.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from millstream.errors import RequestTimedOut

if TYPE_CHECKING:
    from millstream.errors import ApiError
    from millstream.replica.partition import Partition

_logger = logging.getLogger(__name__)

NEVER_MS: Final = 1 << 63
"""Later than every deadline."""


class PendingAck(Protocol):
    """One answer that is owed."""

    @property
    def required_offset(self) -> int:
        """Everything before it has to be safe."""
        ...

    @property
    def deadline_ms(self) -> int:
        """When to answer at the latest, on the monotonic clock."""
        ...

    @property
    def needs_all(self) -> bool:
        """Whether safe means committed (acks=all), or on this disk."""
        ...

    def complete(self, error: ApiError | None) -> None:
        """Answer. Called once."""
        ...


class PendingAcks:
    """What one partition owes."""

    __slots__ = ("_partition", "_until_committed", "_until_on_disk", "deadline_ms")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._until_committed: deque[PendingAck] = deque()
        self._until_on_disk: deque[PendingAck] = deque()
        self.deadline_ms = NEVER_MS
        """No answer is due before; there may be none then either."""

    def __len__(self) -> int:
        """How many answers wait."""
        return len(self._until_committed) + len(self._until_on_disk)

    def add(self, ack: PendingAck) -> None:
        """Let an answer wait."""
        queue = self._until_committed if ack.needs_all else self._until_on_disk
        is_in_order = not queue or queue[-1].required_offset <= ack.required_offset
        queue.append(ack)
        if not is_in_order:
            # The retry of a batch further back, which is rare.
            ordered = sorted(queue, key=lambda each: each.required_offset)
            queue.clear()
            queue.extend(ordered)
        self.deadline_ms = min(self.deadline_ms, ack.deadline_ms)
        self._partition.has_acks = True

    def check(self) -> None:
        """The partition has changed: answer what is safe now, or will never be for sure.

        A partition that is no longer led is checked at once, so that no answer outlives it.
        """
        partition = self._partition
        if partition.has_the_only_log:
            # The broker is stopping: no need to make a client write the records twice.
            tail = partition.tail
            safe = tail.recovery_point if partition.waits_for_disk else tail.log_end_offset
            self._answer(self._until_committed, safe, None)
            self._answer(self._until_on_disk, safe, None)
        elif not partition.is_leader:
            error = partition.refusal()
            self._answer(self._until_committed, NEVER_MS, error)
            self._answer(self._until_on_disk, NEVER_MS, error)
        else:
            queue, high_watermark = self._until_committed, partition.tail.high_watermark
            if queue and queue[0].required_offset <= high_watermark:
                self._answer(queue, high_watermark, partition.commit_error())
            self._answer(self._until_on_disk, partition.tail.recovery_point, None)

    def expire(self, now_ms: int) -> None:
        """Answer what has waited long enough."""
        self.check()
        late: list[PendingAck] = []
        for queue in (self._until_committed, self._until_on_disk):
            late += [ack for ack in queue if ack.deadline_ms <= now_ms]
            kept = [ack for ack in queue if ack.deadline_ms > now_ms]
            queue.clear()
            queue.extend(kept)
        self._note_rest()
        for ack in late:
            self._complete(ack, self._timeout())

    def _timeout(self) -> ApiError:
        return RequestTimedOut(
            f"{self._partition.name}: the records are in the log, but were not acknowledged in time"
        )

    def _answer(self, queue: deque[PendingAck], safe: int, error: ApiError | None) -> None:
        """Answer what requires no more than an offset."""
        while queue and queue[0].required_offset <= safe:
            self._complete(queue.popleft(), error)
        if not self:
            self._note_rest()

    def _complete(self, ack: PendingAck, error: ApiError | None) -> None:
        try:
            ack.complete(error)
        except Exception:
            # One that cannot be answered must not keep the others from their answers.
            _logger.exception("an answer that had waited could not be given")

    def _note_rest(self) -> None:
        self._partition.has_acks = bool(self)
        waiting = (*self._until_committed, *self._until_on_disk)
        self.deadline_ms = min((ack.deadline_ms for ack in waiting), default=NEVER_MS)
