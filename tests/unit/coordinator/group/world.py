"""A group coordinator with its log in memory, and members that a test lets speak."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, TypeVar

from millstream.clock import ManualClock
from millstream.coordinator.decision import Caller, ProducerStamp
from millstream.coordinator.group.classic.group import ClassicGroup
from millstream.coordinator.group.config import GroupConfig
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.shard import GroupShard
from millstream.coordinator.runtime import CoordinatorRuntime
from millstream.errors import ApiError, class_for_code
from millstream.protocol.messages import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.protocol.records_framing import GROUP_RECORDS
from millstream.types import Uuid
from tests.unit.coordinator.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.protocol.messages import (
        DeleteGroupsResponse,
        DescribeGroupsResponse,
        OffsetCommitResponse,
        OffsetDeleteResponse,
        TxnOffsetCommitResponse,
    )
    from millstream.protocol.messages.offset_fetch import OffsetFetchResponsePartitions

GROUP = "readers"

T = TypeVar("T")


class Topics:
    """The topics of a cluster: names with their number of partitions."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"orders": 3, "payments": 2}
        self.ids: dict[str, Uuid] = {}
        self.racks: dict[tuple[str, int], frozenset[str]] = {}
        self.group_configs: dict[str, dict[str, str]] = {}

    def topic_id(self, name: str) -> Uuid | None:
        if name not in self.counts:
            return None
        return self.ids.setdefault(name, Uuid(name.encode().ljust(16, b"\0")[-16:]))

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((name for name in self.counts if self.topic_id(name) == topic_id), None)

    def partition_count(self, topic: str) -> int | None:
        return self.counts.get(topic)

    @property
    def topics_version(self) -> object:
        """A test that changes the counts gives a new dict."""
        return self.counts

    def topic_names(self) -> list[str]:
        return sorted(self.counts)

    def partition_racks(self, topic: str) -> list[frozenset[str]]:
        return [self.racks.get((topic, each), frozenset()) for each in range(self.counts[topic])]

    def group_config(self, group_id: str) -> dict[str, str]:
        return self.group_configs.get(group_id, {})


class Transactions:
    """A transaction coordinator that agrees, or does not."""

    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.asked: list[tuple[str, ProducerStamp, str, bool]] = []

    def verify(
        self,
        transactional_id: str,
        stamp: ProducerStamp,
        group_id: str,
        done: Callable[[ApiError | None], None],
        *,
        adds_partition: bool,
    ) -> None:
        self.asked.append((transactional_id, stamp, group_id, adds_partition))
        done(self.error)


def only(answers: Sequence[T | ApiError]) -> T:
    """The answer, which must have come and be no error."""
    (answer,) = answers
    assert not isinstance(answer, ApiError), repr(answer)
    return answer


def error_of(answers: Sequence[object]) -> type[ApiError] | None:
    """The error that was answered, as such or in a response; None if there was none."""
    (answer,) = answers
    if isinstance(answer, ApiError):
        return type(answer)
    code = getattr(answer, "error_code", 0)
    return class_for_code(code) if code else None


