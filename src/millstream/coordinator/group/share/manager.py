"""`ShareGroups`: the share groups of one shard. Decides about heartbeats, replays records.

`ShareGroupCoordinator` asks for decisions; the shard hands in records and time. A member gets the
target assignment at once: partitions are shared, so nobody has to let go first. A topic is
assigned when its share partitions have begun, which `ShareGroupCoordinator` sees to.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.share import assignor
from millstream.coordinator.group.share.group import SESSION, ShareGroup, ShareMember
from millstream.coordinator.group.share.records import (
    ShareSubscription,
    StatePartitions,
    assignment_of,
    assignment_record,
    group_record,
    member_record,
    member_tombstones,
    state_of,
    subscription_of,
    target_epoch_record,
    target_record,
)
from millstream.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    UnknownMemberId,
)
from millstream.protocol.messages.share_group_heartbeat import (
    Assignment as HeartbeatAssignment,
)
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from millstream.coordinator.decision import Caller, CoordinatorRecord, Moment, ProducerStamp
    from millstream.coordinator.group.group import Group
    from millstream.coordinator.group.ports import TopicsView
    from millstream.coordinator.group.share.assignor import Assignment
    from millstream.coordinator.group.share.config import ShareGroupSettings
    from millstream.coordinator.timers import TimerQueue
    from millstream.protocol.message import Message
    from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
    from millstream.types import Uuid

    SettingsOf: TypeAlias = Callable[[str], ShareGroupSettings]
    """What holds for a group, by its id."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


class Heartbeat(NamedTuple):
    """What follows from a heartbeat."""

    response: ShareGroupHeartbeatResponse
    may_need_state: bool = False
    """Whether topics are subscribed to whose share partitions have not begun."""


