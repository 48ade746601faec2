"""`ConsumerGroup`: what the records say about one consumer group, and what follows from it.

`ConsumerGroups` decides and replays; this keeps members, targets and ownership consistent, and
answers what offsets, listings and deletion want to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.group.consumer.member import (
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    Progress,
    Subscription,
)
from millstream.coordinator.group.consumer.records import (
    group_tombstones,
    member_tombstones,
    regex_record,
)
from millstream.coordinator.group.consumer.subscriptions import subscribed_topics, topics_of
from millstream.coordinator.group.group import GroupType
from millstream.errors import (
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.group import CommitCheck, CommitOrigin
    from millstream.coordinator.timers import TimerQueue
    from millstream.errors import ApiError
    from millstream.types import Uuid

PROTOCOL_TYPE: Final = "consumer"
EPOCHS_IN_COMMITS_SINCE: Final = 9
"""The version of OffsetCommit and TxnOffsetCommit by which members of this protocol commit."""
_NOBODY: Final = -1
SESSION: Final = "session"
REBALANCE: Final = "rebalance"
JOIN: Final = "join"
SYNC: Final = "sync"
DEADLINES: Final = (SESSION, REBALANCE, JOIN, SYNC)
"""With group and member the keys of timers."""


class ConsumerGroup:
    """A `Group` of KIP-848."""

    type: Final = GroupType.CONSUMER
    protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.epoch = 0
        """Raised whenever the assignment must be computed anew."""
        self.metadata_hash = 0
        self.assignment_epoch = 0
        """The group epoch that the targets are for."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_ids: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, frozenset[str]] = {}
        """The topics that each expression matches."""
        self.metadata_version: object = None
        """The version of the metadata that subscriptions were last compared with."""
        self._owners: dict[Uuid, dict[int, int]] = {}
        """The epoch of the member that has a partition, or must still let go of it."""

    # State.

    @property
    def state_name(self) -> str:
        """Its state, as ListGroups spells it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(
            each.progress.is_reconciled_to(self.assignment_epoch) for each in self.members.values()
        ):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def is_expirable(self) -> bool:
        """It goes with its last offset."""
        return True

    @property
    def topics(self) -> frozenset[str]:
        """The names of all topics that a member is subscribed to."""
        return frozenset(subscribed_topics(self.members.values(), self.regexes))

    def topics_of(self, asked: Subscription) -> frozenset[str]:
        """The names of the topics that a member means."""
        return topics_of(asked.topics, asked.regex, self.regexes)

    def is_free(self, topic: Uuid, partition: int) -> bool:
        """Whether nobody has a partition."""
        return self._owners.get(topic, {}).get(partition, _NOBODY) == _NOBODY

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """The member that has a name."""
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def member(self, member_id: str) -> ConsumerMember:
        """A member that must be there."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"{self.group_id} has no member {member_id}")
        return found

    def identified(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The same, of a member that may say which static member it is."""
        if instance_id is None:
            return self.member(member_id)
        found = self.static_member(instance_id)
        if found is None:
            raise UnknownMemberId(f"no member of {self.group_id} is {instance_id}")
        if found.member_id != member_id:
            raise FencedInstanceId(f"{instance_id} is another member now")
        return found

    def supports(self, protocols: Iterable[str]) -> bool:
        """Whether one of some assignors is one of all classic members."""
        classics = [
            {name for name, _ in each.subscription.classic.protocols}
            for each in self.members.values()
            if each.subscription.classic is not None
        ]
        return any(all(name in each for each in classics) for name in protocols)

    # Replay.

    def put_subscription(self, member_id: str, asked: Subscription) -> None:
        """A member is there, or asks for something else."""
        known = self.members.get(member_id)
        progress = Progress() if known is None else known.progress
        self.members[member_id] = ConsumerMember(member_id, asked, progress)
        if asked.instance_id is not None:
            self.static_ids[asked.instance_id] = member_id

    def put_progress(self, member_id: str, progress: Progress) -> None:
        """A member has come further. One whose subscription is compacted away is passed over."""
        known = self.members.get(member_id)
        if known is None:
            return
        self._release(known.progress)
        self._take(progress)
        self.members[member_id] = known._replace(progress=progress)

    def drop_progress(self, member_id: str) -> None:
        """A member has nothing any more."""
        known = self.members.get(member_id)
        if known is not None:
            self._release(known.progress)
            self.members[member_id] = known._replace(progress=Progress())

    def drop(self, member_id: str) -> None:
        """A member is gone."""
        known = self.members.pop(member_id, None)
        if known is None:
            return
        self._release(known.progress)
        if known.instance_id is not None and self.static_ids.get(known.instance_id) == member_id:
            del self.static_ids[known.instance_id]

    def _take(self, progress: Progress) -> None:
        if progress.epoch == LEAVE_STATIC_EPOCH:
            # Its partitions are kept for it, in its last epoch.
            progress = progress._replace(epoch=max(progress.previous_epoch, 0))
        for owned in (progress.assigned, progress.pending_revocation):
            for topic, partitions in owned.items():
                epochs = self._owners.setdefault(topic, {})
                epochs.update(dict.fromkeys(partitions, progress.epoch))

    def _release(self, progress: Progress) -> None:
        for owned in (progress.assigned, progress.pending_revocation):
            for topic, partitions in owned.items():
                epochs = self._owners.get(topic, {})
                for each in partitions:
                    epochs.pop(each, None)

    # Offsets and deletion.

    def validate_offset_commit(self, origin: CommitOrigin, now_ms: int) -> CommitCheck | None:
        """Members may commit what they own; anybody may while there are no members."""
        if origin.generation < 0 and not self.members:
            return None
        if (
            origin.generation < 0
            and not origin.member_id
            and origin.instance_id is None
            and origin.is_transactional
        ):
            return None
        member = self.member(origin.member_id)
        is_old = origin.version < EPOCHS_IN_COMMITS_SINCE and not origin.is_transactional
        if is_old and member.subscription.classic is None:
            raise UnsupportedVersion(
                f"members of {self.group_id} commit with OffsetCommit 9 or later"
            )
        if origin.generation == member.epoch:
            return None
        if member.subscription.classic is not None or origin.generation > member.epoch:
            raise _wrong_epoch(member, origin.generation)
        progress, epoch = member.progress, origin.generation

        def check(topic: str, topic_id: Uuid, partition: int) -> None:
            for owned in (progress.assigned, progress.pending_revocation):
                since = owned.get(topic_id, {}).get(partition)
                if since is not None and since <= epoch:
                    return
            raise StaleMemberEpoch(f"{topic}-{partition} was not assigned in epoch {epoch}")

        return check

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """A member must be up to date; who names none may read anyway."""
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _wrong_epoch(member, member_epoch)

    def validate_offset_delete(self) -> None:
        """Of topics that nobody reads, which is looked at topic by topic."""

    def validate_delete(self) -> None:
        """Only without members."""
        if self.members:
            raise NonEmptyGroup(f"{self.group_id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return any(topic in self.topics_of(each.subscription) for each in self.members.values())

    def retention_start_ms(self, commit_ms: int) -> int | None:
        """From the commit on, unless somebody reads the topic."""
        return commit_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group, without its offsets."""
        records = [
            record
            for member_id in {*self.members, *self.targets}
            for record in member_tombstones(self.group_id, member_id)
        ]
        records += [regex_record(self.group_id, each, None, 0) for each in self.regexes]
        return [*records, *group_tombstones(self.group_id)]

    def close(self, timers: TimerQueue, error: ApiError) -> None:
        """The group is gone from here. Nobody waits; deadlines end with the shard or the group."""
        for member_id in self.members:
            for name in DEADLINES:
                timers.cancel((self.group_id, member_id, name))


def _wrong_epoch(member: ConsumerMember, epoch: int) -> ApiError:
    """What a member is told that speaks of another epoch: each protocol has its own word."""
    text = f"{member.member_id} is in epoch {member.epoch}, not {epoch}"
    is_classic = member.subscription.classic is not None
    return IllegalGeneration(text) if is_classic else StaleMemberEpoch(text)
