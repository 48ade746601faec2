"""`roundrobin`: all partitions of all topics are dealt to the members like cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.consumer.membership.assignors.problem import in_stable_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.consumer.membership.assignors.problem import (
        GroupMember,
        GroupTopics,
        PreviousAssignment,
    )
    from millstream.types import TopicPartition


class RoundRobinAssignor:
    """Java's RoundRobinAssignor: its members and ours can be in one group."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """Nothing: the deal does not depend on the past."""
        return None

    def assign(
        self, members: Mapping[str, GroupMember], topics: GroupTopics
    ) -> dict[str, list[TopicPartition]]:
        """Deal the partitions, in order, to the members, in order; the unsubscribed pass."""
        ordered = in_stable_order(members.values())
        wanted = frozenset().union(*(each.topics for each in ordered))
        found: dict[str, list[TopicPartition]] = {each.member_id: [] for each in ordered}
        turn = 0
        for topic in sorted(topics.partition_counts):
            if topic not in wanted:
                continue
            for partition in topics.partitions_of(topic):
                while topic not in ordered[turn % len(ordered)].topics:
                    turn += 1
                found[ordered[turn % len(ordered)].member_id].append(partition)
                turn += 1
        return found
