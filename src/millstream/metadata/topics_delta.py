"""Changes of topics and partitions, from records, and what they mean for one broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.metadata.records import UnreplayableRecord
from millstream.metadata.topics import PartitionRegistration, TopicImage, TopicsImage
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.protocol.messages.topic_records import (
        ClearElrRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """A partition that a broker must act on."""

    topic_id: Uuid
    registration: PartitionRegistration


@dataclass(frozen=True, slots=True)
class LocalReplicaChanges:
    """What a delta means for one broker's replicas."""

    deleted: set[TopicPartition] = field(default_factory=set)
    elected: dict[TopicPartition, LocalPartition] = field(default_factory=dict)
    """Leaderships that begin: these are in `leaders` too."""
    leaders: dict[TopicPartition, LocalPartition] = field(default_factory=dict)
    followers: dict[TopicPartition, LocalPartition] = field(default_factory=dict)
    directories: dict[TopicPartition, Uuid] = field(default_factory=dict)
    """Replicas that were assigned to a directory they were not in before."""


class TopicDelta:
    """Changes of one topic."""

    def __init__(self, image: TopicImage, *, is_new: bool) -> None:
        self.image = image
        self.is_new = is_new
        self.changed_partitions: dict[int, PartitionRegistration] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is different."""
        return not self.is_new and not self.changed_partitions

    def partition(self, partition_id: int) -> PartitionRegistration | None:
        """A partition as it is after the records so far."""
        changed = self.changed_partitions.get(partition_id)
        return self.image.partitions.get(partition_id) if changed is None else changed

    def set_partition(self, partition_id: int, new: PartitionRegistration) -> None:
        """Note a partition's new state, unless it is the old one."""
        if self.image.partitions.get(partition_id) == new:
            self.changed_partitions.pop(partition_id, None)
        else:
            self.changed_partitions[partition_id] = new

    def clear_elr(self) -> None:
        """Forget eligible leaders."""
        for partition_id in {*self.image.partitions, *self.changed_partitions}:
            found = self.partition(partition_id)
            if found is not None and (found.elr or found.last_known_elr):
                self.set_partition(partition_id, replace(found, elr=(), last_known_elr=()))

    def apply(self) -> TopicImage:
        """The topic after the changes."""
        partitions = self.image.partitions.evolve(self.changed_partitions)
        return TopicImage(self.image.name, self.image.id, partitions)

    def add_local_changes(self, broker_id: int, changes: LocalReplicaChanges) -> None:
        """Sort this topic's changed partitions into what a broker must do."""
        for partition_id, new in self.changed_partitions.items():
            key = TopicPartition(self.image.name, partition_id)
            old = self.image.partitions.get(partition_id)
            if broker_id not in new.replicas:
                if old is not None and broker_id in old.replicas:
                    changes.deleted.add(key)
                continue
            local = LocalPartition(self.image.id, new)
            if new.leader == broker_id:
                changes.leaders[key] = local
                if old is None or old.leader_epoch != new.leader_epoch:
                    changes.elected[key] = local
            else:
                changes.followers[key] = local
            directory = new.directory_of(broker_id)
            if directory is not None and (old is None or old.directory_of(broker_id) != directory):
                changes.directories[key] = directory


class TopicsDelta:
    """Changes of all topics."""

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.changed: dict[Uuid, TopicDelta] = {}
        self.deleted: dict[Uuid, TopicImage] = {}
        """Topics that existed before and are gone."""
        self._new_ids_by_name: dict[str, Uuid] = {}

    @property
    def created(self) -> Mapping[Uuid, TopicDelta]:
        """Topics that did not exist before."""
        return {topic_id: delta for topic_id, delta in self.changed.items() if delta.is_new}

    def replay_topic(self, record: TopicRecord) -> None:
        """A topic comes, or a snapshot mentions it."""
        known = self.image.by_id.get(record.topic_id)
        if known is not None and known.name == record.name:
            self.changed.setdefault(record.topic_id, TopicDelta(known, is_new=False))
            return
        self.changed[record.topic_id] = TopicDelta(
            TopicImage(record.name, record.topic_id), is_new=True
        )
        self._new_ids_by_name[record.name] = record.topic_id

    def replay_partition(self, record: PartitionRecord) -> None:
        """A partition comes, or a snapshot mentions it."""
        topic = self._topic(record.topic_id)
        topic.set_partition(record.partition_id, PartitionRegistration.from_record(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        """A partition changes; what the record leaves out stays."""
        topic = self._topic(record.topic_id)
        before = topic.partition(record.partition_id)
        if before is None:
            raise UnreplayableRecord(
                f"a record changes partition {record.partition_id} of topic "
                f"{topic.image.name}, which does not exist"
            )
        topic.set_partition(record.partition_id, before.merge(record))

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """A topic goes; says its name, for its settings go too."""
        topic = self._topic(record.topic_id)
        self.changed.pop(record.topic_id, None)
        name = topic.image.name
        if self._new_ids_by_name.get(name) == record.topic_id:
            del self._new_ids_by_name[name]
        if record.topic_id in self.image.by_id:
            self.deleted[record.topic_id] = self.image.by_id[record.topic_id]
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Forget the eligible leaders of one topic, or of all when it has no name."""
        if record.topic_name:
            self._topic(self._id_of(record.topic_name)).clear_elr()
            return
        for topic_id in {*self.image.by_id, *self.changed} - self.deleted.keys():
            self._topic(topic_id).clear_elr()
        self._drop_empty()

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is gone."""
        for topic_id in self.image.by_id:
            if topic_id not in self.changed:
                self.deleted[topic_id] = self.image.by_id[topic_id]
        self._drop_empty()

    def apply(self) -> TopicsImage:
        """The topics after the changes."""
        changed = {
            topic_id: delta.apply()
            for topic_id, delta in self.changed.items()
            if not delta.is_empty
        }
        if not changed and not self.deleted:
            return self.image
        return TopicsImage(
            self.image.by_id.evolve(changed, self.deleted),
            self.image.by_name.evolve(
                {topic.name: topic for topic in changed.values()},
                [topic.name for topic in self.deleted.values()],
            ),
        )

    def local_changes(self, broker_id: int) -> LocalReplicaChanges:
        """What one broker must do about its replicas."""
        changes = LocalReplicaChanges()
        for delta in self.changed.values():
            delta.add_local_changes(broker_id, changes)
        for topic in self.deleted.values():
            changes.deleted.update(_partitions_on(topic, broker_id))
        return changes

    def _drop_empty(self) -> None:
        for topic_id in [each for each, delta in self.changed.items() if delta.is_empty]:
            del self.changed[topic_id]

    def _id_of(self, name: str) -> Uuid:
        topic_id = self._new_ids_by_name.get(name)
        if topic_id is None:
            topic = self.image.by_name.get(name)
            if topic is None or topic.id in self.deleted:
                raise UnreplayableRecord(f"a record names topic {name}, which does not exist")
            return topic.id
        return topic_id

    def _topic(self, topic_id: Uuid) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            image = self.image.by_id.get(topic_id)
            if image is None or topic_id in self.deleted:
                raise UnreplayableRecord(
                    f"a record names topic id {topic_id}, which does not exist"
                )
            delta = self.changed[topic_id] = TopicDelta(image, is_new=False)
        return delta


def _partitions_on(topic: TopicImage, broker_id: int) -> Iterable[TopicPartition]:
    return (
        TopicPartition(topic.name, partition_id)
        for partition_id, partition in topic.partitions.items()
        if broker_id in partition.replicas
    )
