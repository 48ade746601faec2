"""`OffsetManager`: commits, fetches and deletes the offsets of one shard's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.group import CommitOrigin
from millstream.coordinator.group.offsets.expiry import expired_offsets
from millstream.coordinator.group.offsets.records import (
    NO_EXPIRY,
    from_legacy,
    offset_record,
    offset_tombstone,
)
from millstream.coordinator.group.offsets.tables import CommittedOffsets, PendingOffsets
from millstream.errors import (
    ApiError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.coordinator.decision import Caller, CoordinatorRecord, Moment, ProducerStamp
    from millstream.coordinator.group.config import GroupConfig
    from millstream.coordinator.group.group import CommitCheck, Group
    from millstream.coordinator.group.offsets.expiry import Expired
    from millstream.coordinator.group.ports import TopicsView
    from millstream.protocol.messages.classic_group_records import (
        LegacyOffsetCommitKey,
        LegacyOffsetCommitValue,
        OffsetCommitKey,
        OffsetCommitValue,
    )
    from millstream.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestTopic,
    )
    from millstream.protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
    )
    from millstream.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestTopic,
    )

NOT_FOUND_SINCE: Final = 9
"""The version of OffsetCommit that knows GROUP_ID_NOT_FOUND."""
COMMIT_TOPIC_IDS_SINCE: Final = 10
TXN_TOPIC_IDS_SINCE: Final = 6


class OffsetManager:
    """The offsets of the groups of one shard."""

    def __init__(
        self,
        config: GroupConfig,
        topics: TopicsView,
        groups: Mapping[str, Group],
        create_group: Callable[[str], object],
    ) -> None:
        """`create_group` makes the group of a name whose first trace is an offset."""
        self._config = config
        self._topics = topics
        self._groups = groups
        self._create_group = create_group
        self.committed = CommittedOffsets()
        self.pending = PendingOffsets()

    # Committing.

    def commit(
        self, request: OffsetCommitRequest, caller: Caller, now: Moment
    ) -> Decision[OffsetCommitResponse]:
        """Store how far a group has read."""
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None and generation >= 0:
            if caller.version >= NOT_FOUND_SINCE:
                raise GroupIdNotFound(f"there is no group {request.group_id}")
            raise IllegalGeneration(f"there is no group {request.group_id}")
        check = None
        if group is not None:
            origin = CommitOrigin(
                request.member_id, request.group_instance_id, generation, caller.version, False
            )
            check = group.validate_offset_commit(origin, now.now_ms)
        expire_ms = NO_EXPIRY
        if request.retention_time_ms != NO_EXPIRY:
            expire_ms = now.wall_ms + request.retention_time_ms
        commit = _Commit(self, request.group_id, check, now.wall_ms, expire_ms)
        uses_ids = caller.version >= COMMIT_TOPIC_IDS_SINCE
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in commit.decide(topic, uses_ids=uses_ids)
                ],
            )
            for topic in request.topics
        ]
        return Decision(OffsetCommitResponse(topics=topics), commit.records)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller, now: Moment
    ) -> Decision[TxnOffsetCommitResponse]:
        """Store how far a group will have read when a transaction commits."""
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None and generation >= 0:
            raise IllegalGeneration(f"there is no group {request.group_id}")
        check = None
        if group is not None:
            origin = CommitOrigin(
                request.member_id, request.group_instance_id, generation, caller.version, True
            )
            try:
                check = group.validate_offset_commit(origin, now.now_ms)
            except StaleMemberEpoch as error:
                raise IllegalGeneration(str(error)) from error
        commit = _Commit(self, request.group_id, check, now.wall_ms, NO_EXPIRY)
        uses_ids = caller.version >= TXN_TOPIC_IDS_SINCE
        topics = [
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in commit.decide(topic, uses_ids=uses_ids)
                ],
            )
            for topic in request.topics
        ]
        return Decision(TxnOffsetCommitResponse(topics=topics), commit.records)

    # Deleting.

    def delete(self, request: OffsetDeleteRequest) -> Decision[OffsetDeleteResponse]:
        """Delete offsets of topics that the group does not read."""
        group = self._groups.get(request.group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {request.group_id}")
        group.validate_offset_delete()
        records: list[CoordinatorRecord] = []
        topics = [self._delete_in(group, topic, records) for topic in request.topics]
        return Decision(OffsetDeleteResponse(topics=topics), records)

    def _delete_in(
        self, group: Group, topic: OffsetDeleteRequestTopic, records: list[CoordinatorRecord]
    ) -> OffsetDeleteResponseTopic:
        name = topic.name
        code = GroupSubscribedToTopic.code if group.is_subscribed_to(name) else 0
        count = self._topics.partition_count(name) or 0
        answers = []
        for asked in topic.partitions:
            index = asked.partition_index
            refusal = code if 0 <= index < count else UnknownTopicOrPartition.code
            if not refusal and (
                self.committed.get(group.group_id, name, index) is not None
                or self.pending.has(group.group_id, name, index)
            ):
                records.append(offset_tombstone(group.group_id, name, index))
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=refusal))
        return OffsetDeleteResponseTopic(name=name, partitions=answers)

    def tombstones_of(self, group_id: str) -> list[CoordinatorRecord]:
        """What deletes all offsets of a group, also those of open transactions."""
        places = {
            (topic, partition): None
            for topic, by_partition in self.committed.of_group(group_id).items()
            for partition in by_partition
        } | dict.fromkeys(self.pending.of_group(group_id))
        return [offset_tombstone(group_id, *place) for place in places]

    def tombstones_in(self, deleted: Mapping[str, Uuid]) -> list[CoordinatorRecord]:
        """What deletes the offsets in topics that are deleted, but not in those named like them."""
        found = dict.fromkeys(self.pending.in_topics(deleted))
        for group_id, place in self.committed.in_topics(deleted):
            value = self.committed.get(group_id, *place)
            if value is not None and value.topic_id in (Uuid.ZERO, deleted[place[0]]):
                found[(group_id, place)] = None
        return [offset_tombstone(group_id, *place) for group_id, place in found]

    def expired(self, group: Group, wall_ms: int) -> Expired:
        """What is kept for nobody in a group."""
        retention_ms = self._config.offsets_retention_ms
        return expired_offsets(group, self.committed, self.pending, wall_ms, retention_ms)

    # Replaying.

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, stamp: ProducerStamp | None
    ) -> None:
        """A commit, or a deletion, is in the log."""
        group_id, topic, partition = key.group, key.topic, key.partition
        if value is None:
            self.committed.remove(group_id, topic, partition)
            self.pending.remove(group_id, topic, partition)
            return
        if group_id not in self._groups:
            self._create_group(group_id)
        if stamp is not None:
            self.pending.put(stamp.producer_id, group_id, topic, partition, value)
            return
        self.committed.put(group_id, topic, partition, value)
        if self.pending.has_group(group_id):
            self.pending.supersede(group_id, topic, partition)

    def replay_legacy(
        self,
        key: LegacyOffsetCommitKey,
        value: LegacyOffsetCommitValue | None,
        stamp: ProducerStamp | None,
    ) -> None:
        """The same, of a record of the oldest form."""
        self.replay(*from_legacy(key, value), stamp)

    def replay_end_of_transaction(self, stamp: ProducerStamp, *, is_committed: bool) -> None:
        """The offsets of a transaction are in force, or forgotten."""
        for place, (serial, value) in self.pending.end(stamp.producer_id).items():
            if is_committed and value is not None:
                self.committed.put(*place, value)
                self.pending.supersede(*place, before_serial=serial)

    def resolve(self, name: str, topic_id: Uuid, *, uses_ids: bool) -> tuple[str, Uuid, int]:
        """Name, id and number of partitions of a topic; raises ApiError if there is none."""
        if uses_ids:
            found = self._topics.topic_name(topic_id)
            if found is None:
                raise UnknownTopicId(f"there is no topic with id {topic_id}")
            name = found
        count = self._topics.partition_count(name)
        if count is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return name, self._topics.topic_id(name) or Uuid.ZERO, count

    def is_metadata_too_long(self, metadata: str | None) -> bool:
        """Whether a text is longer than may be committed."""
        return metadata is not None and len(metadata) > self._config.offset_metadata_max_bytes


class _Commit:
    """One commit while it is decided, partition by partition."""

    __slots__ = ("_check", "_expire_ms", "_group_id", "_manager", "_wall_ms", "records")

    def __init__(
        self,
        manager: OffsetManager,
        group_id: str,
        check: CommitCheck | None,
        wall_ms: int,
        expire_ms: int,
    ) -> None:
        self._manager = manager
        self._group_id = group_id
        self._check = check
        self._wall_ms = wall_ms
        self._expire_ms = expire_ms
        self.records: list[CoordinatorRecord] = []

    def decide(
        self, topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, *, uses_ids: bool
    ) -> Iterable[tuple[int, int]]:
        """Each partition of a topic with its error code; makes the records of those without."""
        try:
            name, topic_id, count = self._manager.resolve(
                topic.name, topic.topic_id, uses_ids=uses_ids
            )
        except ApiError as error:
            return [(each.partition_index, error.code) for each in topic.partitions]
        answers = []
        for asked in topic.partitions:
            index = asked.partition_index
            code = 0
            if not 0 <= index < count:
                code = UnknownTopicOrPartition.code
            elif self._manager.is_metadata_too_long(asked.committed_metadata):
                code = OffsetMetadataTooLarge.code
            elif self._check is not None:
                code = _refusal(self._check, name, topic_id, index)
            if not code:
                record = offset_record(
                    self._group_id,
                    name,
                    topic_id,
                    index,
                    asked.committed_offset,
                    asked.committed_leader_epoch,
                    asked.committed_metadata or "",
                    self._wall_ms,
                    self._expire_ms,
                )
                self.records.append(record)
            answers.append((index, code))
        return answers


def _refusal(check: CommitCheck, topic: str, topic_id: Uuid, partition: int) -> int:
    try:
        check(topic, topic_id, partition)
    except ApiError as error:
        return error.code
    return 0
