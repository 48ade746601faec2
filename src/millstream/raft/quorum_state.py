"""Which role may follow which, as a table, and the one place where a role changes.

Every change goes through `QuorumState.enter`: it checks the table and the epoch, and asks for the
election state to be persisted before anything that relies on it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from millstream.raft.effects import ChangeLeadership, ElectionState, PersistElection
from millstream.raft.leader_state import Leader
from millstream.raft.states import (
    Candidate,
    Follower,
    Prospective,
    Resigned,
    Role,
    Unattached,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.raft.effects import Effect
    from millstream.raft.voters import VoterSet

State: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned
"""What a replica is at the moment."""

SAME_EPOCH: Mapping[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.PROSPECTIVE, Role.FOLLOWER, Role.LEADER}),
    Role.LEADER: frozenset({Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.PROSPECTIVE, Role.FOLLOWER}),
    Role.RESIGNED: frozenset(),
}
"""What may follow within an epoch."""

NEXT_EPOCH: Mapping[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
}
"""What may follow in a later epoch: somebody else's news, or a candidacy of our own."""


class QuorumState:
    """The current role and what of it is on disk."""

    __slots__ = ("_emit", "_known_leader", "persisted", "state")

    def __init__(self, emit: Callable[[Effect], None], stored: ElectionState | None) -> None:
        self._emit = emit
        self.persisted = stored
        self._known_leader: tuple[int | None, int] | None = None
        self.state: State = Unattached(epoch=0, election_deadline_ms=0)

    @property
    def leader_id(self) -> int | None:
        """Who leads the current epoch, if that is known."""
        return self.state.leader_id

    @property
    def role(self) -> Role:
        """The current role."""
        return self.state.ROLE

    def begin(self, state: State, kraft_version: int, voters: VoterSet) -> None:
        """Take the first role after a start, whatever the table says."""
        self._take(state, kraft_version, voters)

    def enter(self, state: State, kraft_version: int, voters: VoterSet) -> None:
        """Change the role, or renew it."""
        old = self.state
        assert state.epoch >= old.epoch, f"epoch {state.epoch} after {old.epoch}"
        allowed = SAME_EPOCH if state.epoch == old.epoch else NEXT_EPOCH
        assert state.ROLE in allowed[old.ROLE], f"{old.ROLE} to {state.ROLE} in {state.epoch}"
        if state.epoch == old.epoch:
            assert old.leader_id in (None, state.leader_id) or state.ROLE is Role.RESIGNED
            assert old.voted_key in (None, state.voted_key)
        self._take(state, kraft_version, voters)

    def _take(self, state: State, kraft_version: int, voters: VoterSet) -> None:
        self.state = state
        # One who led an epoch must find out after a restart, or it could vote in it again.
        leader_id = state.resigned_id if isinstance(state, Resigned) else state.leader_id
        election = ElectionState(state.epoch, leader_id, state.voted_key)
        if election != self.persisted:
            self.persisted = election
            self._emit(PersistElection(election, kraft_version, tuple(voters.ids)))
        if not isinstance(state, Leader):
            self.announce()

    def announce(self) -> None:
        """Tell the controller who leads, once. A leader calls it when it may begin."""
        leader = (self.state.leader_id, self.state.epoch)
        if leader != self._known_leader:
            self._known_leader = leader
            self._emit(ChangeLeadership(*leader))
