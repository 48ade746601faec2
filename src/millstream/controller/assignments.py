"""The replicas of each new partition: as a request names them, or placed by us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.controller.placement import ReplicaPlacer, UsableBroker
from millstream.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
)
from millstream.metadata.topics import PartitionRegistration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.controller.config import ControllerConfig
    from millstream.controller.replication_control import ControllerState
    from millstream.metadata.image import MetadataImage
    from millstream.protocol.messages.create_topics import CreatableTopic
    from millstream.protocol.messages.topic_records import PartitionRecord
    from millstream.types import Uuid

_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class UnplacedTopic:
    """How many partitions and replicas a new topic is to have, or which."""

    partition_count: int
    replication_factor: int
    manual: Mapping[int, Sequence[int]] | None = None

    @property
    def is_manual(self) -> bool:
        """Whether the asker chose the replicas."""
        return self.manual is not None

    @classmethod
    def from_request(cls, topic: CreatableTopic, config: ControllerConfig) -> UnplacedTopic:
        """What was asked for; -1 takes the default."""
        if topic.assignments:
            return cls(len(topic.assignments), _DEFAULT, _manual(topic))
        if topic.replication_factor < _DEFAULT or topic.replication_factor == 0:
            raise InvalidReplicationFactor(
                f"the replication factor is {topic.replication_factor}; give 1 or more, or -1 "
                "for the default"
            )
        if topic.num_partitions < _DEFAULT or topic.num_partitions == 0:
            raise InvalidPartitions(
                f"the number of partitions is {topic.num_partitions}; give 1 or more, or -1 "
                "for the default"
            )
        is_default = topic.num_partitions == _DEFAULT
        partition_count = config.num_partitions if is_default else topic.num_partitions
        is_default = topic.replication_factor == _DEFAULT
        factor = config.default_replication_factor if is_default else topic.replication_factor
        return cls(partition_count, factor)


def _manual(topic: CreatableTopic) -> dict[int, Sequence[int]]:
    if topic.replication_factor != _DEFAULT:
        raise InvalidRequest(
            "replicas are assigned by hand: the replication factor must be -1, not "
            f"{topic.replication_factor}"
        )
    if topic.num_partitions != _DEFAULT:
        raise InvalidRequest(
            "replicas are assigned by hand: the number of partitions must be -1, not "
            f"{topic.num_partitions}"
        )
    assigned = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assigned) < len(topic.assignments):
        raise InvalidReplicaAssignment("a partition is assigned twice")
    if set(assigned) != set(range(len(assigned))):
        raise InvalidReplicaAssignment(
            f"the assigned partitions must be 0 to {len(assigned) - 1} without a gap"
        )
    return dict(assigned)


def placer(state: ControllerState) -> ReplicaPlacer:
    """Places partitions on the registered brokers that take replicas."""
    brokers = state.image.cluster.brokers.values()
    usable = [
        UsableBroker(each.id, each.rack, not each.is_active)
        for each in brokers
        if each.accepts_replicas
    ]
    return ReplicaPlacer(usable, state.random)


def assignment_of(topic: UnplacedTopic, state: ControllerState) -> dict[int, Sequence[int]]:
    """The replicas of each partition."""
    if topic.manual is None:
        place = placer(state)
        return {
            partition_id: place.place(topic.replication_factor)
            for partition_id in range(topic.partition_count)
        }
    factor = len(topic.manual[0])
    for replicas in topic.manual.values():
        check_assignment(state.image, replicas, factor)
    return dict(topic.manual)


def check_assignment(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Raise InvalidReplicaAssignment if replicas cannot be so."""
    if not replicas:
        raise InvalidReplicaAssignment("a partition is assigned to no broker")
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignment(f"a broker occurs twice in {list(replicas)}")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"{list(replicas)} has {len(replicas)} replicas, other partitions of the topic have "
            f"{replication_factor}"
        )
    for replica in replicas:
        if replica not in image.cluster.brokers:
            raise InvalidReplicaAssignment(f"broker {replica} is not registered")


def new_partition(
    image: MetadataImage,
    topic_id: Uuid,
    partition_id: int,
    replicas: Sequence[int],
    is_manual: bool,
) -> PartitionRecord:
    """The record of a new partition: in sync are the replicas that are active, and one must be."""
    isr = tuple(replica for replica in replicas if image.cluster.is_active(replica))
    if not isr:
        problem = f"no broker of {list(replicas)} for partition {partition_id} is active"
        raise (InvalidReplicaAssignment if is_manual else InvalidReplicationFactor)(problem)
    partition = PartitionRegistration(
        tuple(replicas),
        tuple(image.cluster.default_directory(replica) for replica in replicas),
        isr,
        leader=isr[0],
    )
    return partition.to_record(topic_id, partition_id, image.metadata_version)
