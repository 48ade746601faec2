"""`KRaftMetadataCache`: the questions a broker asks about the cluster, answered from an image.

A publisher sets the image; handlers and the replica manager ask. Each answer comes from one image,
so it never mixes two states. Lookups are dict lookups; building answers for Metadata costs what
they hold. Authorization is done by those who ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import (
    NO_ERROR,
    LeaderNotAvailable,
    ListenerNotFound,
    ReplicaNotAvailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.metadata.configs import ResourceType
from millstream.metadata.features import KRAFT_VERSION
from millstream.metadata.image import EMPTY_IMAGE
from millstream.metadata.topic_names import INTERNAL_TOPICS
from millstream.metadata.topics import NO_LEADER
from millstream.protocol.messages.describe_cluster import DescribeClusterBroker
from millstream.protocol.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from millstream.metadata.cluster import BrokerRegistration, ClusterImage, Endpoint
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.topics import PartitionRegistration, TopicImage
    from millstream.types import Uuid

_LISTENER_ERROR_SINCE = 6
"""From this version of Metadata on, a leader without the listener has an error of its own."""


class KRaftMetadataCache:
    """The current image, and answers from it."""

    __slots__ = ("image", "kraft_version")

    def __init__(
        self, image: MetadataImage = EMPTY_IMAGE, kraft_version: Callable[[], int] = int
    ) -> None:
        """`kraft_version` asks raft, which keeps that level itself."""
        self.image = image
        self.kraft_version = kraft_version

    def topic(self, name: str) -> TopicImage | None:
        """A topic by name."""
        return self.image.topics.by_name.get(name)

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        """A topic by id."""
        return self.image.topics.by_id.get(topic_id)

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic."""
        topic = self.image.topics.by_name.get(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic."""
        topic = self.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_names(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(self.image.topics.by_name)

    @property
    def topics_version(self) -> object:
        """Another object whenever topics or partitions have changed."""
        return self.image.topics

    def partition_racks(self, topic: str) -> list[frozenset[str]]:
        """The racks in which each partition has replicas, by its number."""
        found = self.image.topics.by_name.get(topic)
        if found is None:
            return []
        brokers = self.image.cluster.brokers
        return [
            frozenset(
                rack
                for replica in found.partitions[each].replicas
                if replica in brokers and (rack := brokers[replica].rack) is not None
            )
            for each in sorted(found.partitions)
        ]

    def partition(self, topic: str, partition_id: int) -> PartitionRegistration | None:
        """A partition by topic name and number."""
        found = self.image.topics.by_name.get(topic)
        return None if found is None else found.partitions.get(partition_id)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None if there is no such topic."""
        found = self.image.topics.by_name.get(topic)
        return None if found is None else len(found.partitions)

    def leader_of(self, topic: str, partition_id: int) -> int | None:
        """The broker that leads a partition; None if there is none."""
        found = self.partition(topic, partition_id)
        return None if found is None or found.leader == NO_LEADER else found.leader

    def leader_endpoint(self, topic: str, partition_id: int, listener: str) -> Endpoint | None:
        """Where to reach a partition's leader; None if there is none or it lacks the listener."""
        leader = self.leader_of(topic, partition_id)
        return None if leader is None else self.broker_endpoint(leader, listener)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """A broker as it registered, alive or not."""
        return self.image.cluster.brokers.get(broker_id)

    def broker_endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where to reach a broker that is alive."""
        return _alive_endpoint(self.image.cluster, broker_id, listener)

    def alive_brokers(self, listener: str) -> dict[int, Endpoint]:
        """The brokers that are not fenced and have the listener, by id."""
        cluster = self.image.cluster
        found = (
            (each, _alive_endpoint(cluster, each, listener)) for each in sorted(cluster.brokers)
        )
        return {broker_id: endpoint for broker_id, endpoint in found if endpoint is not None}

    def alive_broker_ids(self) -> list[int]:
        """The brokers that are not fenced, sorted."""
        brokers = self.image.cluster.brokers
        return sorted(broker_id for broker_id, each in brokers.items() if not each.is_fenced)

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        return self.image.cluster.is_unfenced(broker_id)

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether a broker is in controlled shutdown."""
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def random_alive_broker_id(self, random: Random) -> int:
        """What Metadata gives as controller id: any broker will do, since each forwards."""
        alive = self.alive_broker_ids()
        return random.choice(alive) if alive else -1

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set dynamically for a resource."""
        return self.image.configs.of(resource_type, name)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """What was set for a topic."""
        return self.image.configs.of(ResourceType.TOPIC, name)

    def group_config(self, group_id: str) -> Mapping[str, str]:
        """What was set for a group."""
        return self.image.configs.of(ResourceType.GROUP, group_id)

    def features(self) -> tuple[Mapping[str, int], int]:
        """The finalized levels, and the offset as of which they hold."""
        levels = {**self.image.features.levels, KRAFT_VERSION: self.kraft_version()}
        return levels, self.image.provenance.last_offset

    def metadata_brokers(self, listener: str) -> list[MetadataResponseBroker]:
        """The brokers part of a Metadata answer; the fenced ones if there are no others.

        A client that is told of nobody has nobody to ask again: it never comes back to a cluster of
        one broker that was restarted.
        """
        brokers = self.image.cluster.brokers
        endpoints = self.alive_brokers(listener) or {
            broker_id: broker.listeners[listener]
            for broker_id, broker in sorted(brokers.items())
            if listener in broker.listeners
        }
        return [
            MetadataResponseBroker(
                node_id=broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=brokers[broker_id].rack,
            )
            for broker_id, endpoint in endpoints.items()
        ]

    def metadata_topics(
        self, names: Iterable[str], listener: str, version: int
    ) -> list[MetadataResponseTopic]:
        """The topics part of a Metadata answer; topics that do not exist are left out."""
        image = self.image
        return [
            metadata_topic(image, topic, listener, version)
            for name in names
            if (topic := image.topics.by_name.get(name)) is not None
        ]

    def metadata_topics_by_id(
        self, topic_ids: Iterable[Uuid], listener: str, version: int
    ) -> list[MetadataResponseTopic]:
        """The same for topics asked for by id; an unknown id gets its error."""
        image = self.image
        found = []
        for topic_id in topic_ids:
            topic = image.topics.by_id.get(topic_id)
            if topic is None:
                found.append(
                    MetadataResponseTopic(
                        error_code=UnknownTopicId.code, name=None, topic_id=topic_id
                    )
                )
            else:
                found.append(metadata_topic(image, topic, listener, version))
        return found

    def unknown_topic(self, name: str) -> MetadataResponseTopic:
        """What Metadata says about a topic that does not exist."""
        return MetadataResponseTopic(
            error_code=UnknownTopicOrPartition.code,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
        )

    def describe_cluster_brokers(
        self, listener: str, *, with_fenced: bool = False
    ) -> list[DescribeClusterBroker]:
        """The brokers part of a DescribeCluster answer."""
        described = []
        for broker_id, broker in sorted(self.image.cluster.brokers.items()):
            endpoint = broker.listeners.get(listener)
            if endpoint is None or (broker.is_fenced and not with_fenced):
                continue
            described.append(
                DescribeClusterBroker(
                    broker_id=broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
            )
        return described


def metadata_topic(
    image: MetadataImage, topic: TopicImage, listener: str, version: int
) -> MetadataResponseTopic:
    """A topic as Metadata shows it on a listener."""
    cluster = image.cluster
    return MetadataResponseTopic(
        error_code=NO_ERROR,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _metadata_partition(
                cluster, partition_id, topic.partitions[partition_id], listener, version
            )
            for partition_id in sorted(topic.partitions)
        ],
    )


def offline_replicas(
    cluster: ClusterImage, partition: PartitionRegistration, listener: str
) -> list[int]:
    """The replicas that cannot be reached: broker gone or fenced, listener or directory missing."""
    return [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if _alive_endpoint(cluster, replica, listener) is None
        or not cluster.brokers[replica].has_online(directory)
    ]


def leader_error(
    cluster: ClusterImage, partition: PartitionRegistration, listener: str, version: int
) -> int:
    """Why the leader cannot be used through a listener; 0 if it can."""
    if partition.leader == NO_LEADER or not cluster.is_unfenced(partition.leader):
        return LeaderNotAvailable.code
    if listener in cluster.brokers[partition.leader].listeners:
        return NO_ERROR
    is_new = version >= _LISTENER_ERROR_SINCE
    return ListenerNotFound.code if is_new else LeaderNotAvailable.code


def _metadata_partition(
    cluster: ClusterImage,
    partition_id: int,
    partition: PartitionRegistration,
    listener: str,
    version: int,
) -> MetadataResponsePartition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    error_code = leader_error(cluster, partition, listener, version)
    offline = offline_replicas(cluster, partition, listener)
    if version == 0:
        # The oldest clients expect only brokers in the lists that the answer describes.
        reachable = [each for each in replicas if each not in offline]
        if error_code == NO_ERROR and reachable != replicas:
            error_code = ReplicaNotAvailable.code
        replicas, isr = reachable, [each for each in isr if each not in offline]
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=partition_id,
        leader_id=NO_LEADER if error_code in _LEADER_ERRORS else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


_LEADER_ERRORS = frozenset({LeaderNotAvailable.code, ListenerNotFound.code})


def _alive_endpoint(cluster: ClusterImage, broker_id: int, listener: str) -> Endpoint | None:
    broker = cluster.brokers.get(broker_id)
    return None if broker is None or broker.is_fenced else broker.listeners.get(listener)
