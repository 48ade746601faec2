"""Which topics a share group has state of, and the steps from wanting it to having it.

The state itself is with the share coordinator; here is only which of it there should be. Each
step is a record: a coordinator that takes over knows what was begun and not finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.share.records import (
    StatePartitions,
    TopicShare,
    group_record,
    state_record,
)
from millstream.coordinator.share.state import ShareKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.coordinator.group.ports import TopicsView
    from millstream.coordinator.group.share.group import ShareGroup
    from millstream.coordinator.group.share.manager import ShareGroups
    from millstream.types import Uuid


class ToInitialize(NamedTuple):
    """Share partitions to begin, in a state epoch."""

    state_epoch: int
    topics: Mapping[Uuid, TopicShare]

    def keys(self, group_id: str) -> list[ShareKey]:
        """The share partitions."""
        return [
            ShareKey(group_id, topic_id, partition)
            for topic_id, share in self.topics.items()
            for partition in sorted(share.partitions)
        ]


class ShareStates:
    """The decisions about the state partitions of the groups of a shard."""

    def __init__(self, groups: ShareGroups, topics: TopicsView) -> None:
        self._groups = groups
        self._topics = topics

    def missing(self, group_id: str) -> dict[Uuid, TopicShare]:
        """What members are subscribed to, that exists, and whose state has not begun."""
        group = self._groups.find(group_id)
        found: dict[Uuid, TopicShare] = {}
        for name in () if group is None else sorted(group.topics):
            topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
            if group is None or topic_id is None or count is None:
                continue
            begun = group.state.initialized.get(topic_id, TopicShare(name, frozenset()))
            partitions = frozenset(range(count)) - begun.partitions
            if partitions:
                found[topic_id] = TopicShare(name, partitions)
        return found

    def begin(
        self,
        group_id: str,
        topics: Mapping[Uuid, TopicShare],
        *,
        in_new_epoch: bool = False,
    ) -> Decision[ToInitialize]:
        """Note that share partitions are about to begin; in a new epoch if they began before.

        A group that is not there begins with its offsets.
        """
        group = self._groups.group_or_new(group_id)
        initializing = dict(group.state.initializing)
        for topic_id, share in topics.items():
            initializing[topic_id] = _with(initializing.get(topic_id), share)
        deleting = {each: name for each, name in group.state.deleting.items() if each not in topics}
        state = group.state._replace(initializing=initializing, deleting=deleting)
        records = [state_record(group_id, state)]
        epoch = group.epoch
        if in_new_epoch:
            epoch += 1
            records.append(group_record(group_id, epoch, group.metadata_hash))
        return Decision(ToInitialize(epoch, topics), records)

    def finish(
        self, group_id: str, begun: Iterable[ShareKey], tried: ToInitialize
    ) -> Decision[None]:
        """Note which share partitions have begun; the others of those tried have not."""
        group = self._groups.find(group_id)
        if group is None:
            return Decision(None)
        initializing = dict(group.state.initializing)
        initialized = dict(group.state.initialized)
        for topic_id, share in tried.topics.items():
            left = (
                initializing[topic_id].partitions - share.partitions
                if (topic_id in initializing)
                else frozenset()
            )
            initializing.pop(topic_id, None)
            if left:
                initializing[topic_id] = TopicShare(share.name, left)
        for key in begun:
            name = tried.topics[key.topic_id].name
            known = initialized.get(key.topic_id)
            initialized[key.topic_id] = _with(known, TopicShare(name, frozenset({key.partition})))
        state = group.state._replace(initializing=initializing, initialized=initialized)
        return Decision(None, [state_record(group_id, state)])

    def begin_deletion(
        self, group_id: str, topics: Iterable[Uuid] | None = None
    ) -> Decision[list[ShareKey]]:
        """Note that the state of topics, or of all, is about to go; the share partitions."""
        group = self._groups.group(group_id)
        known = _known(group)
        wanted = set(known if topics is None else topics) & set(known)
        state = StatePartitions(
            {each: share for each, share in group.state.initializing.items() if each not in wanted},
            {each: share for each, share in group.state.initialized.items() if each not in wanted},
            {**group.state.deleting, **{each: known[each].name for each in wanted}},
        )
        keys = [
            ShareKey(group_id, topic_id, partition)
            for topic_id in sorted(wanted)
            for partition in sorted(known[topic_id].partitions)
        ]
        return Decision(keys, [state_record(group_id, state)] if wanted else [])

    def finish_deletion(self, group_id: str, topics: Iterable[Uuid]) -> Decision[None]:
        """The state of topics is gone."""
        group = self._groups.find(group_id)
        if group is None:
            return Decision(None)
        gone = set(topics)
        deleting = {each: name for each, name in group.state.deleting.items() if each not in gone}
        return Decision(None, [state_record(group_id, group.state._replace(deleting=deleting))])

    def groups_with(self, topics: Iterable[Uuid]) -> list[str]:
        """The groups that have state of some topics."""
        wanted = set(topics)
        return [each.group_id for each in self._groups.all if wanted & _known(each).keys()]


def _known(group: ShareGroup) -> dict[Uuid, TopicShare]:
    """Every topic that there may be state of, with its partitions as far as they are known."""
    known: dict[Uuid, TopicShare] = {
        topic_id: TopicShare(name, frozenset()) for topic_id, name in group.state.deleting.items()
    }
    for topics in (group.state.initializing, group.state.initialized):
        for topic_id, share in topics.items():
            known[topic_id] = _with(known.get(topic_id), share)
    return known


def _with(known: TopicShare | None, added: TopicShare) -> TopicShare:
    if known is None:
        return added
    return TopicShare(added.name, known.partitions | added.partitions)
