"""`ConsumerGroups`: the consumer groups of one shard. Heartbeats, departures, timeouts.

The shard enters it for the records and calls of KIP-848. Every decision is a `GroupPlan` whose
records are replayed; only deadlines are set at once, and those look again when they come. Members
of the classic protocol in these groups are served by `ClassicMembers`, with the same plans.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.classic.group import ClassicGroup
from millstream.coordinator.group.consumer.classic_members import ClassicMembers
from millstream.coordinator.group.consumer.deadlines import Deadlines
from millstream.coordinator.group.consumer.description import described
from millstream.coordinator.group.consumer.group import ConsumerGroup
from millstream.coordinator.group.consumer.heartbeats import (
    check_heartbeat,
    is_full,
    known_member,
    leaving_member,
    owned_partitions,
    updated,
)
from millstream.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from millstream.coordinator.group.consumer.migration import downgrade, is_to_downgrade, upgraded
from millstream.coordinator.group.consumer.plan import GroupPlan
from millstream.coordinator.group.consumer.reconciliation import reconciled
from millstream.coordinator.group.consumer.replay import ConsumerReplay
from millstream.coordinator.group.consumer.subscriptions import compiled
from millstream.errors import GroupIdNotFound, GroupMaxSizeReached
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment as GivenAssignment,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping
    from random import Random

    from millstream.coordinator.decision import Caller, Moment
    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.classic.manager import ClassicGroups
    from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
    from millstream.coordinator.group.consumer.member import ConsumerMember, Subscription
    from millstream.coordinator.group.consumer.ports import SubscribableTopics
    from millstream.coordinator.group.group import Group
    from millstream.coordinator.timers import TimerQueue
    from millstream.errors import ApiError
    from millstream.protocol.message import Message
    from millstream.protocol.messages.consumer_group_describe import DescribedGroup
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
    )

T = TypeVar("T")


class ConsumerGroups:
    """The groups of KIP-848 in one shard."""

    def __init__(
        self,
        config: ConsumerGroupConfig,
        groups: MutableMapping[str, Group],
        timers: TimerQueue,
        topics: SubscribableTopics,
        random: Random,
        classic: ClassicGroups,
    ) -> None:
        """`groups` are those of every kind, shared with the shard; `classic` are its neighbours."""
        self._config = config
        self._groups = groups
        self._topics = topics
        self._random = random
        self._classic = classic
        self.deadlines = Deadlines(config, timers, topics, self._fence)
        """What members must do by when."""
        self.classic_members = ClassicMembers(self, classic, topics)
        """How members of the classic protocol are served."""
        self._replay = ConsumerReplay(groups, self.deadlines.forget)

    # Heartbeats.

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Moment
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """A member joins, lives, follows its assignment, or leaves."""
        check_heartbeat(request, caller.version, self._config.assignors)
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request, now)
        plan = self._plan_for(request, now)
        member_id = request.member_id or self.new_id()
        known = known_member(plan.group, request, member_id)
        self.require_room(plan.group, known)
        asked = updated(None if known is None else known.subscription, request, caller)
        if asked.regex is not None:
            compiled(asked.regex)
        self.follow(plan, known, member_id, asked, owned_partitions(request), now)
        before = None if known is None else known.progress.assignment
        return self.decided(plan, self._response(plan, member_id, request, before), now)

    def _plan_for(self, request: ConsumerGroupHeartbeatRequest, now: Moment) -> GroupPlan:
        found = self._groups.get(request.group_id)
        if isinstance(found, ConsumerGroup):
            return GroupPlan(found, self._topics)
        if request.member_epoch == JOIN_EPOCH:
            if found is None:
                return GroupPlan(ConsumerGroup(request.group_id), self._topics)
            if isinstance(found, ClassicGroup):
                return self._plan_upgrade(found, now)
        raise GroupIdNotFound(f"there is no consumer group {request.group_id}")

    def _plan_upgrade(self, group: ClassicGroup, now: Moment) -> GroupPlan:
        if group.is_empty:
            # Nobody is in it: it becomes a group of this protocol, with its offsets.
            plan = GroupPlan(ConsumerGroup(group.group_id), self._topics)
            plan.records.extend(group.tombstones())
            return plan
        upgrade, records = upgraded(group, self._topics, self._config)
        plan = GroupPlan(upgrade, self._topics)
        plan.records.extend(records)
        for member in upgrade.members.values():
            self.deadlines.heard_of(group.group_id, member, now.now_ms)
        return plan

    def _response(
        self,
        plan: GroupPlan,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        before: Assignment | None,
    ) -> ConsumerGroupHeartbeatResponse:
        progress = plan.members[member_id].progress
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=progress.epoch,
            heartbeat_interval_ms=self.deadlines.heartbeat_interval_ms(plan.group.group_id),
        )
        assignment = progress.assignment
        if is_full(request) or assignment != before:
            response.assignment = GivenAssignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatResponseTopicPartitions(
                        topic_id=topic, partitions=sorted(partitions)
                    )
                    for topic, partitions in sorted(assignment.items())
                ]
            )
        return response

    # What members of either protocol have in common.

    def new_id(self) -> str:
        """An id for a member that has none."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def require_room(self, group: ConsumerGroup, known: ConsumerMember | None) -> None:
        """Raise if a group has no place for somebody new."""
        if known is None and len(group.members) >= self._config.size_max:
            raise GroupMaxSizeReached(f"{group.group_id} has {len(group.members)} members")

    def follow(
        self,
        plan: GroupPlan,
        known: ConsumerMember | None,
        member_id: str,
        asked: Subscription,
        owned: Assignment | None,
        now: Moment,
    ) -> None:
        """A member says what it wants and has; it comes as far as it can.

        `known` is the member as it was. It may have another id: a static one that comes back.
        """
        if known is not None and known.member_id != member_id:
            progress = known.progress._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
            plan.replace(known, member_id, progress)
        is_changed = asked.asks_for_other_topics_than(None if known is None else known.subscription)
        plan.subscribe(member_id, asked)
        if is_changed or plan.group.metadata_version is not self._topics.topics_version:
            plan.raise_epoch(now.wall_ms, is_forced=is_changed)
        plan.assign(self._config.assignors[0], now.wall_ms)
        target = plan.targets.get(member_id, {})
        progress = plan.members[member_id].progress
        plan.advance(
            member_id,
            reconciled(progress, target, plan.assignment_epoch, plan.group.is_free, owned),
        )
        member = plan.members[member_id]
        self.deadlines.must_let_go(plan.group.group_id, member, now.now_ms)
        self.deadlines.heard_of(plan.group.group_id, member, now.now_ms)

    def decided(self, plan: GroupPlan, response: T, now: Moment) -> Decision[T]:
        """What a plan comes to: its records, or those of a classic group if it is one again."""
        group_id = plan.group.group_id
        if plan.records and is_to_downgrade(plan, self._config, self._classic.size_max):
            return Decision(
                response,
                downgrade(plan, self._topics, now.wall_ms),
                # Whether it is committed or not: the group as it is in the log counts.
                on_committed=lambda _: self._classic.take_over(group_id, now),
            )
        compared = partial(self._compared, group_id, self._topics.topics_version)
        return Decision(response, plan.records, on_committed=compared)

    def _compared(self, group_id: str, version: object, error: ApiError | None) -> None:
        """A group's subscriptions were compared with a version of the metadata."""
        group = self._groups.get(group_id)
        if error is None and isinstance(group, ConsumerGroup):
            group.metadata_version = version

    # Departures.

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: Moment
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self.require(request.group_id)
        member = leaving_member(group, request)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # It keeps its partitions until its session ends or it is back.
            plan = GroupPlan(group, self._topics)
            away = member.progress._replace(
                epoch=LEAVE_STATIC_EPOCH, previous_epoch=member.epoch, pending_revocation={}
            )
            plan.advance(member.member_id, away)
            return Decision(response, plan.records)
        return self.remove(group, [member.member_id], response, now)

    def remove(
        self, group: ConsumerGroup, member_ids: Iterable[str], response: T, now: Moment
    ) -> Decision[T]:
        """Members are gone, for good; the others share what they had."""
        plan = GroupPlan(group, self._topics)
        for member_id in member_ids:
            plan.remove(member_id)
        if plan.records:
            plan.raise_epoch(now.wall_ms, is_forced=True)
        return self.decided(plan, response, now)

    def _fence(
        self, group_id: str, member_id: str, now: Moment, is_due: Callable[[ConsumerMember], bool]
    ) -> Decision[None]:
        """A deadline of a member has come."""
        group = self._groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or not is_due(member):
            return Decision(None)
        assert isinstance(group, ConsumerGroup)
        return self.remove(group, [member_id], None, now)

    # The shard.

    def loaded(self, now_ms: int) -> None:
        """Give every member a whole session to be heard of."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self.deadlines.heard_of(group.group_id, member, now_ms)

    def describe(self, group_id: str) -> DescribedGroup:
        """State, epochs, members and their assignments."""
        return described(self.require(group_id), self._topics, self._config.assignors[0])

    def require(self, group_id: str) -> ConsumerGroup:
        """A consumer group that must be there."""
        found = self._groups.get(group_id)
        if not isinstance(found, ConsumerGroup):
            raise GroupIdNotFound(f"there is no consumer group {group_id}")
        return found

    @property
    def replays(self) -> dict[type[Message], Callable[[Any, Any, object], None]]:
        """By the type of a record's key: who makes it true."""
        return self._replay.by_key
