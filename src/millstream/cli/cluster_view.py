"""A Metadata response as values: brokers, topics, partitions and their leaders.

`Session` keeps one; commands show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.cli.connection import Address
from millstream.cli.faults import CommandFailed
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.protocol.messages import MetadataResponse
    from millstream.protocol.messages.metadata import MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker that clients may connect to."""

    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Who has a partition."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic and its partitions by ascending index."""

    name: str
    topic_id: Uuid
    is_internal: bool
    error_code: int
    partitions: tuple[PartitionView, ...]

    def partition(self, index: int) -> PartitionView:
        """One of its partitions; CommandFailed if there is no such one."""
        if not 0 <= index < len(self.partitions):
            raise CommandFailed(
                f"{self.name} has no partition {index}; it has {len(self.partitions)}, from 0 on"
            )
        return self.partitions[index]

    @property
    def replication_factor(self) -> int:
        """How many replicas its partitions have."""
        return max((len(each.replicas) for each in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What one Metadata response said."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, TopicView]


def cluster_view(response: MetadataResponse) -> ClusterView:
    """The response as values."""
    topics = [_topic_view(each) for each in response.topics]
    return ClusterView(
        response.cluster_id,
        response.controller_id,
        {
            each.node_id: BrokerView(each.node_id, Address(each.host, each.port), each.rack)
            for each in response.brokers
        },
        {each.name: each for each in topics},
    )


def _topic_view(topic: MetadataResponseTopic) -> TopicView:
    return TopicView(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        topic.error_code,
        tuple(
            PartitionView(
                each.partition_index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ),
    )
