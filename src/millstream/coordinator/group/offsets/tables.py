"""The offsets of one shard: those in force, and those of transactions that are not decided.

Pure state: `OffsetManager.replay` alone changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TypeAlias

    from millstream.protocol.messages.classic_group_records import OffsetCommitValue

    TopicOffsets: TypeAlias = dict[str, dict[int, OffsetCommitValue]]
    Place: TypeAlias = tuple[str, int]
    """A topic's name and a partition of it."""


class CommittedOffsets:
    """The offsets in force, by group, topic and partition."""

    __slots__ = ("_by_group", "count")

    def __init__(self) -> None:
        self._by_group: dict[str, TopicOffsets] = {}
        self.count = 0
        """How many there are."""

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """All offsets of a group, by topic and partition."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        """One offset; None if none was committed."""
        by_topic = self._by_group.get(group_id)
        by_partition = None if by_topic is None else by_topic.get(topic)
        return None if by_partition is None else by_partition.get(partition)

    def put(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
        """An offset is in force instead of the one before."""
        by_topic = self._by_group.get(group_id)
        if by_topic is None:
            by_topic = self._by_group[group_id] = {}
        by_partition = by_topic.get(topic)
        if by_partition is None:
            by_partition = by_topic[topic] = {}
        if partition not in by_partition:
            self.count += 1
        by_partition[partition] = value

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """An offset is deleted."""
        by_topic = self._by_group.get(group_id, {})
        by_partition = by_topic.get(topic, {})
        if by_partition.pop(partition, None) is None:
            return
        self.count -= 1
        if not by_partition:
            del by_topic[topic]
        if not by_topic:
            del self._by_group[group_id]

    def in_topics(self, topics: Mapping[str, object]) -> Iterator[tuple[str, Place]]:
        """The group and place of every offset in some topics."""
        for group_id, by_topic in self._by_group.items():
            for topic in by_topic.keys() & topics.keys():
                for partition in by_topic[topic]:
                    yield group_id, (topic, partition)


class PendingOffset(NamedTuple):
    """An offset that counts if its transaction commits."""

    serial: int
    """Its place in the log among all others: the later of two commits wins."""
    value: OffsetCommitValue | None
    """None if a later commit is in force already."""


class PendingOffsets:
    """The offsets of open transactions, by producer and by group."""

    __slots__ = ("_by_group", "_by_producer", "_serial")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[str, str, int], PendingOffset]] = {}
        self._by_group: dict[str, dict[Place, set[int]]] = {}
        self._serial = 0

    def has_group(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of a group."""
        return group_id in self._by_group

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has an offset of a partition."""
        places = self._by_group.get(group_id)
        return places is not None and (topic, partition) in places

    def of_group(self, group_id: str) -> list[Place]:
        """The partitions of which open transactions have offsets of a group."""
        return list(self._by_group.get(group_id, ()))

    def in_topics(self, topics: Mapping[str, object]) -> Iterator[tuple[str, Place]]:
        """The group and place of every offset in some topics."""
        for group_id, places in self._by_group.items():
            for place in places:
                if place[0] in topics:
                    yield group_id, place

    def put(
        self, producer_id: int, group_id: str, topic: str, partition: int, value: OffsetCommitValue
    ) -> None:
        """A transaction has an offset, instead of the one it had."""
        self._serial += 1
        key = (group_id, topic, partition)
        self._by_producer.setdefault(producer_id, {})[key] = PendingOffset(self._serial, value)
        places = self._by_group.setdefault(group_id, {})
        places.setdefault((topic, partition), set()).add(producer_id)

    def supersede(
        self, group_id: str, topic: str, partition: int, before_serial: int | None = None
    ) -> None:
        """An offset came into force: those of transactions that were written before do not count.

        They still are offsets of an open transaction.
        """
        key = (group_id, topic, partition)
        for producer_id in self._by_group.get(group_id, {}).get((topic, partition), ()):
            pending = self._by_producer[producer_id]
            serial = pending[key].serial
            if before_serial is None or serial < before_serial:
                pending[key] = PendingOffset(serial, None)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """An offset is deleted, whoever has it."""
        places = self._by_group.get(group_id, {})
        for producer_id in places.pop((topic, partition), ()):
            pending = self._by_producer[producer_id]
            del pending[(group_id, topic, partition)]
            if not pending:
                del self._by_producer[producer_id]
        if not places:
            self._by_group.pop(group_id, None)

    def end(self, producer_id: int) -> Mapping[tuple[str, str, int], PendingOffset]:
        """A producer's transaction has ended: what it had, which is forgotten here."""
        ended = self._by_producer.pop(producer_id, {})
        for group_id, topic, partition in ended:
            places = self._by_group[group_id]
            producers = places[(topic, partition)]
            producers.discard(producer_id)
            if not producers:
                del places[(topic, partition)]
            if not places:
                del self._by_group[group_id]
        return ended
