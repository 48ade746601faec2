"""The cluster at one moment: brokers, topics, partitions, leaders. Immutable values.

`Metadata` makes a new one from each answer; everybody may read and keep them. A topic id is the
zero id and an epoch -1 where the broker is too old to tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.errors import error_for_code
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.errors import ApiError
    from millstream.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that clients may connect to."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Who has a partition."""

    index: int
    leader_id: int
    """-1 if nobody leads."""
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, or why the brokers do not tell about it. Partitions are by ascending index."""

    name: str
    topic_id: Uuid = Uuid.ZERO
    partitions: tuple[Partition, ...] = ()
    is_internal: bool = False
    error: ApiError | None = None
    authorized_operations: int = -(1 << 31)

    @property
    def is_unsettled(self) -> bool:
        """Whether it is worth asking again soon."""
        if self.error is not None:
            return self.error.retriable
        return any(each.leader_id < 0 for each in self.partitions)


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """All that is known of a cluster; empty at first."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    _by_id: Mapping[Uuid, Topic] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_id = {each.topic_id: each for each in self.topics.values() if each.topic_id != Uuid.ZERO}
        object.__setattr__(self, "_by_id", by_id)

    def leader(self, topic: str, partition: int) -> Partition | None:
        """The partition if somebody leads it whose address is known."""
        found = self.partition(topic, partition)
        return None if found is None or found.leader_id not in self.brokers else found

    def partition(self, topic: str, partition: int) -> Partition | None:
        """A partition, if it is known."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        """The topic with an id, if it is known."""
        return self._by_id.get(topic_id)


def snapshot_from_response(
    answer: MetadataResponse, old: MetadataSnapshot, *, keep: Callable[[str], bool]
) -> MetadataSnapshot:
    """What is known after an answer.

    A broker may lag behind what another has said: for the same topic an older leader epoch does
    not replace a newer one. Topics that the answer lacks stay if `keep` says so.
    """
    topics = {each.name: each for each in old.topics.values() if keep(each.name)}
    for told in answer.topics:
        topic = _topic(told, old)
        if topic is not None:
            topics[topic.name] = topic
    return MetadataSnapshot(
        answer.cluster_id if answer.cluster_id is not None else old.cluster_id,
        answer.controller_id,
        {
            each.node_id: Broker(each.node_id, each.host, each.port, each.rack)
            for each in answer.brokers
        },
        topics,
    )


def with_leader(
    old: MetadataSnapshot,
    topic: str,
    partition: int,
    leader_id: int,
    leader_epoch: int,
    endpoint: Broker | None,
) -> MetadataSnapshot | None:
    """What is known after a hint of a newer leader; None if the hint says nothing new."""
    known = old.partition(topic, partition)
    if known is None or leader_epoch <= known.leader_epoch or leader_id < 0:
        return None
    brokers = dict(old.brokers)
    if endpoint is not None:
        rack = brokers[leader_id].rack if leader_id in brokers else endpoint.rack
        brokers[leader_id] = replace(endpoint, rack=rack)
    if leader_id not in brokers:
        return None
    entry = old.topics[topic]
    partitions = list(entry.partitions)
    partitions[partition] = replace(known, leader_id=leader_id, leader_epoch=leader_epoch)
    topics = {**old.topics, topic: replace(entry, partitions=tuple(partitions))}
    return MetadataSnapshot(old.cluster_id, old.controller_id, brokers, topics)


def _topic(told: MetadataResponseTopic, old: MetadataSnapshot) -> Topic | None:
    if not told.name:
        return None
    before = old.topics.get(told.name)
    error = error_for_code(told.error_code) if told.error_code else None
    is_same = before is not None and before.topic_id == told.topic_id
    known = {each.index: each for each in before.partitions} if before and is_same else {}
    partitions = [
        Partition(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            each.error_code,
        )
        for each in sorted(told.partitions, key=lambda each: each.partition_index)
    ]
    newest = tuple(
        known[each.index]
        if each.index in known and known[each.index].leader_epoch > each.leader_epoch >= 0
        else each
        for each in partitions
    )
    return Topic(
        told.name,
        told.topic_id,
        newest,
        told.is_internal,
        error,
        told.topic_authorized_operations,
    )
