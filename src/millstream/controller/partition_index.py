"""Which partitions a broker has to do with, and which topic names are near each other.

Derived from the image and kept up as it changes, so that losing a broker costs its own partitions
and not all of them. Only the active controller has
one; it is built anew when a controller becomes active.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from millstream.metadata.topic_names import collision_key
from millstream.metadata.topics import NO_LEADER
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.metadata.topics import PartitionRegistration, TopicsImage
    from millstream.metadata.topics_delta import TopicsDelta

TopicIdPartition: TypeAlias = tuple[Uuid, int]


class PartitionIndex:
    """Partitions by broker and by condition."""

    def __init__(self, topics: TopicsImage) -> None:
        self._led_by: defaultdict[int, set[TopicIdPartition]] = defaultdict(set)
        self._in_isr: defaultdict[int, set[TopicIdPartition]] = defaultdict(set)
        self._in_elr: defaultdict[int, set[TopicIdPartition]] = defaultdict(set)
        self.leaderless: set[TopicIdPartition] = set()
        self.imbalanced: set[TopicIdPartition] = set()
        """Led by another than the preferred replica."""
        self.reassigning: set[TopicIdPartition] = set()
        self._names_by_key: dict[str, str] = {}
        for topic_id, topic in topics.by_id.items():
            self._names_by_key[collision_key(topic.name)] = topic.name
            for partition_id, partition in topic.partitions.items():
                self._add((topic_id, partition_id), partition)

    def has_leaderships(self, broker_id: int) -> bool:
        """Whether a broker leads anything."""
        return bool(self._led_by.get(broker_id))

    def in_isr(self, broker_id: int) -> list[TopicIdPartition]:
        """The partitions with a broker in their ISR."""
        return sorted(self._in_isr.get(broker_id, ()))

    def in_isr_or_elr(self, broker_id: int) -> list[TopicIdPartition]:
        """The partitions with a broker in their ISR or among their eligible leaders."""
        return sorted({*self._in_isr.get(broker_id, ()), *self._in_elr.get(broker_id, ())})

    def topic_with_key(self, key: str) -> str | None:
        """The topic whose name has a collision key; there is never more than one."""
        return self._names_by_key.get(key)

    def update(self, delta: TopicsDelta) -> None:
        """Follow a change of the topics."""
        for topic_id, topic in delta.deleted.items():
            self._names_by_key.pop(collision_key(topic.name), None)
            for partition_id, partition in topic.partitions.items():
                self._discard((topic_id, partition_id), partition)
        for topic_id, changed in delta.changed.items():
            if changed.is_new:
                self._names_by_key[collision_key(changed.image.name)] = changed.image.name
            for partition_id, partition in changed.changed_partitions.items():
                before = changed.image.partitions.get(partition_id)
                if before is not None:
                    self._discard((topic_id, partition_id), before)
                self._add((topic_id, partition_id), partition)

    def _add(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        for replica in partition.isr:
            self._in_isr[replica].add(key)
        for replica in partition.elr:
            self._in_elr[replica].add(key)
        for conditional in self._conditions(partition):
            conditional.add(key)

    def _discard(self, key: TopicIdPartition, partition: PartitionRegistration) -> None:
        for replica in partition.isr:
            self._in_isr[replica].discard(key)
        for replica in partition.elr:
            self._in_elr[replica].discard(key)
        for conditional in self._conditions(partition):
            conditional.discard(key)

    def _conditions(self, partition: PartitionRegistration) -> Iterable[set[TopicIdPartition]]:
        if partition.leader == NO_LEADER:
            yield self.leaderless
        else:
            yield self._led_by[partition.leader]
            if partition.leader != partition.preferred_leader:
                yield self.imbalanced
        if partition.is_reassigning:
            yield self.reassigning
