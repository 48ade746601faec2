"""What the leader of a classic group does beside being a member: it assigns, and watches topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.consumer.membership.classic_messages import (
    computed_assignments,
    read_members,
)

if TYPE_CHECKING:
    from millstream.client.consumer.membership.assignors import Assignor
    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.protocol.messages.join_group import JoinGroupResponse
    from millstream.protocol.messages.sync_group import SyncGroupRequestAssignment


class Leadership:
    """One generation's leader."""

    def __init__(self, assignor: Assignor, answer: JoinGroupResponse, view: GroupView) -> None:
        self.assignor = assignor
        self._members = read_members(answer.members)
        self._view = view
        # The coordinator wants nothing assigned when a static member came back as the leader.
        self._skips = answer.skip_assignment
        self.topics = frozenset[str]().union(*(each.topics for each in self._members.values()))
        """What the whole group reads."""
        self._needed_update = 0
        self._sizes: dict[str, int] | None = None

    def ask(self) -> None:
        """Find out how large the topics are."""
        self._needed_update = self._view.need(self.topics)

    @property
    def is_informed(self) -> bool:
        """Whether all is known that can be known."""
        return self._view.updates >= self._needed_update

    def assign(self) -> list[SyncGroupRequestAssignment]:
        """Decide who gets what; raises what the assignor failed with."""
        topics = self._view.group_topics(self.topics)
        self._sizes = dict(topics.partition_counts)
        return [] if self._skips else computed_assignments(self.assignor, self._members, topics)

    def have_topics_changed(self) -> bool:
        """Whether the assignment is out of date; says so once."""
        sizes = self._view.sizes(self.topics)
        if self._sizes is None or sizes == self._sizes:
            return False
        self._sizes = sizes
        return True
