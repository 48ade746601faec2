"""`sticky` and `cooperative-sticky`: shares as equal as can be, and as little moves as can be.

Both compute the same. With `sticky` all members give everything back before each rebalance; with
`cooperative-sticky` they keep what they have, so a partition that moves is first taken from its
owner and given to its next one in the rebalance that follows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.client.consumer.membership.assignors.balancing import Balancer
from millstream.client.consumer.membership.assignors.problem import NO_GENERATION
from millstream.client.consumer.membership.assignors.user_data import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.consumer.membership.assignors.problem import (
        GroupMember,
        GroupTopics,
        PreviousAssignment,
    )
    from millstream.types import TopicPartition


class StickyAssignor:
    """Java's StickyAssignor: its members and ours can be in one group."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """What this member had; nothing before its first assignment."""
        return None if previous.generation == NO_GENERATION else encode_sticky(previous)

    def assign(
        self, members: Mapping[str, GroupMember], topics: GroupTopics
    ) -> dict[str, list[TopicPartition]]:
        """Balance the partitions over the members; each keeps what it can."""
        informed = {}
        for name, member in members.items():
            past = decode_sticky(member.user_data)
            informed[name] = replace(member, owned=past.partitions, generation=past.generation)
        return Balancer(informed, topics).assign()


class CooperativeStickyAssignor:
    """Java's CooperativeStickyAssignor: its members and ours can be in one group."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """The generation, for leaders that do not read it from the subscription."""
        return encode_generation(previous.generation)

    def assign(
        self, members: Mapping[str, GroupMember], topics: GroupTopics
    ) -> dict[str, list[TopicPartition]]:
        """Balance the partitions; what another member still owns is nobody's this time."""
        informed = {name: _with_generation(member) for name, member in members.items()}
        found = Balancer(informed, topics).assign()
        owners: dict[TopicPartition, set[str]] = {}
        for name, member in members.items():
            for each in member.owned:
                owners.setdefault(each, set()).add(name)
        nobody: set[str] = set()
        return {
            name: [each for each in partitions if not owners.get(each, nobody) - {name}]
            for name, partitions in found.items()
        }


def _with_generation(member: GroupMember) -> GroupMember:
    if member.generation != NO_GENERATION:
        return member
    return replace(member, generation=decode_generation(member.user_data))
