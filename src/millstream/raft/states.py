"""The roles a replica plays, each with what it must remember while it plays it.

`quorum_state` says which role may follow which; `elections`, `leading` and `following` act on
them. A leader remembers more than the others and has its own module, `leader_state`. A state
compares deadlines with the time it is told and never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.raft.voters import Endpoint, ReplicaKey, VoterSet
    from millstream.types import OffsetAndEpoch


class Role(Enum):
    """What a replica is in its epoch. Observers are only ever unattached or followers."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


@dataclass(slots=True)
class Tally:
    """The votes of one election, ours included."""

    voters: VoterSet
    granting: set[int]
    rejecting: set[int] = field(default_factory=set)

    @property
    def is_won(self) -> bool:
        """Whether a majority has granted its vote."""
        return len(self.granting) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether those who have not refused are too few."""
        return len(self.voters) - len(self.rejecting) < self.voters.majority

    @property
    def silent(self) -> list[int]:
        """The voters that have not answered."""
        return [n for n in self.voters.ids if n not in self.granting and n not in self.rejecting]

    def record(self, voter_id: int, *, is_granted: bool) -> None:
        """Count an answer; a voter that changes its mind counts as it said last."""
        if self.voters.get(voter_id) is None:
            return
        (self.granting if is_granted else self.rejecting).add(voter_id)
        (self.rejecting if is_granted else self.granting).discard(voter_id)


@dataclass(slots=True)
class Unattached:
    """Knows the epoch, and waits: for a leader to announce itself, or for its turn to try."""

    ROLE: ClassVar[Role] = Role.UNATTACHED

    epoch: int
    election_deadline_ms: int
    leader_id: int | None = None
    """The leader, where it is known but not how to reach it."""
    voted_key: ReplicaKey | None = None

    def would_vote_for(self, key: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether this role allows the vote."""
        return _may_vote(self.leader_id, self.voted_key, key, is_up_to_date, is_pre_vote)


@dataclass(slots=True)
class Prospective:
    """Asks whether it would win, before it disturbs anybody with a new epoch (KIP-996)."""

    ROLE: ClassVar[Role] = Role.PROSPECTIVE

    epoch: int
    election_deadline_ms: int
    tally: Tally
    leader_id: int | None = None
    leader_endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    voted_key: ReplicaKey | None = None
    retries: int = 0

    def would_vote_for(self, key: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether this role allows the vote."""
        return _may_vote(self.leader_id, self.voted_key, key, is_up_to_date, is_pre_vote)


@dataclass(slots=True)
class Candidate:
    """Has voted for itself in a new epoch and asks the others to do the same."""

    ROLE: ClassVar[Role] = Role.CANDIDATE

    epoch: int
    election_deadline_ms: int
    tally: Tally
    voted_key: ReplicaKey
    retries: int = 0
    is_backing_off: bool = False

    @property
    def leader_id(self) -> None:
        """A candidate knows no leader of its epoch."""
        return

    def would_vote_for(self, key: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether this role allows the vote: it has given its own to itself."""
        return is_pre_vote and is_up_to_date


@dataclass(slots=True)
class SnapshotDownload:
    """How far a snapshot has come from the leader."""

    snapshot_id: OffsetAndEpoch
    position: int = 0
    is_complete: bool = False


@dataclass(slots=True)
class Follower:
    """Knows the leader and fetches from it."""

    ROLE: ClassVar[Role] = Role.FOLLOWER

    epoch: int
    leader_id: int
    leader_endpoints: Mapping[str, Endpoint]
    fetch_deadline_ms: int
    update_voter_due_ms: int
    voted_key: ReplicaKey | None = None
    has_fetched: bool = False
    """Whether this leader has answered a fetch: as long as it does, nobody needs an election."""
    has_updated_leader: bool = False
    """Whether the leader knows our current endpoints, as far as we can tell."""
    download: SnapshotDownload | None = None

    def would_vote_for(self, key: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether this role allows the vote: never a binding one, there is a leader."""
        return is_pre_vote and is_up_to_date and not self.has_fetched


@dataclass(slots=True)
class Resigned:
    """Led this epoch and will not any more; tells the others so that they need not wait."""

    ROLE: ClassVar[Role] = Role.RESIGNED

    epoch: int
    resigned_id: int
    election_deadline_ms: int
    unaware: set[int]
    """The voters that have not acknowledged the end of the epoch."""
    preferred_successors: list[ReplicaKey] = field(default_factory=list)
    voted_key: ReplicaKey | None = None

    @property
    def leader_id(self) -> None:
        """Nobody leads this epoch any more."""
        return

    def would_vote_for(self, key: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether this role allows the vote: not in the epoch it has led itself."""
        return is_pre_vote and is_up_to_date


def _may_vote(
    leader_id: int | None,
    voted_key: ReplicaKey | None,
    key: ReplicaKey,
    is_up_to_date: bool,
    is_pre_vote: bool,
) -> bool:
    if not is_up_to_date:
        # Also for a candidate that has our vote: it may have lost unflushed records since.
        return False
    return is_pre_vote or (leader_id is None and voted_key in (None, key))
