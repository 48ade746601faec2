"""Partitions: their offsets, deleting records, electing leaders, moving replicas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from millstream.client.admin.operations import Operations, error_or, raise_for
from millstream.client.router import CONTROLLER
from millstream.errors import InvalidArgument, MillstreamError, UnsupportedVersion
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes

OffsetSpec: TypeAlias = (
    Literal[
        "earliest",
        "latest",
        "max_timestamp",
        "earliest_local",
        "latest_tiered",
        "earliest_pending_upload",
    ]
    | int
    | datetime
)
"""Which offset: an end of the log, or the first at or after a time (ms or an aware datetime)."""

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
ElectionType: TypeAlias = Literal["preferred", "unclean"]

END: Final = -1
"""As the offset of `delete_records`: everything up to the high watermark."""

_TIMESTAMPS: Final[Mapping[str, tuple[int, int]]] = {
    # The number that stands for the request, and the version that first has it.
    "latest": (-1, 0),
    "earliest": (-2, 0),
    "max_timestamp": (-3, 7),
    "earliest_local": (-4, 8),
    "latest_tiered": (-5, 9),
    "earliest_pending_upload": (-6, 11),
}


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset that was asked for."""

    offset: int | None
    """None if there is none: no record is as young as the time asked for."""
    timestamp: int | None
    """The record's time in milliseconds, where the question was about times."""
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move of a partition that is going on."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionOperations(Operations):
    """Operations on partitions."""

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, ListedOffset]:
        """Find an offset in each partition: an end of the log, or by time."""
        timestamps = {item: _timestamp(spec) for item, spec in specs.items()}
        limit_ms = self._brokers_limit_ms(timeout)
        isolation = 1 if isolation_level == "read_committed" else 0

        def request(items: Sequence[TopicPartition]) -> VersionedRequest:
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index,
                            timestamp=timestamps[self._partition(name, index)],
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in self._by_wire_topic(items).items()
            ]
            needed = max(_version_for(specs[each]) for each in items)

            def build(version: int) -> ListOffsetsRequest:
                require_version("ListOffsets", needed, version)
                return ListOffsetsRequest(
                    replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=limit_ms
                )

            return VersionedRequest(ApiKey.LIST_OFFSETS, build)

        def read(
            answer: ListOffsetsResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, ListedOffset | MillstreamError]:
            return {
                self._partition(topic.name, each.partition_index): error_or(
                    ListedOffset(
                        _or_none(each.offset), _or_none(each.timestamp), _or_none(each.leader_epoch)
                    ),
                    each.error_code,
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each(specs, self._leader, request, read, timeout)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Outcomes[TopicPartition, int]:
        """Delete all records before an offset (`END`: all); gives where the log begins now."""
        limit_ms = self._brokers_limit_ms(timeout)

        def request(items: Sequence[TopicPartition]) -> DeleteRecordsRequest:
            topics = [
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=index, offset=before[self._partition(name, index)]
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in self._by_wire_topic(items).items()
            ]
            return DeleteRecordsRequest(topics=topics, timeout_ms=limit_ms)

        def read(
            answer: DeleteRecordsResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, int | MillstreamError]:
            return {
                self._partition(topic.name, each.partition_index): error_or(
                    each.low_watermark, each.error_code
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each(before, self._leader, request, read, timeout)

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition],
        *,
        election: ElectionType = "preferred",
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Make the preferred replica the leader, or (unclean) any that lives, at a loss.

        A partition that needs no election has an `ElectionNotNeeded` error.
        """
        limit_ms = self._brokers_limit_ms(timeout)

        def request(items: Sequence[TopicPartition]) -> ElectLeadersRequest:
            return ElectLeadersRequest(
                election_type=0 if election == "preferred" else 1,
                topic_partitions=[
                    TopicPartitions(topic=name, partitions=indexes)
                    for name, indexes in self._by_wire_topic(items).items()
                ],
                timeout_ms=limit_ms,
            )

        def read(
            answer: ElectLeadersResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, MillstreamError | None]:
            raise_for(answer)
            return {
                self._partition(topic.topic, each.partition_id): error_or(
                    None, each.error_code, each.error_message
                )
                for topic in answer.replica_election_results
                for each in topic.partition_result
            }

        return await self._each(partitions, lambda _: CONTROLLER, request, read, timeout)

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Begin to move partitions to the given brokers; None cancels a move."""
        limit_ms = self._brokers_limit_ms(timeout)

        def request(items: Sequence[TopicPartition]) -> VersionedRequest:
            topics = [
                ReassignableTopic(
                    name=name,
                    partitions=[
                        ReassignablePartition(
                            partition_index=index,
                            replicas=_listed(replicas[self._partition(name, index)]),
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in self._by_wire_topic(items).items()
            ]

            def build(version: int) -> AlterPartitionReassignmentsRequest:
                if not allow_replication_factor_change:
                    require_version("AlterPartitionReassignments", 1, version)
                return AlterPartitionReassignmentsRequest(
                    timeout_ms=limit_ms,
                    topics=topics,
                    allow_replication_factor_change=allow_replication_factor_change,
                )

            return VersionedRequest(ApiKey.ALTER_PARTITION_REASSIGNMENTS, build)

        def read(
            answer: AlterPartitionReassignmentsResponse, _items: Sequence[TopicPartition]
        ) -> dict[TopicPartition, MillstreamError | None]:
            raise_for(answer)
            return {
                self._partition(topic.name, each.partition_index): error_or(
                    None, each.error_code, each.error_message
                )
                for topic in answer.responses
                for each in topic.partitions
            }

        return await self._each(replicas, lambda _: CONTROLLER, request, read, timeout)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are going on, of these partitions or of all."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in self._by_wire_topic(partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._brokers_limit_ms(timeout), topics=topics
        )
        answer = await self._call(request, CONTROLLER, ListPartitionReassignmentsResponse, timeout)
        return {
            TopicPartition(name, each.partition_index): Reassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            if (name := self._names.from_wire(topic.name)) is not None
            for each in topic.partitions
        }


def require_version(what: str, needed: int, version: int) -> None:
    """Refuse what a broker is too old for, before it is sent."""
    if version < needed:
        raise UnsupportedVersion(
            f"{what}: this needs version {needed}, the broker speaks {version}; upgrade the broker"
        )


def _timestamp(spec: OffsetSpec) -> int:
    if isinstance(spec, datetime):
        if spec.tzinfo is None:
            raise InvalidArgument(f"{spec!r} has no time zone; give an aware datetime")
        return round(spec.timestamp() * 1000)
    if isinstance(spec, int):
        if spec < 0:
            raise InvalidArgument(f"{spec} is no time in milliseconds; use a name such as 'latest'")
        return spec
    if spec not in _TIMESTAMPS:
        raise InvalidArgument(f"{spec!r} is no offset; use one of {', '.join(_TIMESTAMPS)}")
    return _TIMESTAMPS[spec][0]


def _version_for(spec: OffsetSpec) -> int:
    return _TIMESTAMPS[spec][1] if isinstance(spec, str) else 0


def _or_none(number: int) -> int | None:
    return number if number >= 0 else None


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)
