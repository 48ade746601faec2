"""Moving replicas between brokers. Rule 14 of section 6.6 of the facts.

A reassignment only names its target here; it completes in `partition_change` when a leader reports
that the new replicas are in sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.controller.assignments import check_assignment
from millstream.controller.decision import Decision
from millstream.errors import (
    ApiError,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.controller.replication_control import ControllerState, ReplicationControl
    from millstream.metadata.topics import TopicImage
    from millstream.protocol.message import Message
    from millstream.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
    )
    from millstream.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
    )
    from millstream.protocol.messages.topic_records import PartitionChangeRecord
    from millstream.types import Uuid


class ReassignmentControl:
    """Decides about moving replicas."""

    def __init__(self, state: ControllerState, replication: ReplicationControl) -> None:
        self._state = state
        self._replication = replication

    def alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Decision[AlterPartitionReassignmentsResponse]:
        """Begin, change or cancel reassignments; each partition has its own error."""
        response = AlterPartitionReassignmentsResponse(
            error_message=None,
            allow_replication_factor_change=request.allow_replication_factor_change,
        )
        records: list[Message] = []
        for asked in request.topics:
            answer = ReassignableTopicResponse(name=asked.name)
            response.responses.append(answer)
            for data in asked.partitions:
                result = ReassignablePartitionResponse(
                    partition_index=data.partition_index, error_message=None
                )
                answer.partitions.append(result)
                try:
                    topic = self._topic_with(asked.name, data.partition_index)
                    record = (
                        self._cancel(topic, data.partition_index)
                        if data.replicas is None
                        else self._reassign(
                            topic,
                            data.partition_index,
                            data.replicas,
                            may_change_factor=request.allow_replication_factor_change,
                        )
                    )
                except ApiError as error:
                    result.error_code, result.error_message = error.code, str(error)
                else:
                    records += [] if record is None else [record]
        return Decision(response, records)

    def list_ongoing(
        self, request: ListPartitionReassignmentsRequest
    ) -> Decision[ListPartitionReassignmentsResponse]:
        """The reassignments that are under way, all of them or of named partitions."""
        response = ListPartitionReassignmentsResponse(error_message=None)
        topics = self._state.image.topics
        wanted: Iterable[tuple[TopicImage, Iterable[int]]]
        if request.topics is None:
            grouped: dict[Uuid, list[int]] = {}
            for topic_id, partition_id in sorted(self._state.index.reassigning):
                grouped.setdefault(topic_id, []).append(partition_id)
            wanted = [(topics.by_id[topic_id], ids) for topic_id, ids in grouped.items()]
        else:
            wanted = [
                (topic, asked.partition_indexes)
                for asked in request.topics
                if (topic := topics.by_name.get(asked.name)) is not None
            ]
        for topic, partition_ids in wanted:
            ongoing = _ongoing(topic, partition_ids)
            if ongoing.partitions:
                response.topics.append(ongoing)
        return Decision(response)

    def _topic_with(self, name: str, partition_id: int) -> TopicImage:
        topic = self._state.image.topics.by_name.get(name)
        if topic is None or partition_id not in topic.partitions:
            raise UnknownTopicOrPartition(f"there is no partition {name}-{partition_id}")
        return topic

    def _cancel(self, topic: TopicImage, partition_id: int) -> PartitionChangeRecord | None:
        """Back to the replicas from before."""
        partition = topic.partitions[partition_id]
        if not partition.is_reassigning:
            raise NoReassignmentInProgress(
                f"{topic.name}-{partition_id} is not being reassigned: nothing to cancel"
            )
        adding = partition.adding_replicas
        isr = tuple(each for each in partition.isr if each not in adding)
        if not isr and not self._state.allows_unclean_election(topic.name):
            raise InvalidReplicaAssignment(
                f"{topic.name}-{partition_id} cannot go back: none of its former replicas is in "
                "sync, and its topic does not allow an unclean election"
            )
        builder = self._replication.builder(topic, partition_id)
        builder.isr = isr
        builder.replicas = tuple(each for each in partition.replicas if each not in adding)
        builder.removing = builder.adding = ()
        return builder.build()

    def _reassign(
        self,
        topic: TopicImage,
        partition_id: int,
        target: Sequence[int],
        *,
        may_change_factor: bool,
    ) -> PartitionChangeRecord | None:
        """Towards other replicas: old and new ones until the new ones are in sync."""
        check_assignment(self._state.image, target, None)
        partition = topic.partitions[partition_id]
        current = partition.replicas
        former = [each for each in current if each not in partition.adding_replicas]
        if not may_change_factor and len(target) != len(former):
            raise InvalidReplicationFactor(
                f"{topic.name}-{partition_id} has {len(former)} replicas, the target has "
                f"{len(target)}, and a change was not allowed"
            )
        removing = sorted(set(current) - set(target))
        builder = self._replication.builder(topic, partition_id)
        builder.replicas = (*target, *removing)
        builder.removing = tuple(removing)
        # New is what was no replica before a reassignment that is under way: asking for the same
        # target again must not end it before the new replicas are in sync. (Apache Kafka leaves
        # those among them that are no longer wanted, and waits for them too.)
        builder.adding = tuple(sorted(set(target) - set(former)))
        return builder.build()


def _ongoing(topic: TopicImage, partition_ids: Iterable[int]) -> OngoingTopicReassignment:
    ongoing = OngoingTopicReassignment(name=topic.name)
    for partition_id in partition_ids:
        partition = topic.partitions.get(partition_id)
        if partition is not None and partition.is_reassigning:
            ongoing.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=partition_id,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding_replicas),
                    removing_replicas=list(partition.removing_replicas),
                )
            )
    return ongoing
