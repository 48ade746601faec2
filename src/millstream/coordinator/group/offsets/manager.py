"""`OffsetManager`: commits, fetches and deletes the offsets of one shard's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.group import CommitOrigin
from millstream.coordinator.group.offsets.expiry import expired_offsets
from millstream.coordinator.group.offsets.records import (
    EXPIRY_MAX,
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
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from millstream.coordinator.decision import CoordinatorRecord, Moment, ProducerStamp
    from millstream.coordinator.group.config import GroupConfig
    from millstream.coordinator.group.group import CommitCheck, Group
    from millstream.coordinator.group.offsets.commit import ErrorCodes, OffsetCommit
    from millstream.coordinator.group.offsets.expiry import Expired
    from millstream.coordinator.group.ports import TopicsView
    from millstream.protocol.messages.classic_group_records import (
        LegacyOffsetCommitKey,
        LegacyOffsetCommitValue,
        OffsetCommitKey,
        OffsetCommitValue,
    )
    from millstream.protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
    )

    _ResolvedTopic: TypeAlias = tuple[str, Uuid, int]
    """A topic's name, id and number of partitions."""

NOT_FOUND_SINCE: Final = 9
"""The version of OffsetCommit that knows GROUP_ID_NOT_FOUND."""


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

    def commit(self, commit: OffsetCommit, version: int, now: Moment) -> Decision[ErrorCodes]:
        """Store how far a group has read; `version` is the API's."""
        group_id, generation, member_id, instance_id, _, retention_ms = commit
        group = self._groups.get(group_id)
        if group is None and generation >= 0:
            if version >= NOT_FOUND_SINCE:
                raise GroupIdNotFound(f"there is no group {group_id}")
            raise IllegalGeneration(f"there is no group {group_id}")
        check = None
        if group is not None:
            origin = tuple.__new__(
                CommitOrigin, (member_id, instance_id, generation, version, False)
            )
            check = group.validate_offset_commit(origin, now.now_ms)
        expire_ms = NO_EXPIRY
        if retention_ms != NO_EXPIRY:
            expire_ms = min(now.wall_ms + retention_ms, EXPIRY_MAX)
        codes, records = self._decide(commit, check, now.wall_ms, expire_ms)
        # The first commit of a name makes its group, which other commits look at.
        may_wait = group is not None
        # The generated constructor costs three times as much.
        return tuple.__new__(Decision, (codes, records, None, True, True, may_wait))

    def commit_in_transaction(
        self, commit: OffsetCommit, version: int, now: Moment
    ) -> Decision[ErrorCodes]:
        """Store how far a group will have read when a transaction commits."""
        generation = commit.generation
        group = self._groups.get(commit.group_id)
        if group is None and generation >= 0:
            raise IllegalGeneration(f"there is no group {commit.group_id}")
        check = None
        if group is not None:
            origin = CommitOrigin(commit.member_id, commit.instance_id, generation, version, True)
            try:
                check = group.validate_offset_commit(origin, now.now_ms)
            except StaleMemberEpoch as error:
                raise IllegalGeneration(str(error)) from error
        return Decision(*self._decide(commit, check, now.wall_ms, NO_EXPIRY))

    def _decide(
        self, commit: OffsetCommit, check: CommitCheck | None, wall_ms: int, expire_ms: int
    ) -> tuple[ErrorCodes, list[CoordinatorRecord]]:
        """The errors of a commit, and the records of the partitions without one."""
        codes: list[int] = []
        records: list[CoordinatorRecord] = []
        group_id, metadata_max = commit.group_id, self._config.offset_metadata_max_bytes
        for topic, partitions in commit.topics:
            found = self._resolve(topic)
            if isinstance(found, ApiError):
                codes += [found.code] * len(partitions)
                continue
            name, topic_id, count = found
            for index, offset, leader_epoch, metadata in partitions:
                code = 0
                if not 0 <= index < count:
                    code = UnknownTopicOrPartition.code
                elif metadata and len(metadata) > metadata_max:
                    code = OffsetMetadataTooLarge.code
                elif check is not None:
                    code = _refusal(check, name, topic_id, index)
                codes.append(code)
                if not code:
                    records.append(
                        offset_record(
                            group_id,
                            name,
                            topic_id,
                            index,
                            offset,
                            leader_epoch,
                            metadata or "",
                            wall_ms,
                            expire_ms,
                        )
                    )
        return (() if len(records) == len(codes) else codes), records

    def _resolve(self, topic: str | bytes) -> _ResolvedTopic | ApiError:
        """Name, id and number of partitions of a topic, or why there are none."""
        topics = self._topics
        if isinstance(topic, str):
            topic_id, name = topics.topic_id(topic) or Uuid.ZERO, topic
        else:
            topic_id = Uuid(topic)
            found = topics.topic_name(topic_id)
            if found is None:
                return UnknownTopicId(f"there is no topic with id {topic_id}")
            name = found
        count = topics.partition_count(name)
        if count is None:
            return UnknownTopicOrPartition(f"there is no topic {name}")
        return name, topic_id, count

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


def _refusal(check: CommitCheck, topic: str, topic_id: Uuid, partition: int) -> int:
    try:
        check(topic, topic_id, partition)
    except ApiError as error:
        return error.code
    return 0
