"""One partition on this broker: who leads, who is in sync, what is committed.

`ReplicaManager` has one for each replica it holds, tells it about metadata, appends, fetches of
followers and the time, and carries out what it decides. It has no hands: it changes its log and
itself, and answers with what is to be done. How it is read is in `partition_reader`.

Most brokers are alone in sync: then the high watermark is the log's end, or what is on disk of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from millstream.metadata.topic_names import INTERNAL_TOPICS
from millstream.metadata.topics import NO_LEADER
from millstream.replica.follower_state import (
    UNKNOWN_BROKER_EPOCH,
    FollowerProgress,
    FollowerState,
)
from millstream.replica.isr import (
    REVERTING_ERRORS,
    SETTLED_BY_METADATA_ERRORS,
    IsrProposal,
    IsrState,
)
from millstream.replica.partition_state import PartitionState
from millstream.replica.pending_acks import PendingAcks
from millstream.storage.log.producer_entry import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.errors import ApiError
    from millstream.metadata.topics import PartitionRegistration
    from millstream.replica.ports import BrokerView, IsrAnswer
    from millstream.storage.log.log_results import AppendInfo
    from millstream.storage.log.unified_log import UnifiedLog
    from millstream.storage.log.validator import Inspected
    from millstream.storage.log.verification import VerificationGuard
    from millstream.types import ReadableBuffer, TopicPartition, Uuid

NO_EPOCH: Final = -1
"""A request that does not say which leader epoch it is for."""


class Partition(PartitionState):
    """The replica of one partition on this broker, and the rules while it leads."""

    __slots__ = (
        "_brokers",
        "_isr",
        "_lag_time_max_ms",
        "_local_id",
        "_min_isr",
        "acks",
        "fault",
        "has_the_only_log",
        "leader_epoch_start",
        "leader_id",
        "log",
        "name",
        "partition_epoch",
        "replicas",
        "topic_id",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        log: UnifiedLog,
        *,
        local_id: int,
        brokers: BrokerView,
        lag_time_max_ms: int,
    ) -> None:
        super().__init__(log.tail)
        self.name = name
        self.is_internal = name.topic in INTERNAL_TOPICS
        self.topic_id = topic_id
        self.log = log
        self.acks = PendingAcks(self)
        """The answers that wait for the records of this partition."""
        self.leader_id = NO_LEADER
        self.leader_epoch_start = 0
        """Where the log ended when this leadership began."""
        self.partition_epoch = -1
        self.has_the_only_log = False
        """Whether nobody leads, and nobody but this replica may: what it has written will stay."""
        self.replicas: tuple[int, ...] = ()
        self.fault: KafkaStorageError | None = None
        """Why the log cannot be used; None while it can."""
        self._local_id = local_id
        self._brokers = brokers
        self._lag_time_max_ms = lag_time_max_ms
        self._isr = IsrState(frozenset())
        self._min_isr = 1

    def use_log(self, log: UnifiedLog) -> None:
        """The replica was moved to another directory, and its log with it."""
        self.log = log
        self.tail = log.tail

    # Roles, as the metadata has them.

    def become_leader(self, registration: PartitionRegistration, now_ms: int) -> bool:
        """Lead, or go on leading with other replicas; False if something later is known already.

        A new epoch is noted in the log before anything is written in it.
        """
        if registration.partition_epoch < self.partition_epoch:
            return False
        is_new_leader = not self.is_leader
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        if is_new_epoch:
            self.log.begin_epoch(registration.leader_epoch)
            self.leader_epoch_start = self.log.log_end_offset
        self._take(registration)
        self._followers = {
            replica: self._followers.get(replica) or FollowerState()
            for replica in registration.replicas
            if replica != self._local_id
        }
        if is_new_epoch or is_new_leader:
            self._reset_followers(now_ms, is_new_leader=is_new_leader)
        self.is_leader = self.fault is None
        self.has_the_only_log = False
        self.note_config()
        self.advance_high_watermark(now_ms)
        return True

    def become_follower(self, registration: PartitionRegistration) -> bool:
        """Follow, or wait for a leader; False if something later is known already."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        self._take(registration)
        self.has_the_only_log = (
            (self.is_leader or self.has_the_only_log)
            and registration.leader == NO_LEADER
            and {*registration.isr, *registration.elr} == {self._local_id}
        )
        self.is_leader = False
        self._followers.clear()
        self.note_config()
        self.acks.check()
        return True

    def resign(self) -> None:
        """The partition is no longer here."""
        self.is_leader = self.has_the_only_log = False
        self.leader_id = NO_LEADER
        self.acks.check()

    def fail(self, error: KafkaStorageError) -> None:
        """The log's directory is out of service."""
        self.fault = error
        self.is_leader = self.has_the_only_log = False
        self.acks.check()

    def note_config(self) -> None:
        """The topic's settings, or the replicas, have changed."""
        config = self.log.config
        self.waits_for_disk = config.waits_for_disk
        self._min_isr = min(config.min_insync_replicas, max(len(self.replicas), 1))
        self.is_under_min_isr = len(self._isr.committed) < self._min_isr

    def _take(self, registration: PartitionRegistration) -> None:
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self._isr.commit(frozenset(registration.isr))

    def _reset_followers(self, now_ms: int, *, is_new_leader: bool) -> None:
        for replica, state in self._followers.items():
            state.begin_epoch(
                now_ms,
                self.log.log_end_offset,
                is_in_sync=replica in self._isr.committed,
                is_new=is_new_leader,
            )

    # What others may know.

    @property
    def isr(self) -> frozenset[int]:
        """The in-sync replicas that the controller has agreed to."""
        return self._isr.committed

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Those, and the ones that are being added."""
        return self._isr.maximal

    @property
    def proposal(self) -> IsrProposal | None:
        """The change of the ISR that waits for the controller."""
        return self._isr.proposal

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        """The other replicas by broker id, while this one leads."""
        return self._followers

    @property
    def low_watermark(self) -> int:
        """The first offset that some live replica still has."""
        low = self.log.log_start_offset
        for replica, state in self._followers.items():
            if state.log_start_offset < low and self._brokers.is_alive(replica):
                low = state.log_start_offset
        return low

    def require_role(self, current_leader_epoch: int = NO_EPOCH, *, needs_leader: bool) -> None:
        """Raise unless this replica may answer somebody who believes in a leader epoch."""
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            self._refuse_epoch(current_leader_epoch)
        if self.fault is not None or (needs_leader and not self.is_leader):
            raise self.refusal()

    def refusal(self) -> ApiError:
        """Why this replica cannot do what only a leader can."""
        if self.fault is not None:
            return KafkaStorageError(str(self.fault))
        return NotLeaderOrFollower(
            f"this broker does not lead {self.name}; in epoch {self.leader_epoch} broker "
            f"{self.leader_id} does"
        )

    def _refuse_epoch(self, current_leader_epoch: int) -> None:
        is_older = current_leader_epoch < self.leader_epoch
        error = FencedLeaderEpoch if is_older else UnknownLeaderEpoch
        raise error(f"{self.name} is in epoch {self.leader_epoch}, not {current_leader_epoch}")

    # Appending.

    def append_as_leader(
        self,
        records: ReadableBuffer | Inspected,
        wall_ms: int,
        now_ms: int,
        *,
        needs_all: bool = False,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard | None = None,
        transaction_version: int = 2,
    ) -> AppendInfo:
        """Write records and move the high watermark as far as that may.

        `needs_all` (acks=-1) refuses them while too few replicas are in sync.
        """
        if not self.is_leader:
            raise self.refusal()
        if needs_all and self.is_under_min_isr:
            raise NotEnoughReplicas(
                f"{self.name} has {len(self._isr.committed)} in-sync replicas, "
                f"min.insync.replicas asks for {self._min_isr}"
            )
        info = self.log.append_as_leader(
            records,
            self.leader_epoch,
            wall_ms,
            origin=origin,
            guard=guard,
            transaction_version=transaction_version,
        )
        self.on_append(now_ms)
        return info

    def follow_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over what the leader says about its log, as far as this one has it.

        The high watermark of a follower may go back: a new leader may not know all of it yet.
        """
        log, before = self.log, self.log.high_watermark
        after = log.update_high_watermark(high_watermark)
        start = min(log_start_offset, after)
        if log.raise_log_start_offset(start) or after != before:
            self.changed()

    def commit_error(self) -> ApiError | None:
        """What `acks=-1` must be told although its records are committed."""
        if len(self._isr.maximal) >= self._min_isr:
            return None
        return NotEnoughReplicasAfterAppend(
            f"{self.name} has {len(self._isr.maximal)} in-sync replicas by now, "
            f"min.insync.replicas asks for {self._min_isr}; the records are in the log"
        )

    def least_end_offset(self, offset: int, now_ms: int) -> int:
        """The least of an offset and the log ends of the followers that count.

        Those count that are in the ISR or being added to it, and those that have caught up and are
        about to join: otherwise the high watermark would run away from them and they could never.
        """
        for replica, state in self._followers.items():
            if state.log_end_offset < offset and (
                replica in self._isr.maximal or self._is_about_to_join(replica, state, now_ms)
            ):
                offset = state.log_end_offset
        return offset

    def _is_about_to_join(self, replica: int, state: FollowerState, now_ms: int) -> bool:
        end = self.log.log_end_offset
        return state.is_caught_up(end, now_ms, self._lag_time_max_ms) and self._brokers.is_eligible(
            replica, state.broker_epoch
        )

    # Followers and the ISR.

    def follower(self, replica: int, current_leader_epoch: int = NO_EPOCH) -> FollowerState:
        """What is known about a follower; raises if a broker is none.

        One that names the leader epoch may know more than this broker, which is to hear of it soon.
        """
        state = self._followers.get(replica)
        if state is None:
            is_early = current_leader_epoch != NO_EPOCH
            error = UnknownLeaderEpoch if is_early else NotLeaderOrFollower
            raise error(f"broker {replica} is no follower of {self.name} here")
        return state

    def on_follower_fetch(
        self,
        replica: int,
        broker_epoch: int,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        current_leader_epoch: int = NO_EPOCH,
    ) -> FollowerProgress:
        """A follower has fetched, from its log's end on."""
        state = self.follower(replica, current_leader_epoch)
        registered = self._brokers.epoch_of(replica)
        if UNKNOWN_BROKER_EPOCH != broker_epoch < registered:
            raise NotLeaderOrFollower(
                f"broker {replica} fetches {self.name} with broker epoch {broker_epoch}, it has "
                f"registered again since, with {registered}"
            )
        old_end, old_low = state.log_end_offset, self.low_watermark
        state.note_fetch(
            fetch_offset, log_start_offset, broker_epoch, self.log.log_end_offset, now_ms
        )
        proposal = self._propose_joining(replica, state)
        is_raised = fetch_offset != old_end and self.advance_high_watermark(now_ms)
        is_quiet = (
            fetch_offset >= self.log.log_end_offset
            and replica in self._isr.committed
            and self._isr.proposal is None
        )
        return FollowerProgress(is_raised, self.low_watermark > old_low, is_quiet, proposal)

    def settle_follower(self, replica: int) -> None:
        """A follower's fetch is about to be looked at here, not only in its session."""
        state = self._followers.get(replica)
        if state is not None:
            state.settle()

    def propose_shrinking(self, now_ms: int) -> IsrProposal | None:
        """Followers that were not at the end for too long leave the ISR, if the controller agrees.

        They count for the high watermark until it has.
        """
        if not self.is_leader or self._isr.proposal is not None:
            return None
        end = self.log.log_end_offset
        lagging = {
            replica
            for replica in self._isr.committed
            if replica != self._local_id
            and (
                (state := self._followers.get(replica)) is None
                or not state.is_caught_up(end, now_ms, self._lag_time_max_ms)
            )
        }
        return self._propose(self._isr.committed - lagging) if lagging else None

    def on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int) -> bool:
        """The controller agreed; whether the high watermark has risen by it."""
        if proposal is not self._isr.proposal or answer.leader_epoch != self.leader_epoch:
            return False
        if answer.partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = answer.partition_epoch
        self._isr.commit(frozenset(answer.isr))
        self.note_config()
        return self.advance_high_watermark(now_ms)

    def on_isr_refusal(self, proposal: IsrProposal, error: ApiError, now_ms: int) -> bool:
        """The controller did not agree; whether to ask again."""
        if proposal is not self._isr.proposal:
            return False
        if isinstance(error, REVERTING_ERRORS):
            self._isr.revert()
            self.advance_high_watermark(now_ms)
            return False
        return not isinstance(error, SETTLED_BY_METADATA_ERRORS)

    def _propose_joining(self, replica: int, state: FollowerState) -> IsrProposal | None:
        if replica in self._isr.maximal or self._isr.proposal is not None:
            return None
        is_far_enough = (
            state.log_end_offset >= self.log.high_watermark
            and state.log_end_offset >= self.leader_epoch_start
        )
        if not is_far_enough or not self._brokers.is_eligible(replica, state.broker_epoch):
            return None
        return self._propose(self._isr.committed | {replica})

    def _propose(self, members: frozenset[int]) -> IsrProposal:
        proposal = IsrProposal(
            self.name,
            self.topic_id,
            self.leader_epoch,
            self.partition_epoch,
            tuple(
                (each, state.broker_epoch if (state := self._followers.get(each)) else -1)
                for each in sorted(members)
            ),
        )
        self._isr.propose(proposal)
        return proposal

    def __repr__(self) -> str:
        return f"Partition({self.name}, leader {self.leader_id}, epoch {self.leader_epoch})"
