"""AssignReplicasToDirs: a broker reports in which of its directories replicas are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.controller.decision import Decision
from millstream.errors import (
    NO_ERROR,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from millstream.metadata.features import DIRECTORIES_SINCE, METADATA_VERSION
from millstream.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)

if TYPE_CHECKING:
    from millstream.controller.replication_control import ControllerState, ReplicationControl
    from millstream.metadata.cluster import BrokerRegistration
    from millstream.protocol.message import Message
    from millstream.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
    from millstream.types import Uuid


class DirectoryControl:
    """Decides about replicas and directories."""

    def __init__(self, state: ControllerState, replication: ReplicationControl) -> None:
        self._state = state
        self._replication = replication

    def assign(
        self, request: AssignReplicasToDirsRequest
    ) -> Decision[AssignReplicasToDirsResponse]:
        """Note where replicas are; each partition has its own error."""
        if self._state.image.metadata_version < DIRECTORIES_SINCE:
            raise UnsupportedVersion(
                f"directories have ids from {METADATA_VERSION} {DIRECTORIES_SINCE} on"
            )
        broker = self._state.registered_broker(request.broker_id, request.broker_epoch)
        response = AssignReplicasToDirsResponse()
        records: list[Message] = []
        for directory in request.directories:
            directory_answer = AssignReplicasToDirsResponseDirectoryData(id=directory.id)
            response.directories.append(directory_answer)
            for topic in directory.topics:
                answer = AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id)
                directory_answer.topics.append(answer)
                for data in topic.partitions:
                    error_code = self._assign(
                        broker, directory.id, topic.topic_id, data.partition_index, records
                    )
                    answer.partitions.append(
                        AssignReplicasToDirsResponsePartitionData(
                            partition_index=data.partition_index, error_code=error_code
                        )
                    )
        return Decision(response, records, is_atomic=False)

    def _assign(
        self,
        broker: BrokerRegistration,
        directory: Uuid,
        topic_id: Uuid,
        partition_id: int,
        records: list[Message],
    ) -> int:
        topic = self._state.image.topics.by_id.get(topic_id)
        if topic is None:
            return UnknownTopicId.code
        partition = topic.partitions.get(partition_id)
        if partition is None:
            return UnknownTopicOrPartition.code
        if broker.id not in partition.replicas:
            return NotLeaderOrFollower.code
        is_online = broker.has_online(directory)
        cluster = self._state.image.cluster

        def is_active(broker_id: int) -> bool:
            return cluster.is_active(broker_id) and (is_online or broker_id != broker.id)

        builder = self._replication.builder(topic, partition_id, is_active=is_active)
        builder.directories[broker.id] = directory
        if not is_online:
            builder.isr = tuple(each for each in builder.isr if each != broker.id)
        record = builder.build()
        if record is not None:
            records.append(record)
        return NO_ERROR
