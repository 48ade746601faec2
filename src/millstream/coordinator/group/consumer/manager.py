"""`ConsumerGroups`: the consumer groups of one shard. Heartbeats, departures, timeouts, replay.

The shard enters it for the records and calls of KIP-848. Every decision is a `GroupPlan` whose
records are replayed; only deadlines are set at once, and those look again when they come.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.consumer.group import ConsumerGroup
from millstream.coordinator.group.consumer.heartbeats import (
    check_heartbeat,
    is_full,
    known_member,
    leaving_member,
    owned_partitions,
    updated,
)
from millstream.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    MemberState,
    Progress,
)
from millstream.coordinator.group.consumer.plan import GroupPlan
from millstream.coordinator.group.consumer.reconciliation import reconciled
from millstream.coordinator.group.consumer.records import progress_of, subscription_of, target_of
from millstream.coordinator.group.consumer.subscriptions import compiled
from millstream.errors import GroupIdNotFound, GroupMaxSizeReached
from millstream.protocol.messages.consumer_group_describe import (
    Assignment as DescribedAssignment,
)
from millstream.protocol.messages.consumer_group_describe import (
    DescribedGroup,
    Member,
    TopicPartitions,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment as GivenAssignment,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from millstream.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from random import Random

    from millstream.coordinator.decision import Caller, Moment
    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
    from millstream.coordinator.group.consumer.member import ConsumerMember
    from millstream.coordinator.group.consumer.ports import SubscribableTopics
    from millstream.coordinator.group.group import Group
    from millstream.coordinator.timers import TimerQueue
    from millstream.errors import ApiError
    from millstream.protocol.message import Message
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
    )

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
_CONSUMER, _CLASSIC = 1, 0
"""What ConsumerGroupDescribe calls the protocols of members."""


class ConsumerGroups:
    """The groups of KIP-848 in one shard."""

    def __init__(
        self,
        config: ConsumerGroupConfig,
        groups: MutableMapping[str, Group],
        timers: TimerQueue,
        topics: SubscribableTopics,
        random: Random,
    ) -> None:
        """`groups` are those of every kind, shared with the shard."""
        self._config = config
        self._groups = groups
        self._timers = timers
        self._topics = topics
        self._random = random

    # Heartbeats.

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Moment
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """A member joins, lives, follows its assignment, or leaves."""
        check_heartbeat(request, caller.version, self._config.assignors)
        if request.member_epoch < JOIN_EPOCH:
            return self._leave(request, now)
        plan = self._plan_for(request)
        group = plan.group
        member_id = request.member_id or str(UUID(int=self._random.getrandbits(128), version=4))
        known = known_member(group, request, member_id)
        if known is None and len(group.members) >= self._config.size_max:
            raise GroupMaxSizeReached(f"{group.group_id} has {len(group.members)} members")
        asked = updated(None if known is None else known.subscription, request, caller)
        if asked.regex is not None:
            compiled(asked.regex)
        if known is not None and known.member_id != member_id:
            progress = known.progress._replace(epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
            plan.replace(known, member_id, progress)
            self._forget(group.group_id, known.member_id)
        is_changed = asked.asks_for_other_topics_than(None if known is None else known.subscription)
        plan.subscribe(member_id, asked)
        if is_changed or group.metadata_version is not self._topics.topics_version:
            plan.raise_epoch(now.wall_ms, is_forced=is_changed)
        plan.assign(self._config.assignors[0], now.wall_ms)
        self._advance(plan, member_id, owned_partitions(request), now)
        self._watch(plan, member_id, now)
        before = None if known is None else known.progress.assignment
        return Decision(
            self._response(plan, member_id, request, before),
            plan.records,
            on_committed=partial(self._compared, group.group_id, self._topics.topics_version),
        )

    def _compared(self, group_id: str, version: object, error: ApiError | None) -> None:
        """A group's subscriptions were compared with a version of the metadata."""
        group = self._groups.get(group_id)
        if error is None and isinstance(group, ConsumerGroup):
            group.metadata_version = version

    def _plan_for(self, request: ConsumerGroupHeartbeatRequest) -> GroupPlan:
        found = self._groups.get(request.group_id)
        if isinstance(found, ConsumerGroup):
            return GroupPlan(found, self._topics)
        if found is None and request.member_epoch == JOIN_EPOCH:
            return GroupPlan(ConsumerGroup(request.group_id), self._topics)
        if found is not None and found.is_empty and request.member_epoch == JOIN_EPOCH:
            # Nobody is in it: it becomes a group of this protocol, with its offsets.
            plan = GroupPlan(ConsumerGroup(request.group_id), self._topics)
            plan.records.extend(found.tombstones())
            return plan
        raise GroupIdNotFound(f"there is no consumer group {request.group_id}")

    def _advance(
        self, plan: GroupPlan, member_id: str, owned: Assignment | None, now: Moment
    ) -> None:
        member = plan.members[member_id]
        progress = reconciled(
            member.progress,
            plan.targets.get(member_id, {}),
            plan.assignment_epoch,
            plan.group.is_free,
            owned,
        )
        plan.advance(member_id, progress)
        key = (plan.group.group_id, member_id, REBALANCE)
        if progress.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(key)
        else:
            # Once for each time that it must let go, however often it is heard of meanwhile.
            action = partial(self._end_rebalance, plan.group.group_id, member_id, progress.epoch)
            timeout_ms = member.subscription.rebalance_timeout_ms
            self._timers.set_if_absent(key, now.now_ms + timeout_ms, action)

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
            heartbeat_interval_ms=self._heartbeat_interval_ms(plan.group.group_id),
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

    # Departures.

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now: Moment
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        group = self._require(request.group_id)
        member = leaving_member(group, request)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )
        plan = GroupPlan(group, self._topics)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            # It keeps its partitions until its session ends or it is back.
            away = member.progress._replace(
                epoch=LEAVE_STATIC_EPOCH, previous_epoch=member.epoch, pending_revocation={}
            )
            plan.advance(member.member_id, away)
            return Decision(response, plan.records)
        return Decision(response, self._removal(plan, member, now))

    def _removal(self, plan: GroupPlan, member: ConsumerMember, now: Moment) -> list[Any]:
        plan.remove(member.member_id)
        plan.raise_epoch(now.wall_ms, is_forced=True)
        self._forget(plan.group.group_id, member.member_id)
        return plan.records

    def _forget(self, group_id: str, member_id: str) -> None:
        self._timers.cancel((group_id, member_id, SESSION))
        self._timers.cancel((group_id, member_id, REBALANCE))

    # Time.

    def loaded(self, now_ms: int) -> None:
        """Give every member a whole session to be heard of."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self._watch_session(group.group_id, member, now_ms)

    def _watch(self, plan: GroupPlan, member_id: str, now: Moment) -> None:
        self._watch_session(plan.group.group_id, plan.members[member_id], now.now_ms)

    def _watch_session(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        classic = member.subscription.classic
        timeout_ms = (
            self._session_timeout_ms(group_id) if classic is None else classic.session_timeout_ms
        )
        action = partial(self._end_session, group_id, member.member_id)
        self._timers.set((group_id, member.member_id, SESSION), now_ms + timeout_ms, action)

    def _end_session(self, group_id: str, member_id: str, now: Moment) -> Decision[None]:
        return self._fence(group_id, member_id, now, lambda _: True)

    def _end_rebalance(
        self, group_id: str, member_id: str, epoch: int, now: Moment
    ) -> Decision[None]:
        """A member has not let go in time."""
        return self._fence(
            group_id,
            member_id,
            now,
            lambda progress: (
                progress.epoch == epoch and progress.state is MemberState.UNREVOKED_PARTITIONS
            ),
        )

    def _fence(
        self, group_id: str, member_id: str, now: Moment, is_due: Callable[[Progress], bool]
    ) -> Decision[None]:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return Decision(None)
        member = group.members[member_id]
        if not is_due(member.progress):
            return Decision(None)
        return Decision(None, self._removal(GroupPlan(group, self._topics), member, now))

    # Settings.

    def _session_timeout_ms(self, group_id: str) -> int:
        return self._own(group_id, "consumer.session.timeout.ms", self._config.session_timeout_ms)

    def _heartbeat_interval_ms(self, group_id: str) -> int:
        return self._own(
            group_id, "consumer.heartbeat.interval.ms", self._config.heartbeat_interval_ms
        )

    def _own(self, group_id: str, name: str, default: int) -> int:
        text = self._topics.group_config(group_id).get(name)
        return default if text is None else int(text)

    # Description.

    def describe(self, group_id: str) -> DescribedGroup:
        """State, epochs, members and their assignments."""
        group = self._require(group_id)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=_assignor_of(group, self._config.assignors[0]),
            members=[self._describe(group, each) for each in group.members.values()],
        )

    def _describe(self, group: ConsumerGroup, member: ConsumerMember) -> Member:
        asked = member.subscription
        return Member(
            member_id=member.member_id,
            instance_id=asked.instance_id,
            rack_id=asked.rack,
            member_epoch=member.epoch,
            client_id=asked.client_id,
            client_host=asked.client_host,
            subscribed_topic_names=list(asked.topics),
            subscribed_topic_regex=asked.regex,
            assignment=self._named(member.progress.assignment),
            target_assignment=self._named(group.targets.get(member.member_id, {})),
            member_type=_CONSUMER if asked.classic is None else _CLASSIC,
        )

    def _named(self, assignment: Assignment) -> DescribedAssignment:
        return DescribedAssignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic, topic_name=name, partitions=sorted(partitions))
                for topic, partitions in sorted(assignment.items())
                if (name := self._topics.topic_name(topic)) is not None
            ]
        )

    def _require(self, group_id: str) -> ConsumerGroup:
        found = self._groups.get(group_id)
        if not isinstance(found, ConsumerGroup):
            raise GroupIdNotFound(f"there is no consumer group {group_id}")
        return found

    # Replay.

    @property
    def replays(self) -> dict[type[Message], Callable[[Any, Any, object], None]]:
        """By the type of a record's key: who makes it true."""
        return {
            ConsumerGroupMetadataKey: self._replay_group,
            ConsumerGroupPartitionMetadataKey: lambda key, value, _: None,
            ConsumerGroupMemberMetadataKey: self._replay_member,
            ConsumerGroupTargetAssignmentMetadataKey: self._replay_target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._replay_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._replay_progress,
            ConsumerGroupRegularExpressionKey: self._replay_regex,
        }

    def _replay_group(self, key: Any, value: Any, _: object) -> None:
        if value is None:
            if isinstance(self._groups.get(key.group_id), ConsumerGroup):
                del self._groups[key.group_id]
            return
        group = self._replayed(key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def _replay_member(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            group = self._replayed(key.group_id)
            group.put_subscription(key.member_id, subscription_of(value))
        elif (known := self._known(key.group_id)) is not None:
            known.drop(key.member_id)

    def _replay_target_epoch(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            group = self._replayed(key.group_id)
            group.assignment_epoch = value.assignment_epoch
        elif (known := self._known(key.group_id)) is not None:
            known.assignment_epoch = 0

    def _replay_target(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            self._replayed(key.group_id).targets[key.member_id] = target_of(value)
        elif (known := self._known(key.group_id)) is not None:
            known.targets.pop(key.member_id, None)

    def _replay_progress(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            self._replayed(key.group_id).put_progress(key.member_id, progress_of(value))
        elif (known := self._known(key.group_id)) is not None:
            known.drop_progress(key.member_id)

    def _replay_regex(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            group = self._replayed(key.group_id)
            group.regexes[key.regular_expression] = frozenset(value.topics)
        elif (known := self._known(key.group_id)) is not None:
            known.regexes.pop(key.regular_expression, None)

    def _replayed(self, group_id: str) -> ConsumerGroup:
        """The group that a record is about. Compaction may leave the first of its records out."""
        found = self._known(group_id)
        if found is None:
            found = self._groups[group_id] = ConsumerGroup(group_id)
        return found

    def _known(self, group_id: str) -> ConsumerGroup | None:
        found = self._groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None


def _assignor_of(group: ConsumerGroup, default: str) -> str:
    wanted = [each.subscription.assignor for each in group.members.values()]
    named = [each for each in wanted if each is not None]
    return max(sorted(set(named)), key=named.count, default=default)