class World:
    """A coordinator of one partition, its log and its clock."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        seed: int = 1,
        consumer_config: ConsumerGroupConfig | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.topics = Topics()
        self.transactions = Transactions()
        self.config = config or GroupConfig()
        self.consumer_config = consumer_config or ConsumerGroupConfig()
        self.armed: list[int] = []
        self._deferred: deque[Callable[[], None]] = deque()
        self._random = Random(seed)
        self._epoch = 0
        self.runtime: CoordinatorRuntime[GroupShard]
        self.groups: GroupCoordinator
        self.start()

    def start(self) -> None:
        """Coordinate, from what is in the log."""
        self._epoch += 1
        self.runtime = CoordinatorRuntime(
            "__consumer_offsets",
            codec=GROUP_RECORDS,
            make_shard=lambda *_: GroupShard(
                self.config, self.consumer_config, self.topics, self._random
            ),
            store=self.store,
            partition_count=lambda: 1,
            clock=self.clock,
            defer=self._deferred.append,
            arm=self.armed.append,
            write_timeout_ms=self.config.offsets_commit_timeout_ms,
        )
        self.groups = GroupCoordinator(self.runtime, self.config, self.transactions)
        self.runtime.elected(0, self._epoch)
        self.end_turn()

    def end_turn(self) -> None:
        """Let everything deferred happen."""
        while self._deferred:
            self._deferred.popleft()()

    def restart(self) -> None:
        """Another broker takes over."""
        self.runtime.close()
        self.start()

    @property
    def shard(self) -> GroupShard:
        (shard,) = self.runtime.shards
        return shard

    def classic(self, group_id: str = GROUP) -> ClassicGroup:
        """A classic group."""
        group = self.shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def pass_ms(self, ms: int) -> None:
        """Let time pass; what is due on the way happens in time."""
        end_ms = self.clock.monotonic_ms() + ms
        while (due_ms := self.runtime.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.clock.advance(max(0, due_ms - self.clock.monotonic_ms()))
            self.runtime.tick()
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    # Offsets.

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        group: str = GROUP,
        member: str = "",
        instance: str | None = None,
        generation: int = -1,
        version: int = 9,
        retention_ms: int = -1,
        metadata: str | None = "",
    ) -> list[OffsetCommitResponse | ApiError]:
        """OffsetCommit; by id if the version has that."""
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            group_instance_id=instance,
            generation_id_or_member_epoch=generation,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic if version < 10 else "",
                    topic_id=Uuid.ZERO
                    if version < 10
                    else self.topics.topic_id(topic) or Uuid.METADATA_TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=4,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        answers: list[OffsetCommitResponse | ApiError] = []
        self.groups.commit_offsets(request, Caller("c", "/host", version), answers.append)
        self.end_turn()
        return answers

    def commit_txn(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        producer: int = 7,
        group: str = GROUP,
        member: str = "",
        generation: int = -1,
        version: int = 5,
    ) -> list[TxnOffsetCommitResponse | ApiError]:
        """TxnOffsetCommit."""
        request = TxnOffsetCommitRequest(
            transactional_id="txn",
            group_id=group,
            producer_id=producer,
            producer_epoch=0,
            member_id=member,
            generation_id_or_member_epoch=generation,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        answers: list[TxnOffsetCommitResponse | ApiError] = []
        self.groups.commit_txn_offsets(request, Caller("c", "/host", version), answers.append)
        return answers

    def end_txn(self, producer: int = 7, *, is_committed: bool = True) -> None:
        """A transaction's marker is written."""
        errors: list[ApiError | None] = []
        self.runtime.end_transaction(
            0,
            ProducerStamp(producer, 0),
            coordinator_epoch=1,
            transaction_version=2,
            is_committed=is_committed,
            done=errors.append,
        )
        assert errors == [None]

    def fetch(
        self,
        *places: tuple[str, int],
        group: str = GROUP,
        version: int = 9,
        requires_stable: bool = False,
        member: str | None = None,
    ) -> dict[tuple[str, int], OffsetFetchResponsePartitions]:
        """OffsetFetch of some partitions, or of all."""
        topics = None
        if places:
            topics = [
                OffsetFetchRequestTopics(
                    name=topic,
                    topic_id=self.topics.topic_id(topic) or Uuid.METADATA_TOPIC,
                    partition_indexes=[index],
                )
                for topic, index in places
            ]
        asked = OffsetFetchRequestGroup(group_id=group, topics=topics, member_id=member)
        found: dict[tuple[str, int], OffsetFetchResponsePartitions] = {}

        self.groups.fetch_offsets(
            [asked],
            Caller("c", "/host", version),
            lambda groups: found.update(
                ((topic.name, each.partition_index), each)
                for topic in groups[0].topics
                for each in topic.partitions
            ),
            requires_stable=requires_stable,
        )
        return found

    def offset_of(self, topic: str, index: int, *, group: str = GROUP) -> int:
        """The committed offset of a partition; -1 if there is none."""
        return self.fetch((topic, index), group=group)[(topic, index)].committed_offset

    def delete_offsets(
        self, *places: tuple[str, int], group: str = GROUP
    ) -> list[OffsetDeleteResponse | ApiError]:
        """OffsetDelete."""
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
                )
                for topic, index in places
            ],
        )
        answers: list[OffsetDeleteResponse | ApiError] = []
        self.groups.delete_offsets(request, Caller("c", "/host", 0), answers.append)
        return answers

    def delete_groups(self, *groups: str) -> DeleteGroupsResponse:
        """DeleteGroups."""
        answers: list[DeleteGroupsResponse] = []
        self.groups.delete_groups(groups, Caller("c", "/host", 2), answers.append)
        return only(answers)

    def describe(self, group: str = GROUP, version: int = 6) -> DescribeGroupsResponse:
        """DescribeGroups."""
        answers: list[DescribeGroupsResponse] = []
        self.groups.describe_groups([group], Caller("c", "/host", version), answers.append)
        return only(answers)
