"""AlterPartition: a leader reports who is in sync. Rule 9 of section 6.6 of the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.controller.decision import Decision
from millstream.errors import (
    NO_ERROR,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.metadata.topics import NO_LEADER_CHANGE, LeaderRecoveryState
from millstream.protocol.messages.alter_partition import (
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)

if TYPE_CHECKING:
    from millstream.controller.decision import RequestContext
    from millstream.controller.replication_control import ControllerState, ReplicationControl
    from millstream.metadata.topics import PartitionRegistration, TopicImage
    from millstream.protocol.message import Message
    from millstream.protocol.messages.alter_partition import AlterPartitionRequest

_EPOCHS_SINCE = 3
"""From this version on each member of the ISR comes with its broker epoch."""
_ANY_EPOCH = -1


class IsrControl:
    """Decides about the in-sync replicas that leaders report."""

    def __init__(self, state: ControllerState, replication: ReplicationControl) -> None:
        self._state = state
        self._replication = replication

    def alter_partition(
        self, request: AlterPartitionRequest, context: RequestContext
    ) -> Decision[AlterPartitionResponse]:
        """Take over each ISR that is right; each partition has its own error."""
        self._state.registered_broker(request.broker_id, request.broker_epoch)
        response = AlterPartitionResponse()
        records: list[Message] = []
        for asked in request.topics:
            answer = AlterPartitionResponseTopicData(topic_id=asked.topic_id)
            response.topics.append(answer)
            topic = self._state.image.topics.by_id.get(asked.topic_id)
            for data in asked.partitions:
                if context.version < _EPOCHS_SINCE:
                    data.new_isr_with_epochs = [
                        BrokerState(broker_id=each, broker_epoch=_ANY_EPOCH)
                        for each in data.new_isr
                    ]
                answer.partitions.append(self._alter(request.broker_id, topic, data, records))
        return Decision(response, records, is_atomic=False)

    def _alter(
        self,
        leader_id: int,
        topic: TopicImage | None,
        data: AlterPartitionRequestPartitionData,
        records: list[Message],
    ) -> AlterPartitionResponsePartitionData:
        answer = AlterPartitionResponsePartitionData(partition_index=data.partition_index)
        answer.error_code = self._fault(leader_id, topic, data)
        if answer.error_code or topic is None:
            return answer
        builder = self._replication.builder(topic, data.partition_index)
        builder.isr = tuple(each.broker_id for each in data.new_isr_with_epochs)
        builder.recovery_state = LeaderRecoveryState(data.leader_recovery_state)
        record = builder.build()
        partition = topic.partitions[data.partition_index]
        if record is not None:
            records.append(record)
            partition = partition.merge(record)
            if record.leader not in (NO_LEADER_CHANGE, leader_id):
                # The change completed a reassignment that moves the leader. It is made, and the
                # old leader learns that it is one no longer.
                answer.error_code = NewLeaderElected.code
                return answer
        answer.leader_id = partition.leader
        answer.leader_epoch = partition.leader_epoch
        answer.isr = list(partition.isr)
        answer.leader_recovery_state = partition.leader_recovery_state
        answer.partition_epoch = partition.partition_epoch
        return answer

    def _fault(
        self, leader_id: int, topic: TopicImage | None, data: AlterPartitionRequestPartitionData
    ) -> int:
        if topic is None:
            return UnknownTopicId.code
        partition = topic.partitions.get(data.partition_index)
        if partition is None:
            return UnknownTopicOrPartition.code
        return (
            _epoch_fault(leader_id, partition, data)
            or _isr_fault(leader_id, partition, data)
            or self._member_fault(data)
        )

    def _member_fault(self, data: AlterPartitionRequestPartitionData) -> int:
        brokers = self._state.image.cluster.brokers
        for member in data.new_isr_with_epochs:
            broker = brokers.get(member.broker_id)
            if broker is None or not broker.is_active:
                return IneligibleReplica.code
            if member.broker_epoch not in (_ANY_EPOCH, broker.epoch):
                return IneligibleReplica.code
        return NO_ERROR


def _epoch_fault(
    leader_id: int, partition: PartitionRegistration, data: AlterPartitionRequestPartitionData
) -> int:
    """Whether the leader and the controller mean the same state."""
    if (
        data.leader_epoch > partition.leader_epoch
        or data.partition_epoch > partition.partition_epoch
    ):
        # The leader has seen more than we have: we are not the controller any more.
        return NotController.code
    if data.leader_epoch < partition.leader_epoch:
        return FencedLeaderEpoch.code
    if leader_id != partition.leader:
        return InvalidRequest.code
    if data.partition_epoch < partition.partition_epoch:
        return InvalidUpdateVersion.code
    return NO_ERROR


def _isr_fault(
    leader_id: int, partition: PartitionRegistration, data: AlterPartitionRequestPartitionData
) -> int:
    """Whether such an ISR can be at all."""
    members = [each.broker_id for each in data.new_isr_with_epochs]
    is_possible = (
        len(set(members)) == len(members)
        and set(members) <= set(partition.replicas)
        and leader_id in members
        and data.leader_recovery_state in tuple(LeaderRecoveryState)
    )
    if not is_possible:
        return InvalidRequest.code
    is_recovering = data.leader_recovery_state == LeaderRecoveryState.RECOVERING
    was_recovering = partition.leader_recovery_state is LeaderRecoveryState.RECOVERING
    if is_recovering and (len(members) > 1 or not was_recovering):
        return InvalidRequest.code
    return NO_ERROR
