"""From what a member owns to what the coordinator wants it to own, one step at a time.

First it gives up, its listener runs, then it takes, its listener runs, and then the coordinator
is to hear of it. What the coordinator wants may change meanwhile: the next round begins from there.
Partitions come by topic id; those whose name is not known yet wait for the metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.client.consumer.membership.events import Assigned, Revoked
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.consumer.membership.handover import Handover


class TopicIdPartition(NamedTuple):
    """A partition as the coordinator names it."""

    topic_id: Uuid
    partition: int


class Reconciliation:
    """What a member of a consumer group owns, and is to own."""

    def __init__(
        self,
        handover: Handover,
        view: GroupView,
        commits_first: bool,
        on_change: Callable[[], None],
    ) -> None:
        self._handover = handover
        self._view = view
        self._commits_first = commits_first
        self._on_change = on_change
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self._target: frozenset[TopicIdPartition] | None = None
        self._is_moving = False
        self._round = 0
        self.owned: frozenset[TopicPartition] = frozenset()
        """By name; safe to read from other threads."""

    def owned_by_id(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        """What the coordinator is to hear."""
        by_id: dict[Uuid, list[int]] = {}
        for each in sorted(self._owned):
            by_id.setdefault(each.topic_id, []).append(each.partition)
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_id.items()
        ]

    def aim_at(self, target: frozenset[TopicIdPartition]) -> None:
        """The coordinator wants this."""
        self._target = target

    def forget(self) -> None:
        """Nothing is ours and nothing is wanted; steps under way lead nowhere."""
        self._round += 1
        self._is_moving = False
        self._target = None
        self._owned = {}
        self._publish()

    def advance(self, now_ms: int) -> None:
        """Take the next step, if there is one and none is under way."""
        if self._target is None or self._is_moving:
            return
        surplus = self._owned.keys() - self._target
        if surplus:
            self._give_up(surplus)
        else:
            self._receive()

    def _give_up(self, surplus: set[TopicIdPartition]) -> None:
        self._is_moving = True
        current = self._round

        def gone(now_ms: int) -> None:
            if current != self._round:
                return
            for each in surplus:
                self._owned.pop(each, None)
            self._publish()
            self._done(now_ms)

        partitions = frozenset(self._owned[each] for each in surplus)
        self._handover.give(Revoked(partitions, self._commits_first), gone)

    def _receive(self) -> None:
        assert self._target is not None
        added: dict[TopicIdPartition, TopicPartition] = {}
        is_incomplete = False
        for each in self._target - self._owned.keys():
            name = self._view.name_of(each.topic_id)
            if name is None:
                is_incomplete = True
            else:
                added[each] = TopicPartition(name, each.partition)
        if is_incomplete:
            self._view.ask_again()
        if not added:
            return
        self._is_moving = True
        current = self._round
        self._owned.update(added)
        self._publish()

        def taken(now_ms: int) -> None:
            if current == self._round:
                self._done(now_ms)

        self._handover.give(Assigned(frozenset(added.values())), taken)

    def _done(self, now_ms: int) -> None:
        self._is_moving = False
        self._on_change()
        self.advance(now_ms)

    def _publish(self) -> None:
        self.owned = frozenset(self._owned.values())
