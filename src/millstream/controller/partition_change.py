"""How one partition changes: `PartitionChangeBuilder` turns what is asked for into one record.

Every change of an existing partition goes through here, whatever causes it: a broker that comes or
goes, the leader's AlterPartition, an election, a reassignment, a failed directory. Rules 9 to 14
of section 6.6 of the facts meet in `build`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from millstream.metadata.features import DIRECTORIES_SINCE, NO_EPOCH_BUMP_ON_SHRINK_SINCE
from millstream.metadata.topics import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    LeaderRecoveryState,
    PartitionRegistration,
)
from millstream.protocol.messages.topic_records import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.types import Uuid


class Election(Enum):
    """Who may be elected."""

    PREFERRED = "the first replica, else as ONLINE"
    ONLINE = "keep the leader if it is fit, else the first fit replica"
    UNCLEAN = "as ONLINE, else the first replica that is alive, whatever it has lost"


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """What holds for the partition's topic and cluster."""

    is_acceptable_leader: Callable[[int], bool]
    """Whether a replica's broker is active and its directory online."""
    default_directory: Callable[[int], Uuid]
    metadata_version: int
    min_isr: int
    has_elr: bool
    """Whether eligible leader replicas are kept."""


class _Elected(NamedTuple):
    leader: int
    is_unclean: bool = False


class PartitionChangeBuilder:
    """A partition, what it should become, and the record that makes it so.

    Set the public attributes, then `build`.
    """

    def __init__(
        self,
        topic_id: Uuid,
        partition_id: int,
        partition: PartitionRegistration,
        rules: PartitionRules,
    ) -> None:
        self._topic_id = topic_id
        self._partition_id = partition_id
        self._partition = partition
        self._rules = rules
        self.election = Election.ONLINE
        self.isr: Sequence[int] = partition.isr
        self.replicas: Sequence[int] = partition.replicas
        self.removing: Sequence[int] = partition.removing_replicas
        self.adding: Sequence[int] = partition.adding_replicas
        self.recovery_state = partition.leader_recovery_state
        self.unclean_shutdown: frozenset[int] = frozenset()
        """Replicas that lost what they had not flushed: they cannot stay eligible."""
        self.directories = dict(zip(partition.replicas, partition.directories, strict=True))
        self._elr: tuple[int, ...] = partition.elr

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None where nothing changes."""
        record = PartitionChangeRecord(topic_id=self._topic_id, partition_id=self._partition_id)
        self._complete_reassignment()
        self._update_elr()
        elected = self._elect()
        if elected.leader != self._partition.leader:
            self._install(elected, record)
        self._set_isr_and_elr(record)
        self._bump_leader_epoch_if_needed(record)
        self._set_last_known_leader(record)
        self._set_assignment(record)
        if record.leader_recovery_state == -1 and (
            self.recovery_state != self._partition.leader_recovery_state
        ):
            record.leader_recovery_state = self.recovery_state
        return None if _is_no_change(record) else record

    def _complete_reassignment(self) -> None:
        """Drop the removed replicas once the added ones are in sync."""
        if not self.adding and not self.removing:
            return
        isr = _without(self.isr, self.removing)
        replicas = _without(self.replicas, self.removing)
        required: Iterable[int] = self.adding
        if len(self.removing) > len(self.adding):
            # With fewer replicas than before, each that stays must be worth keeping.
            required = replicas
        if isr and replicas and set(required) <= set(isr):
            self.isr, self.replicas, self.removing, self.adding = isr, replicas, (), ()

    def _update_elr(self) -> None:
        if not self._rules.has_elr:
            self._elr = ()
            return
        if len(self.isr) >= min(self._rules.min_isr, len(self.replicas)):
            self._elr = ()
            return
        candidates = {*self._partition.elr, *self._partition.isr} - {*self.isr}
        eligible = candidates - self.unclean_shutdown
        self._elr = tuple(replica for replica in self.replicas if replica in eligible)

    def _elect(self) -> _Elected:
        candidates = [self._partition.leader, *self.replicas]
        if self.election is Election.PREFERRED:
            candidates = [self.replicas[0], *candidates]
        for candidate in candidates:
            if self._is_valid_leader(candidate):
                return _Elected(candidate)
        if self._can_elect_last_known():
            return _Elected(self._partition.last_known_elr[0], is_unclean=True)
        if self.election is Election.UNCLEAN:
            for candidate in self.replicas:
                if self._rules.is_acceptable_leader(candidate):
                    return _Elected(candidate, is_unclean=True)
        return _Elected(NO_LEADER)

    def _is_valid_leader(self, replica: int) -> bool:
        has_the_data = replica in self.isr or (not self.isr and replica in self._elr)
        return has_the_data and self._rules.is_acceptable_leader(replica)

    def _can_elect_last_known(self) -> bool:
        """With no one in sync or eligible, the replica that led last has lost the least."""
        known = self._partition.last_known_elr
        return (
            self._rules.has_elr
            and not self.isr
            and not self._elr
            and len(known) == 1
            and known[0] in self.replicas
            and self._rules.is_acceptable_leader(known[0])
        )

    def _install(self, elected: _Elected, record: PartitionChangeRecord) -> None:
        record.leader = elected.leader
        if elected.is_unclean:
            self.isr, self._elr = (elected.leader,), ()
            record.leader_recovery_state = LeaderRecoveryState.RECOVERING
        elif elected.leader in self._elr:
            self.isr = (elected.leader,)
            self._elr = tuple(each for each in self._elr if each != elected.leader)

    def _set_isr_and_elr(self, record: PartitionChangeRecord) -> None:
        # Without eligible leaders to fall back on, the last ISR is never forgotten.
        if tuple(self.isr) != self._partition.isr and (self.isr or self._rules.has_elr):
            record.isr = list(self.isr)
        if self._elr != self._partition.elr:
            record.eligible_leader_replicas = list(self._elr)

    def _bump_leader_epoch_if_needed(self, record: PartitionChangeRecord) -> None:
        """Naming the same leader again starts a new epoch: removed replicas must not go on."""
        if record.leader != NO_LEADER_CHANGE:
            return
        is_shrink = record.isr is not None and not set(self._partition.isr) <= set(record.isr)
        bumps_on_shrink = self._rules.metadata_version < NO_EPOCH_BUMP_ON_SHRINK_SINCE
        if not set(self._partition.replicas) <= set(self.replicas) or (
            is_shrink and bumps_on_shrink
        ):
            record.leader = self._partition.leader

    def _set_last_known_leader(self, record: PartitionChangeRecord) -> None:
        known = self._partition.last_known_elr
        leader = self._partition.leader if record.leader == NO_LEADER_CHANGE else record.leader
        if leader != NO_LEADER or not self._rules.has_elr:
            if known:
                record.last_known_elr = []
        elif self._partition.leader != NO_LEADER and not known:
            record.last_known_elr = [self._partition.leader]

    def _set_assignment(self, record: PartitionChangeRecord) -> None:
        before = self._partition
        if self._rules.metadata_version >= DIRECTORIES_SINCE:
            directories = [
                self.directories[replica]
                if replica in self.directories
                else self._rules.default_directory(replica)
                for replica in self.replicas
            ]
            if tuple(directories) != before.directories:
                record.directories = directories
        if tuple(self.replicas) != before.replicas:
            record.replicas = list(self.replicas)
        if tuple(self.removing) != before.removing_replicas:
            record.removing_replicas = list(self.removing)
        if tuple(self.adding) != before.adding_replicas:
            record.adding_replicas = list(self.adding)


def _without(replicas: Iterable[int], gone: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in gone)


def _is_no_change(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == -1
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
