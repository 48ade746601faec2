"""Which topics a producer follows, and who waits to learn of one.

Callers ask with `want` on the I/O thread; the answer of each metadata update goes to the
accumulator, which then accepts records for the topic. Brokers that take nothing any more can be
set aside (KIP-794), so that records without a key go elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    from millstream.client.futures import Waiter
    from millstream.client.metadata import Metadata, MetadataSnapshot
    from millstream.client.namespace import Namespace
    from millstream.client.producer.record_accumulator import RecordAccumulator
    from millstream.client.snapshot import Topic


_UPDATES_MAX: Final = 2
"""How many updates may know a topic without a partition before that is certain: an answer may have
been on its way, and brokers learn of new partitions one after the other."""


@dataclass(slots=True)
class _MetadataWait:
    """Somebody waits until a topic has at least so many partitions."""

    partition_count: int
    waiter: Waiter[None]
    updates: int = 0
    """How many updates have known the topic with fewer since."""


class TopicRegistry:
    """From the cluster's metadata to the accumulator's topics."""

    def __init__(
        self, metadata: Metadata, accumulator: RecordAccumulator, names: Namespace
    ) -> None:
        self._metadata = metadata
        self._accumulator = accumulator
        self._names = names
        self._followed: dict[str, str] = {}
        self._waits: dict[str, list[_MetadataWait]] = {}
        self._set_aside: frozenset[int] = frozenset()
        metadata.subscribe(self._on_update)

    def want(self, topic: str, partition_count: int, waiter: Waiter[None]) -> None:
        """Complete `waiter` once the topic has so many partitions, or has an error that stays."""
        wire = self._names.to_wire(topic)
        self._followed[wire] = topic
        waits = self._waits.setdefault(wire, [])
        if waits and waits[0].waiter.done():  # Given up, perhaps with many others after it.
            waits[:] = [each for each in waits if not each.waiter.done()]
        waits.append(_MetadataWait(partition_count, waiter))
        self._metadata.want([wire])
        known = self._metadata.snapshot.topics.get(wire)
        if known is not None:
            self._learn(known)
        if self._waits.get(wire):
            self._metadata.request_update()

    def keep(self, wire_topic: str) -> None:
        """A topic is in use: do not forget it."""
        self._metadata.want([wire_topic])

    def set_aside(self, node_ids: frozenset[int]) -> None:
        """Have no sticky partition chosen that these brokers lead."""
        if node_ids != self._set_aside:
            self._set_aside = node_ids
            for wire in self._followed:
                known = self._metadata.snapshot.topics.get(wire)
                if known is not None:
                    self._learn(known)

    def _on_update(self, old: MetadataSnapshot, new: MetadataSnapshot, now_ms: int) -> None:
        for wire in list(self._followed):
            topic = new.topics.get(wire)
            if topic is not None:
                self._end_hopeless_waits(topic)
                if topic is not old.topics.get(wire) or wire in self._waits:
                    self._learn(topic)
            elif wire not in self._metadata.followed and self._accumulator.forget_topic(
                self._followed[wire]
            ):
                del self._followed[wire]

    def _end_hopeless_waits(self, topic: Topic) -> None:
        """Complete with an error who waits for a partition that a known topic does not have."""
        count = len(topic.partitions)
        for wait in self._waits.get(topic.name, ()):
            if not 0 < count < wait.partition_count or wait.waiter.done():
                continue
            wait.updates += 1
            if wait.updates < _UPDATES_MAX:
                self._metadata.request_update()
                continue
            wanted = wait.partition_count - 1
            name = self._followed[topic.name]
            wait.waiter.set_error(
                UnknownTopicOrPartition(
                    f"topic {name} has {count} partitions, 0 to {count - 1}, and no partition "
                    f"{wanted}"
                )
            )

    def _learn(self, topic: Topic) -> None:
        name = self._followed[topic.name]
        if topic.partitions:
            led = [
                each.index
                for each in topic.partitions
                if each.leader_id >= 0 and each.leader_id not in self._set_aside
            ]
            # If all are set aside, any is as good as another.
            self._accumulator.set_topic(name, len(topic.partitions), led)
        self._end_waits(topic)

    def _end_waits(self, topic: Topic) -> None:
        error = topic.error
        left = []
        for wait in self._waits.pop(topic.name, ()):
            if len(topic.partitions) >= wait.partition_count:
                wait.waiter.set_result(None)
            elif error is not None and not error.retriable:
                wait.waiter.set_error(type(error)(f"topic {self._followed[topic.name]}: {error}"))
            elif not wait.waiter.done():
                left.append(wait)
        if left:
            self._waits[topic.name] = left
