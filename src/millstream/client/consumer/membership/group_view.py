"""The cluster as a group's member needs it: which topics are meant, and how large they are.

One view per membership. It tells the client's metadata what to follow, and compares what it knew
with what it knows, so that the machines hear only of changes that matter to a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.consumer.membership.assignors import GroupTopics
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.metadata import Metadata
    from millstream.client.snapshot import MetadataSnapshot, Topic


class GroupView:
    """What a member follows of the metadata."""

    def __init__(self, metadata: Metadata, *, exclude_internal_topics: bool) -> None:
        self._metadata = metadata
        self._exclude_internal = exclude_internal_topics
        self._wanted: frozenset[str] = frozenset()
        self._needed_update = 0

    # What a subscription means.

    def follow(self, subscription: Subscription, also: Iterable[str] = ()) -> None:
        """Learn of the topics of a subscription, and of others that the group reads."""
        needs_all = subscription.is_pattern
        wanted = subscription.topics.union(also)
        self._metadata.forget(self._wanted - wanted)
        self._metadata.want(wanted)
        self._metadata.want_all(needs_all)
        self._wanted = wanted
        if needs_all:
            self._needed_update = self._metadata.request_update()

    def unfollow(self) -> None:
        """Nothing is subscribed any more."""
        self._metadata.forget(self._wanted)
        self._metadata.want_all(False)
        self._wanted = frozenset()

    @property
    def snapshot(self) -> MetadataSnapshot:
        """What is known now: the same object as long as nothing was heard."""
        return self._metadata.snapshot

    def resolve(self, subscription: Subscription) -> frozenset[str] | None:
        """The topics that are meant; None while it is not known which ones exist."""
        if not subscription.is_pattern:
            return subscription.topics
        if self._metadata.updates < self._needed_update:
            return None
        topics = self._metadata.snapshot.topics.values()
        return subscription.select(each.name for each in topics if self._may_match(each))

    def _may_match(self, topic: Topic) -> bool:
        is_hidden = self._exclude_internal and topic.is_internal
        return topic.error is None and not is_hidden

    # What a leader needs to know.

    def need(self, topics: Iterable[str]) -> int:
        """Ask for topics that are not known; the number of the update that has them."""
        missing = [each for each in topics if each not in self._metadata.snapshot.topics]
        return self._metadata.request_update() if missing else self._metadata.updates

    @property
    def updates(self) -> int:
        """How many answers the metadata has had."""
        return self._metadata.updates

    def sizes(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions the topics have that exist."""
        known = self._metadata.snapshot.topics
        return {
            name: len(known[name].partitions)
            for name in sorted(set(topics))
            if name in known and known[name].partitions
        }

    def group_topics(self, topics: Iterable[str]) -> GroupTopics:
        """Sizes, and the racks of the replicas as far as brokers tell them."""
        snapshot = self._metadata.snapshot
        sizes = self.sizes(topics)
        racks = {node_id: each.rack for node_id, each in snapshot.brokers.items() if each.rack}
        found: dict[TopicPartition, frozenset[str]] = {}
        if racks:
            for name in sizes:
                for each in snapshot.topics[name].partitions:
                    where = frozenset(racks[node] for node in each.replicas if node in racks)
                    if where:
                        found[TopicPartition(name, each.index)] = where
        return GroupTopics(sizes, found)

    # Names and ids.

    def name_of(self, topic_id: Uuid) -> str | None:
        """The name of a topic, if it is known."""
        topic = self._metadata.snapshot.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def id_of(self, topic: str) -> Uuid:
        """The id of a topic; the zero id if it is not known."""
        found = self._metadata.snapshot.topics.get(topic)
        return Uuid.ZERO if found is None else found.topic_id

    def ask_again(self) -> None:
        """Something is not known that should be."""
        self._metadata.request_update()
