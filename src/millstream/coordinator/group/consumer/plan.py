"""A change of a consumer group that is being decided: the group as it will be, and the records.

The group itself stays as it is until the records are replayed. `ConsumerGroups` makes a plan for
each heartbeat, departure and timeout, and lets it compute what follows from the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.group.assignors import ASSIGNORS
from millstream.coordinator.group.assignors.problem import MemberNeeds, Problem
from millstream.coordinator.group.consumer.member import ConsumerMember
from millstream.coordinator.group.consumer.records import (
    group_record,
    member_record,
    member_tombstones,
    progress_record,
    regex_record,
    target_epoch_record,
    target_record,
)
from millstream.coordinator.group.consumer.subscriptions import (
    matching_topics,
    metadata_hash,
    subscribed_topics,
    topics_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.consumer.group import ConsumerGroup
    from millstream.coordinator.group.consumer.member import Progress, Subscription
    from millstream.coordinator.group.consumer.ports import SubscribableTopics
    from millstream.types import Uuid


class GroupPlan:
    """What a group will be, and the records that make it so."""

    def __init__(self, group: ConsumerGroup, topics: SubscribableTopics) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []
        self.members = dict(group.members)
        self.targets = dict(group.targets)
        self.regexes = dict(group.regexes)
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self._topics = topics

    # Members.

    def subscribe(self, member_id: str, asked: Subscription) -> None:
        """A member is there and asks for something."""
        known = self.members.get(member_id)
        if known is None:
            self.members[member_id] = ConsumerMember(member_id, asked)
        elif known.subscription == asked:
            return
        else:
            self.members[member_id] = known._replace(subscription=asked)
        self.records.append(member_record(self.group.group_id, member_id, asked))

    def replace(self, old: ConsumerMember, member_id: str, progress: Progress) -> None:
        """A static member goes on under another id, with what it had."""
        self.remove(old.member_id)
        target = self.group.targets.get(old.member_id, {})
        self.targets[member_id] = target
        self.members[member_id] = ConsumerMember(member_id, old.subscription, progress)
        self.records.append(member_record(self.group.group_id, member_id, old.subscription))
        self.records.append(target_record(self.group.group_id, member_id, target))
        self.records.append(progress_record(self.group.group_id, member_id, progress))

    def advance(self, member_id: str, progress: Progress) -> None:
        """A member has come further."""
        known = self.members[member_id]
        if known.progress != progress:
            self.members[member_id] = known._replace(progress=progress)
            self.records.append(progress_record(self.group.group_id, member_id, progress))

    def remove(self, member_id: str) -> None:
        """A member is gone."""
        del self.members[member_id]
        self.targets.pop(member_id, None)
        self.records.extend(member_tombstones(self.group.group_id, member_id))

    # What follows.

    def raise_epoch(self, wall_ms: int, *, is_forced: bool) -> None:
        """Let the assignment be computed anew if it must: forced, or because topics changed."""
        self._resolve(wall_ms)
        found = self._metadata_hash()
        if not is_forced and found == self.group.metadata_hash:
            return
        self.epoch = self.group.epoch + 1
        self.records.append(group_record(self.group.group_id, self.epoch, found))
        if not self.members:
            # Nobody is left to assign anything to.
            self.assignment_epoch = self.epoch
            self.records.append(target_epoch_record(self.group.group_id, self.epoch, wall_ms))

    def assign(self, default_assignor: str, wall_ms: int) -> None:
        """Compute who should have what, if that is not known for this epoch."""
        if self.assignment_epoch >= self.epoch:
            return
        computed = ASSIGNORS[self._assignor(default_assignor)](self._problem())
        for member_id, target in computed.items():
            known = self.targets.get(member_id)
            if known is not target and known != target:
                self.targets[member_id] = target
                self.records.append(target_record(self.group.group_id, member_id, target))
        self.assignment_epoch = self.epoch
        self.records.append(target_epoch_record(self.group.group_id, self.epoch, wall_ms))

    def _assignor(self, default: str) -> str:
        """What most members ask for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            wanted = member.subscription.assignor
            if wanted is not None:
                votes[wanted] = votes.get(wanted, 0) + 1
        return max(sorted(votes), key=votes.__getitem__, default=default)

    def _problem(self) -> Problem:
        counts: dict[Uuid, int] = {}
        ids: dict[str, Uuid] = {}
        racks: dict[tuple[Uuid, int], frozenset[str]] = {}
        has_racks = any(each.subscription.rack for each in self.members.values())
        for name in sorted(self._topic_names()):
            topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
            if topic_id is None or count is None:
                continue
            ids[name], counts[topic_id] = topic_id, count
            if has_racks:
                for partition, found in enumerate(self._topics.partition_racks(name)):
                    if found:
                        racks[topic_id, partition] = found
        return Problem(self._needs(ids), counts, racks)

    def _needs(self, ids: Mapping[str, Uuid]) -> dict[str, MemberNeeds]:
        needs: dict[str, MemberNeeds] = {}
        nothing: Assignment = {}
        last: Subscription | None = None
        for member_id, (_, asked, _) in self.members.items():
            # Most members want the same as the one before.
            if last is None or asked.topics != last.topics or asked.regex != last.regex:
                topics = frozenset(ids[each] for each in self._topics_of(asked) if each in ids)
                last = asked
            target = self.targets.get(member_id, nothing)
            # The generated constructor costs three times as much.
            needs[member_id] = tuple.__new__(
                MemberNeeds, (topics, target, asked.instance_id, asked.rack)
            )
        return needs

    # Subscriptions.

    def _resolve(self, wall_ms: int) -> None:
        """Find out what the members' expressions match; forget those that nobody uses."""
        used = {each.subscription.regex for each in self.members.values()} - {None}
        is_new_metadata = self.group.metadata_version is not self._topics.topics_version
        for regex in sorted(each for each in used if each is not None):
            if regex in self.regexes and not is_new_metadata:
                continue
            found = matching_topics(regex, self._topics)
            if self.regexes.get(regex) != found:
                self.regexes[regex] = found
                self.records.append(regex_record(self.group.group_id, regex, found, wall_ms))
        for regex in set(self.regexes) - used:
            del self.regexes[regex]
            self.records.append(regex_record(self.group.group_id, regex, None, wall_ms))

    def _topics_of(self, asked: Subscription) -> frozenset[str]:
        return topics_of(asked.topics, asked.regex, self.regexes)

    def _topic_names(self) -> set[str]:
        return subscribed_topics(self.members.values(), self.regexes)

    def _metadata_hash(self) -> int:
        """What the topics are like; known if neither they nor who reads them have changed."""
        names, group = self._topic_names(), self.group
        if group.metadata_version is self._topics.topics_version and names == group.topics:
            return group.metadata_hash
        return metadata_hash(names, self._topics)
