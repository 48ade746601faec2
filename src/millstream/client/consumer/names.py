"""Partitions by the user's names and by those of the wire (see `client.isolation`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from millstream.client.arguments import as_partition, as_partitions
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.client.isolation import Isolation

T = TypeVar("T")


class Names:
    """Translates at the border of a consumer; without an environment, nothing changes."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._is_same = not isolation.prefix

    def topic_to_wire(self, topic: str) -> str:
        """A topic as brokers know it."""
        return self._isolation.to_wire(topic)

    def topic_from_wire(self, topic: str) -> str:
        """A topic as the user knows it."""
        return self._isolation.from_wire(topic) or topic

    def is_visible(self, topic: str) -> bool:
        """Whether a topic of the wire belongs to this environment."""
        return self._isolation.is_visible(topic)

    def to_wire(self, partition: TopicPartition) -> TopicPartition:
        """A partition as brokers know it; what the user gave may be a plain tuple."""
        given = as_partition(partition)
        if self._is_same:
            return given
        return TopicPartition(self.topic_to_wire(given.topic), given.partition)

    def from_wire(self, partition: TopicPartition) -> TopicPartition:
        """A partition as the user knows it."""
        if self._is_same:
            return partition
        return TopicPartition(self.topic_from_wire(partition.topic), partition.partition)

    def all_to_wire(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Several."""
        return [self.to_wire(each) for each in as_partitions(partitions)]

    def sorted_from_wire(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Several, in order."""
        return sorted(self.from_wire(each) for each in partitions)

    def keys_from_wire(self, found: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        """Something for each of several."""
        return {self.from_wire(each): value for each, value in found.items()}

    def keys_to_wire(self, given: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
        """Something for each of several."""
        return {self.to_wire(each): value for each, value in given.items()}
