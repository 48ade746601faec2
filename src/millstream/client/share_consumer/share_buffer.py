"""Between the I/O thread and the application: records that were acquired, outcomes, errors, wakes.

A mailbox: one lock and one condition, held for moments. The application takes, the I/O thread puts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.client.consumer.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.client.share_consumer.node_session import NodeSession
    from millstream.errors import MillstreamError
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition


class Acquired(NamedTuple):
    """Records of one partition that are with us, and how often each was delivered."""

    session: NodeSession
    partition: TopicPartition
    """By the name of the wire."""
    records: list[ConsumerRecord[Any, Any]]
    delivery_counts: list[int]


def split(pieces: Iterable[Acquired], count: int) -> tuple[list[Acquired], list[Acquired]]:
    """The first so many records, and the rest."""
    first: list[Acquired] = []
    rest: list[Acquired] = []
    for each in pieces:
        if count <= 0:
            rest.append(each)
        elif len(each.records) <= count:
            first.append(each)
        else:
            first.append(_part(each, slice(count)))
            rest.append(_part(each, slice(count, None)))
        count -= len(each.records)
    return first, rest


def _part(acquired: Acquired, which: slice) -> Acquired:
    return acquired._replace(
        records=acquired.records[which], delivery_counts=acquired.delivery_counts[which]
    )


class Outcome(NamedTuple):
    """What became of acknowledgements of one partition."""

    partition: TopicPartition
    """By the name of the wire."""
    offsets: frozenset[int]
    error: MillstreamError | None


class ShareBuffer(Mailbox):
    """What has arrived for the application."""

    def __init__(self) -> None:
        super().__init__()
        self._acquired: deque[Acquired] = deque()
        self._outcomes: list[Outcome] = []

    # The application.

    def take(self, count: int) -> list[Acquired]:
        """Up to so many records, in the order in which they came."""
        with self._condition:
            found, rest = split(self._acquired, count)
            self._acquired = deque(rest)
        return found

    def put_back(self, acquired: Iterable[Acquired]) -> None:
        """Give records back that the application could not be given; they are next."""
        with self._condition:
            self._acquired = deque([*acquired, *self._acquired])

    def take_outcomes(self) -> list[Outcome]:
        """What became of acknowledgements since the last time."""
        with self._condition:
            found, self._outcomes = self._outcomes, []
        return found

    def has_something(self) -> bool:
        """Whether a poll would not wait. To be asked under the lock, by `wait`."""
        return bool(self._acquired or self.has_news())

    # The I/O thread.

    @property
    def is_empty(self) -> bool:
        """Whether the application has taken all records."""
        return not self._acquired

    def put(self, acquired: Acquired) -> None:
        """Records have come."""
        with self._condition:
            self._acquired.append(acquired)
        self._notify()

    def put_outcome(self, outcome: Outcome) -> None:
        """Acknowledgements were answered; nobody waits for that."""
        with self._condition:
            self._outcomes.append(outcome)

    def drop(self, session: NodeSession | None = None) -> None:
        """The broker has taken back what came in a session; in all of them, without one."""
        with self._condition:
            self._acquired = deque(
                each
                for each in self._acquired
                if session is not None and each.session is not session
            )
