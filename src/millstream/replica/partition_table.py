"""The partitions of this broker, by topic name and by topic id.

`ReplicaManager` puts them in and takes them out as the metadata says; the request paths look them
up. A partition that is not here gets the error that tells the asker what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from millstream.errors import (
    InconsistentTopicId,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.replica.partition import Partition
    from millstream.types import Uuid

KeyT = TypeVar("KeyT")


class PartitionTable:
    """Looks partitions up."""

    __slots__ = ("_cache", "by_id", "by_name", "offline")

    def __init__(self, cache: KRaftMetadataCache) -> None:
        self._cache = cache
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[Uuid, dict[int, Partition]] = {}
        """The partitions of topics by name and by id: always the same tables, for reading only."""
        self.offline: dict[TopicPartition, KafkaStorageError] = {}
        """Replicas of this broker whose log cannot be used, and why."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def get(self, name: TopicPartition) -> Partition | None:
        """A partition of this broker, or None."""
        partitions = self.by_name.get(name.topic)
        return None if partitions is None else partitions.get(name.partition)

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of a topic that are here."""
        return list(self.by_name.get(topic, {}).values())

    def look_up(self, topic: str | Uuid, index: int) -> Partition | None:
        """A partition by the name or id of its topic, or None."""
        partitions = self.by_name.get(topic) if isinstance(topic, str) else self.by_id.get(topic)
        return None if partitions is None else partitions.get(index)

    def find(self, topic: str | Uuid, index: int) -> Partition:
        """The same; raises what the asker is to be told if it is not here."""
        partition = self.look_up(topic, index)
        if partition is None:
            raise self._absence(topic, index)
        return partition

    def add(self, partition: Partition) -> None:
        """This broker has a replica of it."""
        name = partition.name
        self.by_name.setdefault(name.topic, {})[name.partition] = partition
        self.by_id.setdefault(partition.topic_id, {})[name.partition] = partition

    def remove(self, partition: Partition) -> None:
        """This broker has none any more."""
        name = partition.name
        _remove(self.by_name, name.topic, name.partition)
        _remove(self.by_id, partition.topic_id, name.partition)

    def _absence(self, topic: str | Uuid, index: int) -> ApiError:
        if isinstance(topic, str):
            found = self._cache.topic(topic)
            if found is None:
                return UnknownTopicOrPartition(f"there is no topic {topic}")
        else:
            found = self._cache.topic_by_id(topic)
            if found is None:
                return UnknownTopicId(f"no topic has id {topic}")
        if index not in found.partitions:
            return UnknownTopicOrPartition(f"topic {found.name} has no partition {index}")
        fault = self.offline.get(TopicPartition(found.name, index))
        if fault is not None:
            return KafkaStorageError(str(fault))
        here = self.by_name.get(found.name, {}).get(index)
        if here is not None and here.topic_id != found.id:
            return InconsistentTopicId(
                f"{here.name} is of topic id {here.topic_id} here, of {found.id} by now"
            )
        return NotLeaderOrFollower(f"this broker has no replica of {found.name}-{index}")


def _remove(table: dict[KeyT, dict[int, Partition]], key: KeyT, index: int) -> None:
    partitions = table[key]
    del partitions[index]
    if not partitions:
        del table[key]
