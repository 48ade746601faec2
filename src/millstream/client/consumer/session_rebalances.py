"""The application's side of rebalances: listeners run here, on the thread that polls.

`ConsumerSession` has one. The group goes on when a change is acknowledged, and that is posted
whatever the user's listener does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.consumer.listeners import listener_method
from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.starting_point import COMMITTED
from millstream.client.consumer.steps import Invoke

if TYPE_CHECKING:
    from collections.abc import Collection

    from millstream.client.consumer.fetch_buffer import FetchBuffer
    from millstream.client.consumer.link import CoreLink
    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.consumer.names import Names
    from millstream.client.consumer.session_commits import SessionCommits
    from millstream.client.consumer.steps import Steps
    from millstream.types import TopicPartition


class SessionRebalances:
    """Changes of one consumer's assignment by its group."""

    def __init__(
        self,
        link: CoreLink,
        buffer: FetchBuffer,
        names: Names,
        commits: SessionCommits,
        commit_timeout_s: float,
    ) -> None:
        self._link = link
        self._buffer = buffer
        self._names = names
        self._commits = commits
        self._commit_timeout_s = commit_timeout_s
        self.listener: object | None = None
        self.commits_processed_only = False
        """Whether what the last poll gave counts as not yet processed."""

    def run(self) -> Steps[None]:
        """Go through all changes that have come."""
        while (event := self._buffer.next_event()) is not None:
            if isinstance(event, Assigned):
                yield from self._assign(event)
            else:
                yield from self._give_up(event)

    def _assign(self, event: Assigned) -> Steps[None]:
        self._buffer.assign(event.partitions, COMMITTED)
        try:
            yield from self._tell("on_partitions_assigned", event.partitions)
        finally:
            # Now, because the listener may have sought.
            starts = self._buffer.starts(event.partitions)
            self._link.post(lambda core, _now_ms: core.begin(starts))
            self._acknowledge(event)

    def _give_up(self, event: Revoked | Lost) -> Steps[None]:
        try:
            if isinstance(event, Revoked):
                if event.commits_first:
                    yield from self._commits.commit_quietly(
                        event.partitions,
                        self._commit_timeout_s,
                        processed=self.commits_processed_only,
                    )
                yield from self._tell("on_partitions_revoked", event.partitions)
            else:
                yield from self._tell("on_partitions_lost", event.partitions)
        finally:
            self._buffer.unassign(event.partitions)
            self._link.post(lambda core, _now_ms: core.end(event.partitions))
            self._acknowledge(event)

    def _tell(self, name: str, partitions: Collection[TopicPartition]) -> Steps[None]:
        method = None if self.listener is None else listener_method(self.listener, name)
        if method is not None:
            yield Invoke(method, (self._names.sorted_from_wire(partitions),))

    def _acknowledge(self, event: RebalanceEvent) -> None:
        def acknowledge(core: object, now_ms: int) -> None:
            membership = self._link.core.membership
            assert membership is not None
            membership.acknowledge(event, now_ms)

        self._link.post(acknowledge)
