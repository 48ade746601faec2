"""Elections that somebody asks for or that are due: ElectLeaders, rebalancing, unclean ones.

Elections because a broker comes or goes are in `replication_control`; who wins is decided in
`partition_change`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.controller.decision import Decision
from millstream.controller.partition_change import Election
from millstream.errors import (
    ApiError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from millstream.metadata.topics import NO_LEADER
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.controller.partition_index import TopicIdPartition
    from millstream.controller.replication_control import ControllerState, ReplicationControl
    from millstream.protocol.message import Message
    from millstream.protocol.messages.elect_leaders import ElectLeadersRequest

ELECTIONS_PER_PASS_MAX: Final = 1000
"""How many leaders one pass of a periodic task moves."""

_ELECTION_TYPES: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


class ElectionControl:
    """Decides who leads, where nobody came or went."""

    def __init__(self, state: ControllerState, replication: ReplicationControl) -> None:
        self._state = state
        self._replication = replication

    def elect_leaders(self, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
        """An operator wants preferred leaders back, or any leader at all."""
        election = _ELECTION_TYPES.get(request.election_type)
        if election is None:
            raise InvalidRequest(f"there is no election type {request.election_type}")
        records: list[Message] = []
        results: dict[str, list[PartitionResult]] = {}
        for topic, partition_id in self._asked(request):
            fault = self._elect(topic, partition_id, election, records)
            if request.topic_partitions is None and isinstance(fault, ElectionNotNeeded):
                continue
            results.setdefault(topic, []).append(
                PartitionResult(
                    partition_id=partition_id,
                    error_code=0 if fault is None else fault.code,
                    error_message=None if fault is None else str(fault),
                )
            )
        response = ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(topic=topic, partition_result=partitions)
                for topic, partitions in results.items()
            ]
        )
        return Decision(response, records, is_atomic=False)

    def rebalance(self) -> Decision[bool]:
        """Move leaderships back to preferred replicas; says whether more is left to do."""
        return self._pass(self._state.index.imbalanced, Election.PREFERRED)

    def elect_unclean(self) -> Decision[bool]:
        """Give leaders to partitions without one, where their topic allows a loss."""
        topics = self._state.image.topics
        allowed = (
            (topic_id, partition_id)
            for topic_id, partition_id in self._state.index.leaderless
            if self._state.allows_unclean_election(topics.by_id[topic_id].name)
        )
        return self._pass(allowed, Election.UNCLEAN)

    def _pass(self, partitions: Iterable[TopicIdPartition], election: Election) -> Decision[bool]:
        records: list[Message] = []
        for topic_id, partition_id in sorted(partitions):
            if len(records) >= ELECTIONS_PER_PASS_MAX:
                return Decision(True, records, is_atomic=False)
            topic = self._state.image.topics.by_id[topic_id]
            builder = self._replication.builder(topic, partition_id, can_be_unclean=False)
            builder.election = election
            record = builder.build()
            if record is not None:
                records.append(record)
        return Decision(False, records, is_atomic=False)

    def _asked(self, request: ElectLeadersRequest) -> list[tuple[str, int]]:
        if request.topic_partitions is not None:
            return [
                (asked.topic, partition_id)
                for asked in request.topic_partitions
                for partition_id in asked.partitions
            ]
        topics = self._state.image.topics.by_name
        return [
            (name, partition_id)
            for name in sorted(topics)
            for partition_id in sorted(topics[name].partitions)
        ]

    def _elect(
        self, topic_name: str, partition_id: int, election: Election, records: list[Message]
    ) -> ApiError | None:
        topic = self._state.image.topics.by_name.get(topic_name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if topic is None or partition is None:
            return UnknownTopicOrPartition(f"there is no partition {topic_name}-{partition_id}")
        if election is Election.PREFERRED and partition.leader == partition.preferred_leader:
            return ElectionNotNeeded("the preferred replica leads already")
        if election is Election.UNCLEAN and partition.leader != NO_LEADER:
            return ElectionNotNeeded("the partition has a leader")
        builder = self._replication.builder(topic, partition_id, can_be_unclean=False)
        builder.election = election
        record = builder.build()
        if record is not None:
            records.append(record)
            return None
        if election is Election.PREFERRED:
            return PreferredLeaderNotAvailable("the preferred replica is not in sync and active")
        return EligibleLeadersNotAvailable("no replica of the partition is alive")