class ShareGroups:
    """The share groups of a shard; `groups` has those of every kind."""

    def __init__(
        self,
        groups: dict[str, Group],
        timers: TimerQueue,
        topics: TopicsView,
        settings: SettingsOf,
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._topics = topics
        self._settings = settings
        self.replays: dict[type[Message], Callable[[Any, Any, ProducerStamp | None], None]] = {
            ShareGroupMetadataKey: self._replay_group,
            ShareGroupMemberMetadataKey: self._replay_member,
            ShareGroupTargetAssignmentMetadataKey: self._replay_target_epoch,
            ShareGroupTargetAssignmentMemberKey: self._replay_target,
            ShareGroupCurrentMemberAssignmentKey: self._replay_assignment,
            ShareGroupStatePartitionMetadataKey: self._replay_state,
        }
        """Who replays which records."""

    # Finding.

    def group(self, group_id: str) -> ShareGroup:
        """A share group that must be there."""
        found = self._groups.get(group_id)
        if not isinstance(found, ShareGroup):
            what = "there is no group" if found is None else "it is no share group:"
            raise GroupIdNotFound(f"{what} {group_id}")
        return found

    def group_or_new(self, group_id: str) -> ShareGroup:
        """A share group, or an empty one if there is no group of that name yet."""
        return self.group(group_id) if group_id in self._groups else ShareGroup(group_id)

    def find(self, group_id: str) -> ShareGroup | None:
        """A share group, if there is one of that name."""
        found = self._groups.get(group_id)
        return found if isinstance(found, ShareGroup) else None

    @property
    def all(self) -> list[ShareGroup]:
        """Every share group."""
        return [each for each in self._groups.values() if isinstance(each, ShareGroup)]

    # Heartbeats.

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now: Moment
    ) -> Decision[Heartbeat]:
        """A member joins, goes on or leaves."""
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request, now)
        group_id, member_id = request.group_id, request.member_id
        is_joining = request.member_epoch == JOIN_EPOCH
        group = self.group_or_new(group_id) if is_joining else self.group(group_id)
        member = self._member(group, request, caller)
        known = group.members.get(member_id)
        records: list[CoordinatorRecord] = []
        if known is None or known.subscription != member.subscription:
            records.append(member_record(group_id, member_id, member.subscription))
        step = _Step(group, member, self._topics)
        records += step.records(now, is_changed=bool(records))
        self._watch(group_id, member_id, now.now_ms)
        is_full = is_joining or request.subscribed_topic_names is not None
        response = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=step.epoch,
            heartbeat_interval_ms=self._settings(group_id).heartbeat_interval_ms,
            assignment=_heartbeat_assignment(step.target)
            if is_full or step.target != member.assigned
            else None,
        )
        return Decision(Heartbeat(response, may_need_state=True), records)

    def _member(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareMember:
        """The member as it is with this heartbeat; raises if it may not go on."""
        known = group.members.get(request.member_id)
        if known is None:
            if request.member_epoch != JOIN_EPOCH:
                raise UnknownMemberId(f"{group.group_id} has no member {request.member_id}")
            limit = self._settings(group.group_id).max_size
            if len(group.members) >= limit:
                raise GroupMaxSizeReached(f"{group.group_id} has {limit} members already")
            asked = ShareSubscription(caller.client_id, caller.client_host)
            known = ShareMember(request.member_id, asked)
        elif request.member_epoch not in (JOIN_EPOCH, known.epoch, known.previous_epoch):
            raise FencedMemberEpoch(
                f"{known.member_id} is in epoch {known.epoch}, not {request.member_epoch}"
            )
        asked = known.subscription._replace(
            client_id=caller.client_id, client_host=caller.client_host
        )
        if request.rack_id is not None:
            asked = asked._replace(rack=request.rack_id)
        if request.subscribed_topic_names is not None:
            asked = asked._replace(topics=tuple(sorted(set(request.subscribed_topic_names))))
        return known._replace(subscription=asked)

    def _leave(self, request: ShareGroupHeartbeatRequest, now: Moment) -> Decision[Heartbeat]:
        group = self.group(request.group_id)
        group.member(request.member_id)
        response = ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=LEAVE_EPOCH
        )
        return Decision(Heartbeat(response), self._removal(group, request.member_id))

    def _removal(self, group: ShareGroup, member_id: str) -> list[CoordinatorRecord]:
        return [
            *member_tombstones(group.group_id, member_id),
            group_record(group.group_id, group.epoch + 1, group.metadata_hash),
        ]

    # Time.

    def loaded(self, now_ms: int) -> None:
        """Every member has a whole session to show up again."""
        for group in self.all:
            for member_id in group.members:
                self._watch(group.group_id, member_id, now_ms)

    def _watch(self, group_id: str, member_id: str, now_ms: int) -> None:
        self._timers.set(
            (group_id, member_id, SESSION),
            now_ms + self._settings(group_id).session_timeout_ms,
            lambda _: self._time_out(group_id, member_id),
        )

    def _time_out(self, group_id: str, member_id: str) -> Decision[None]:
        group = self.find(group_id)
        if group is None or member_id not in group.members:
            return Decision(None)
        return Decision(None, self._removal(group, member_id))

    # Replay.

    def _kept(self, group_id: str) -> ShareGroup:
        found = self._groups.get(group_id)
        if not isinstance(found, ShareGroup):
            found = self._groups[group_id] = ShareGroup(group_id)
        return found

    def _replay_group(self, key: Any, value: Any, stamp: ProducerStamp | None) -> None:
        if value is None:
            if self.find(key.group_id) is not None:
                del self._groups[key.group_id]
            return
        group = self._kept(key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def _replay_member(self, key: Any, value: Any, stamp: ProducerStamp | None) -> None:
        if value is not None:
            group = self._kept(key.group_id)
            known = group.members.get(key.member_id)
            asked = subscription_of(value)
            group.members[key.member_id] = (
                ShareMember(key.member_id, asked)
                if known is None
                else known._replace(subscription=asked)
            )
            return
        found = self.find(key.group_id)
        if found is not None:
            found.members.pop(key.member_id, None)
            self._timers.cancel((key.group_id, key.member_id, SESSION))

    def _replay_target_epoch(self, key: Any, value: Any, stamp: ProducerStamp | None) -> None:
        found = self.find(key.group_id)
        if value is not None:
            self._kept(key.group_id).assignment_epoch = value.assignment_epoch
        elif found is not None:
            found.assignment_epoch = -1

    def _replay_target(self, key: Any, value: Any, stamp: ProducerStamp | None) -> None:
        found = self.find(key.group_id)
        if value is not None:
            target = assignment_of(value.topic_partitions)
            self._kept(key.group_id).targets[key.member_id] = target
        elif found is not None:
            found.targets.pop(key.member_id, None)

    def _replay_assignment(self, key: Any, value: Any, stamp: ProducerStamp | None) -> None:
        group = self.find(key.group_id)
        known = None if group is None else group.members.get(key.member_id)
        if group is None or known is None:
            # Compaction may have taken the member's own record before this one.
            return
        if value is None:
            group.members[key.member_id] = known._replace(epoch=-1, previous_epoch=-1, assigned={})
            return
        group.members[key.member_id] = known._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=assignment_of(value.assigned_partitions),
        )

    def _replay_state(self, key: Any, value: Any, stamp: ProducerStamp | None) -> None:
        group = self.find(key.group_id)
        if value is not None:
            self._kept(key.group_id).state = state_of(value)
        elif group is not None:
            group.state = StatePartitions()


