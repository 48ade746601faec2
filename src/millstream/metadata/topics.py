"""Topics and partitions: who holds them, who leads them.

Part of `MetadataImage`, by name and by id. Values never change; `topics_delta` makes new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from millstream.metadata.cluster import DIRECTORY_MIGRATING
from millstream.metadata.features import DIRECTORIES_SINCE, ELR_RECORDS_SINCE
from millstream.metadata.shared_map import SharedMap
from millstream.protocol.messages.topic_records import PartitionRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.protocol.messages.topic_records import PartitionChangeRecord
    from millstream.types import Uuid

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected although it may lack records."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """One partition. `directories` goes with `replicas`, place by place."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def preferred_leader(self) -> int:
        """The replica that leads when all is well."""
        return self.replicas[0]

    def directory_of(self, broker_id: int) -> Uuid | None:
        """Where a broker keeps its replica; None if it has none."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        return None

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionRegistration:
        """Read a partition; one from before directories gets none that is known."""
        replicas = tuple(record.replicas)
        return cls(
            replicas,
            tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(replicas),
            tuple(record.isr),
            tuple(record.removing_replicas),
            tuple(record.adding_replicas),
            tuple(record.eligible_leader_replicas or ()),
            tuple(record.last_known_elr or ()),
            record.leader,
            LeaderRecoveryState(record.leader_recovery_state),
            record.leader_epoch,
            record.partition_epoch,
        )

    def merge(self, change: PartitionChangeRecord) -> PartitionRegistration:
        """The partition after a change. Every change raises the partition epoch by one.

        The leader epoch rises only if the record names a leader, be it the same one.
        """
        names_leader = change.leader != NO_LEADER_CHANGE
        replicas = _given(change.replicas, self.replicas)
        return replace(
            self,
            replicas=replicas,
            directories=self._directories_after(change, replicas),
            isr=_given(change.isr, self.isr),
            removing_replicas=_given(change.removing_replicas, self.removing_replicas),
            adding_replicas=_given(change.adding_replicas, self.adding_replicas),
            elr=_given(change.eligible_leader_replicas, self.elr),
            last_known_elr=_given(change.last_known_elr, self.last_known_elr),
            leader=change.leader if names_leader else self.leader,
            leader_recovery_state=(
                self.leader_recovery_state
                if change.leader_recovery_state == -1
                else LeaderRecoveryState(change.leader_recovery_state)
            ),
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
        )

    def _directories_after(
        self, change: PartitionChangeRecord, replicas: tuple[int, ...]
    ) -> tuple[Uuid, ...]:
        if change.directories is not None:
            return tuple(change.directories)
        if change.replicas is None:
            return self.directories
        known = dict(zip(self.replicas, self.directories, strict=True))
        return tuple(known.get(replica, DIRECTORY_MIGRATING) for replica in replicas)

    def to_record(
        self, topic_id: Uuid, partition_id: int, metadata_version: int
    ) -> PartitionRecord:
        """Write the partition with what a metadata.version can carry."""
        record = PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing_replicas),
            adding_replicas=list(self.adding_replicas),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        if metadata_version >= DIRECTORIES_SINCE:
            record.directories = list(self.directories)
        if metadata_version >= ELR_RECORDS_SINCE:
            record.eligible_leader_replicas = list(self.elr) or None
            record.last_known_elr = list(self.last_known_elr) or None
        return record


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions by number."""

    name: str
    id: Uuid
    partitions: SharedMap[int, PartitionRegistration] = field(default_factory=SharedMap)

    def to_records(self, metadata_version: int) -> Iterator[TopicRecord | PartitionRecord]:
        """The topic, then its partitions by number."""
        yield TopicRecord(name=self.name, topic_id=self.id)
        for partition_id in sorted(self.partitions):
            yield self.partitions[partition_id].to_record(self.id, partition_id, metadata_version)


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, found by id and by name."""

    by_id: SharedMap[Uuid, TopicImage] = field(default_factory=SharedMap)
    by_name: SharedMap[str, TopicImage] = field(default_factory=SharedMap)

    def to_records(self, metadata_version: int) -> Iterator[TopicRecord | PartitionRecord]:
        """Topics by name, each followed by its partitions."""
        for name in sorted(self.by_name):
            yield from self.by_name[name].to_records(metadata_version)


def _given(value: list[int] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return otherwise if value is None else tuple(value)
