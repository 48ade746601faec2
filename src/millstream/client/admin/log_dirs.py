"""Log directories of brokers: what lies in them, and moving replicas between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.client.admin.operations import Operations, error_or, raise_for
from millstream.client.router import Node
from millstream.errors import MillstreamError, error_for_code
from millstream.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.protocol.messages.describe_log_dirs import DescribeLogDirsResult


@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionReplica:
    """One broker's copy of a partition."""

    topic: str
    partition: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a log directory."""

    size_bytes: int
    offset_lag: int
    """How many records it is behind."""
    is_future: bool
    """Whether it is being moved here and not in use yet."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker."""

    error: MillstreamError | None
    """Why it cannot be used, if so."""
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaLogDir:
    """Where a replica lies, and where it is being moved to."""

    current: str | None
    current_lag: int | None = None
    future: str | None = None
    future_lag: int | None = None


class LogDirOperations(Operations):
    """Operations on log directories."""

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> Outcomes[int, Mapping[str, LogDirDescription]]:
        """The log directories of brokers (of all if not given) by path."""
        nodes = await self._brokers(timeout) if brokers is None else brokers
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=indexes)
                for name, indexes in self._by_wire_topic(partitions).items()
            ]

        def request(_nodes: Sequence[int]) -> DescribeLogDirsRequest:
            return DescribeLogDirsRequest(topics=topics)

        def read(
            answer: DescribeLogDirsResponse, asked: Sequence[int]
        ) -> dict[int, Mapping[str, LogDirDescription] | MillstreamError]:
            raise_for(answer)
            return {asked[0]: {each.log_dir: self._log_dir(each) for each in answer.results}}

        return await self._each(nodes, Node, request, read, timeout, per_request=1)

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout: float | None = None
    ) -> Outcomes[TopicPartitionReplica, ReplicaLogDir]:
        """Where replicas lie on their brokers."""

        def request(items: Sequence[TopicPartitionReplica]) -> DescribeLogDirsRequest:
            named = [TopicPartition(each.topic, each.partition) for each in items]
            return DescribeLogDirsRequest(
                topics=[
                    DescribableLogDirTopic(topic=name, partitions=indexes)
                    for name, indexes in self._by_wire_topic(named).items()
                ]
            )

        def read(
            answer: DescribeLogDirsResponse, items: Sequence[TopicPartitionReplica]
        ) -> dict[TopicPartitionReplica, ReplicaLogDir | MillstreamError]:
            raise_for(answer)
            dirs = {each.log_dir: self._log_dir(each) for each in answer.results}
            return {each: _placed(each, dirs) for each in items}

        return await self._each(replicas, _home, request, read, timeout)

    async def alter_replica_log_dirs(
        self, paths: Mapping[TopicPartitionReplica, str], *, timeout: float | None = None
    ) -> Outcomes[TopicPartitionReplica, None]:
        """Begin to move replicas to other log directories of their brokers."""

        def request(items: Sequence[TopicPartitionReplica]) -> AlterReplicaLogDirsRequest:
            by_path: dict[str, list[TopicPartition]] = {}
            for each in items:
                moved = TopicPartition(each.topic, each.partition)
                by_path.setdefault(paths[each], []).append(moved)
            return AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=name, partitions=indexes)
                            for name, indexes in self._by_wire_topic(moved_here).items()
                        ],
                    )
                    for path, moved_here in by_path.items()
                ]
            )

        def read(
            answer: AlterReplicaLogDirsResponse, items: Sequence[TopicPartitionReplica]
        ) -> dict[TopicPartitionReplica, MillstreamError | None]:
            broker_id = items[0].broker_id
            found: dict[TopicPartitionReplica, MillstreamError | None] = {}
            for topic in answer.results:
                for each in topic.partitions:
                    named = self._partition(topic.topic_name, each.partition_index)
                    replica = TopicPartitionReplica(named.topic, named.partition, broker_id)
                    found[replica] = error_or(None, each.error_code)
            return found

        return await self._each(paths, _home, request, read, timeout)

    def _log_dir(self, told: DescribeLogDirsResult) -> LogDirDescription:
        return LogDirDescription(
            error_for_code(told.error_code) if told.error_code else None,
            {
                TopicPartition(name, each.partition_index): ReplicaInfo(
                    each.partition_size, each.offset_lag, each.is_future_key
                )
                for topic in told.topics
                if (name := self._names.from_wire(topic.name)) is not None
                for each in topic.partitions
            },
            told.total_bytes if told.total_bytes >= 0 else None,
            told.usable_bytes if told.usable_bytes >= 0 else None,
            told.is_cordoned,
        )


def _home(replica: TopicPartitionReplica) -> Node:
    return Node(replica.broker_id)


def _placed(replica: TopicPartitionReplica, dirs: Mapping[str, LogDirDescription]) -> ReplicaLogDir:
    key = TopicPartition(replica.topic, replica.partition)
    current = current_lag = future = future_lag = None
    for path, each in dirs.items():
        info = each.replicas.get(key)
        if info is None:
            continue
        if info.is_future:
            future, future_lag = path, info.offset_lag
        else:
            current, current_lag = path, info.offset_lag
    return ReplicaLogDir(current, current_lag, future, future_lag)