class _Step:
    """One heartbeat's way through the epochs: of the group, of the target, of the member."""

    def __init__(self, group: ShareGroup, member: ShareMember, topics: TopicsView) -> None:
        self._group = group
        self._member = member
        self._topics = topics
        self.epoch = member.epoch
        """The epoch of the member after the step."""
        self.target: Assignment = group.targets.get(member.member_id, {})
        """What it may read after the step."""

    def records(self, now: Moment, *, is_changed: bool) -> list[CoordinatorRecord]:
        """What has to be written; `is_changed` if the member asks for something new."""
        group, member = self._group, self._member
        group_id, member_id = group.group_id, member.member_id
        records: list[CoordinatorRecord] = []
        members = {**group.members, member_id: member}
        assignable = _assignable(group, members, self._topics)
        metadata_hash = _hash(assignable)
        epoch = group.epoch
        if is_changed or metadata_hash != group.metadata_hash:
            epoch += 1
            records.append(group_record(group_id, epoch, metadata_hash))
        if epoch > group.assignment_epoch:
            targets = assignor.assign(
                _subscriptions(members, assignable, self._topics), assignable, group.targets
            )
            for each, target in targets.items():
                if group.targets.get(each) != target:
                    records.append(target_record(group_id, each, target))
            records.append(target_epoch_record(group_id, epoch, now.wall_ms))
            self.target = targets[member_id]
        if member.epoch != epoch or member.assigned != self.target:
            records.append(assignment_record(group_id, member_id, epoch, member.epoch, self.target))
        self.epoch = epoch
        return records


def _assignable(
    group: ShareGroup, members: Mapping[str, ShareMember], topics: TopicsView
) -> dict[Uuid, frozenset[int]]:
    """The partitions that members want, that exist, and whose state has begun."""
    found: dict[Uuid, frozenset[int]] = {}
    for name in {name for member in members.values() for name in member.subscription.topics}:
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        begun = None if topic_id is None else group.state.initialized.get(topic_id)
        if topic_id is not None and count is not None and begun is not None:
            found[topic_id] = frozenset(each for each in begun.partitions if each < count)
    return found


def _subscriptions(
    members: Mapping[str, ShareMember], assignable: Mapping[Uuid, object], topics: TopicsView
) -> dict[str, frozenset[Uuid]]:
    return {
        member_id: frozenset(
            topic_id
            for name in member.subscription.topics
            if (topic_id := topics.topic_id(name)) is not None and topic_id in assignable
        )
        for member_id, member in members.items()
    }


def _hash(assignable: Mapping[Uuid, frozenset[int]]) -> int:
    """Tells whether what can be assigned has changed, without keeping it."""
    digest = blake2b(digest_size=8)
    for topic, partitions in sorted(assignable.items()):
        digest.update(topic)
        digest.update(repr(sorted(partitions)).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if assignable else 0


def _heartbeat_assignment(target: Assignment) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in sorted(target.items())
        ]
    )
