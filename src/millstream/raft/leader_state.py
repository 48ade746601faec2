"""What a leader remembers: how far each replica has come, who fetched lately, who waits.

`leading` acts on it. The rules that decide what is committed and whether the leader still has a
majority are here, as arithmetic over the replicas' progress.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.raft.states import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.raft.pending import PendingBatch, PendingFetch, VoterChange
    from millstream.raft.voters import Endpoint, ReplicaKey, VoterSet


@dataclass(slots=True)
class ReplicaProgress:
    """One replica as the leader sees it. Times are -1 until there is one."""

    key: ReplicaKey
    end_offset: int | None = None
    """Everything below is on that replica's disk; None before its first fetch in this epoch."""
    last_fetch_ms: int = -1
    last_fetch_wall_ms: int = -1
    last_caught_up_ms: int = -1
    last_caught_up_wall_ms: int = -1
    leader_end_at_last_fetch: int = -1
    begin_due_ms: int = 0
    """When to remind it that we lead, if it is a voter that does not fetch."""

    def fetched(self, offset: int, leader_end: int, now_ms: int, wall_ms: int) -> None:
        """The replica asks for `offset`: it has all that is below, and has it on disk."""
        if offset >= leader_end:
            self.last_caught_up_ms, self.last_caught_up_wall_ms = now_ms, wall_ms
        elif 0 <= self.leader_end_at_last_fetch <= offset:
            # It has what we had when it last asked, so it was level with us then.
            self.last_caught_up_ms = self.last_fetch_ms
            self.last_caught_up_wall_ms = self.last_fetch_wall_ms
        self.end_offset = offset
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms, self.last_fetch_wall_ms = now_ms, wall_ms


@dataclass(slots=True)
class Leader:
    """Decides the order of records in its epoch and which of them are committed."""

    ROLE: ClassVar[Role] = Role.LEADER

    epoch: int
    leader_key: ReplicaKey
    leader_endpoints: Mapping[str, Endpoint]
    epoch_start_offset: int
    granting_voters: frozenset[int]
    check_quorum_deadline_ms: int
    known_voters: VoterSet
    """The voters with the endpoints and versions they told us; the same set as in the log."""
    voted_key: ReplicaKey | None = None
    voters: dict[int, ReplicaProgress] = field(default_factory=dict)
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    fetched_voters: set[int] = field(default_factory=set)
    """Who has fetched since the majority was last seen."""
    high_watermark: int | None = None
    """None until a record of this epoch is committed."""
    fetches: list[PendingFetch] = field(default_factory=list)
    batches: list[PendingBatch] = field(default_factory=list)
    """What was submitted and is not in the log yet."""
    next_offset: int = 0
    """The offset of the next record: the log's end, plus what waits in `batches`."""
    append_due_ms: int = 0
    """No append before."""
    change: VoterChange | None = None

    @property
    def leader_id(self) -> int:
        """Itself."""
        return self.leader_key.id

    def would_vote_for(self, key: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether this role allows the vote: a leader is content with itself."""
        return False

    def take_voters(self, voters: VoterSet) -> None:
        """Follow a change of the voter set; what is known of a replica stays known."""
        known = {progress.key: progress for progress in self.voters.values()} | self.observers
        before, self.voters = self.voters, {}
        for voter in voters:
            progress = known.pop(voter.key, None)
            old = before.get(voter.id)
            if progress is None and old is not None and not old.key.has_directory:
                # The voters of a static quorum get their directories later: it is the same one.
                progress = known.pop(old.key)
            self.voters[voter.id] = progress or ReplicaProgress(voter.key)
            self.voters[voter.id].key = voter.key
        self.observers = known
        self.observers.pop(self.leader_key, None)
        self.fetched_voters &= set(self.voters)

    def progress_of(self, key: ReplicaKey, voters: VoterSet) -> ReplicaProgress:
        """A replica's progress; an unknown one becomes an observer."""
        if voters.is_voter(key):
            return self.voters[key.id]
        return self.observers.setdefault(key, ReplicaProgress(key))

    def forget_observers(self, since_ms: int) -> None:
        """Drop the observers that have not fetched since."""
        if any(each.last_fetch_ms < since_ms for each in self.observers.values()):
            active = {
                k: each for k, each in self.observers.items() if each.last_fetch_ms >= since_ms
            }
            self.observers = active

    def majority_offset(self, own_flushed_offset: int, voters: VoterSet) -> int:
        """The highest offset below which everything is on a majority of the voters' disks.

        The leader counts if it is a voter itself, with what it has flushed.
        """
        offsets = [
            own_flushed_offset if voter_id == self.leader_id else progress.end_offset or 0
            for voter_id, progress in self.voters.items()
        ]
        return sorted(offsets, reverse=True)[voters.majority - 1]

    def saw_fetch(self, key: ReplicaKey, voters: VoterSet, deadline_ms: int) -> None:
        """Note that a voter follows; a majority of them moves the check quorum deadline."""
        if not voters.is_voter(key) or key.id == self.leader_id:
            return
        self.fetched_voters.add(key.id)
        own_vote = 1 if voters.is_voter(self.leader_key) else 0
        if len(self.fetched_voters) + own_vote >= voters.majority:
            self.fetched_voters.clear()
            self.check_quorum_deadline_ms = deadline_ms
