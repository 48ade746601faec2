"""One replica's memory, and the acts that all its rules share: emit, send, change role, learn.

`core` owns it; `elections`, `leading`, `following`, `snapshots` and `membership` each hold a part
of the rules and work on this. It decides nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.raft.connections import Connections
from millstream.raft.effects import FlushLog, Peer, SendRequest
from millstream.raft.leader_state import Leader
from millstream.raft.quorum_state import QuorumState
from millstream.raft.states import Candidate, Follower, Prospective, Resigned, Tally, Unattached
from millstream.raft.voters import (
    LOCAL_SUPPORTED_VERSIONS,
    LogHistory,
    ReplicaKey,
    SupportedVersions,
    Voter,
    VoterSet,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from millstream.protocol.message import Message
    from millstream.raft.config import QuorumConfig
    from millstream.raft.effects import Effect, ElectionState
    from millstream.raft.log_outline import LogOutline
    from millstream.raft.quorum_state import State
    from millstream.raft.voters import Endpoint

BOOTSTRAP_PEER_ID = -2
"""The id of the first bootstrap server; the others count down from it."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """Who we are in the quorum."""

    key: ReplicaKey
    cluster_id: str
    listener: str
    """The listener on which nodes of the quorum reach each other."""
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    """Where we listen as a controller, by listener; empty for a broker."""
    is_controller: bool = True
    supported: SupportedVersions = LOCAL_SUPPORTED_VERSIONS

    @property
    def id(self) -> int:
        """Our node id."""
        return self.key.id

    @property
    def as_voter(self) -> Voter:
        """The voter that we are or would be."""
        return Voter(self.key, self.endpoints, self.supported)


@dataclass(slots=True)
class QuorumHistory:
    """What the log says about the quorum itself."""

    voters: LogHistory[VoterSet]
    kraft_version: LogHistory[int]

    @classmethod
    def starting_from(cls, voters: VoterSet, kraft_version: int = 0) -> QuorumHistory:
        """As it is before the first record: the static voters, or none."""
        return cls(LogHistory(voters), LogHistory(kraft_version))

    def add(self, offset: int, value: int | VoterSet) -> None:
        """A record is in the log now: a kraft.version or voters. It counts at once."""
        if isinstance(value, VoterSet):
            self.voters.add(offset, value)
        else:
            self.kraft_version.add(offset, value)

    def truncate_to(self, offset: int) -> None:
        """Records were dropped."""
        self.voters.truncate_to(offset)
        self.kraft_version.truncate_to(offset)

    def trim_before(self, offset: int) -> None:
        """The log was cut at a snapshot."""
        self.voters.trim_before(offset)
        self.kraft_version.trim_before(offset)


class Replica:
    """The memory of one replica during one step and between steps."""

    def __init__(
        self,
        local: LocalNode,
        config: QuorumConfig,
        random: Random,
        outline: LogOutline,
        history: QuorumHistory,
        bootstrap: tuple[Endpoint, ...],
        stored: ElectionState | None,
    ) -> None:
        self.local = local
        self.config = config
        self.random = random
        self.outline = outline
        self.history = history
        self.effects: list[Effect] = []
        self.quorum = QuorumState(self.emit, stored)
        self.connections = Connections(config.request_timeout_ms, config.retry_backoff_ms)
        self.now_ms = 0
        self.wall_ms = 0
        self.on_retirement: Callable[[Leader], None] = lambda leader: None
        self._bootstrap = [
            Peer(BOOTSTRAP_PEER_ID - number, endpoint) for number, endpoint in enumerate(bootstrap)
        ]
        self._flush_id = 0
        self._flushing_offset: int | None = None

    # --- What it is ---

    @property
    def state(self) -> State:
        """The current role with its memory."""
        return self.quorum.state

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.quorum.state.epoch

    @property
    def voters(self) -> VoterSet:
        """The voters by the newest record in the log, committed or not."""
        return self.history.voters.last

    @property
    def kraft_version(self) -> int:
        """The kraft.version by the newest record in the log."""
        return self.history.kraft_version.last

    @property
    def is_voter(self) -> bool:
        """Whether we are one of the voters."""
        return self.voters.is_voter(self.local.key)

    @property
    def may_stand(self) -> bool:
        """Whether we may try to lead: as a voter, or as one whose removal may not be committed.

        A leader that removes itself and fails may be the only one that has the new set; if it
        did not stand, nobody whose log is as long could, and nobody else would be elected.
        """
        possible = self.history.voters.possible_at(self.outline.high_watermark)
        return any(voters.is_voter(self.local.key) for voters in possible)

    @property
    def other_voters(self) -> list[Voter]:
        """The voters without us."""
        return [voter for voter in self.voters if voter.id != self.local.id]

    # --- What it does ---

    def emit(self, effect: Effect) -> None:
        """Decide something."""
        self.effects.append(effect)

    def send(self, peer: Peer, message: Message) -> None:
        """Ask another node."""
        request_id = self.connections.start(peer, message, self.now_ms)
        self.emit(SendRequest(request_id, peer, message))

    def peer_of(self, voter: Voter) -> Peer | None:
        """Where to send for a voter, if it listens where we can reach it."""
        return self._peer(voter.id, voter.endpoints)

    def leader_peer(self, state: Follower) -> Peer:
        """Where to send for the leader we follow."""
        return Peer(state.leader_id, state.leader_endpoints[self.local.listener])

    def known_leader(self) -> Peer | None:
        """Who leads the epoch, if it is known where it listens; it may be this node."""
        leader_id = self.quorum.leader_id
        if leader_id is None:
            return None
        if leader_id == self.local.id:
            return self._peer(leader_id, self.local.endpoints)
        told = self.state.leader_endpoints if isinstance(self.state, Follower | Prospective) else {}
        return self._peer(leader_id, told or self.voters.endpoints_of(leader_id))

    def discovery_peers(self) -> list[Peer]:
        """Whom to ask for the leader: the voters that are known, and the bootstrap servers.

        Either list may be out of date.
        """
        voters = [self.peer_of(voter) for voter in self.other_voters]
        peers = [peer for peer in voters if peer is not None]
        known = {*self.local.endpoints.values(), *(peer.endpoint for peer in peers)}
        return peers + [peer for peer in self._bootstrap if peer.endpoint not in known]

    def _peer(self, node_id: int, endpoints: Mapping[str, Endpoint]) -> Peer | None:
        endpoint = endpoints.get(self.local.listener)
        return None if endpoint is None else Peer(node_id, endpoint)

    def flush(self) -> None:
        """Ask for what is appended to become durable, unless that is under way."""
        if self._flushing_offset is None and self.outline.flushed_offset < self.outline.end_offset:
            self._flush_id += 1
            self._flushing_offset = self.outline.end_offset
            self.emit(FlushLog(self._flush_id))

    def flushed(self, flush_id: int) -> None:
        """A flush is done. One that began before the log was cut says nothing about the log."""
        if flush_id != self._flush_id or self._flushing_offset is None:
            return
        self.outline.flushed_offset = self._flushing_offset
        self._flushing_offset = None
        self.flush()

    def forget_flush(self) -> None:
        """The log was cut: what a flush under way covers is no longer what is there."""
        self._flushing_offset = None

    # --- What it becomes ---

    def random_election_deadline(self) -> int:
        """The election timeout and up to as much again, so that voters do not try in step."""
        timeout_ms = self.config.election_timeout_ms
        return self.now_ms + timeout_ms + self.random.randrange(timeout_ms)

    def enter(self, state: State) -> None:
        """Change the role."""
        old = self.quorum.state
        self.connections.reset()
        self.quorum.enter(state, self.kraft_version, self.voters)
        if isinstance(old, Leader) and old is not state:
            self.on_retirement(old)

    def become_unattached(
        self,
        epoch: int,
        leader_id: int | None = None,
        voted_key: ReplicaKey | None = None,
    ) -> None:
        """Wait in an epoch for a leader, or for the time to try."""
        voted_key = voted_key or self._vote_in(epoch)
        deadline_ms = self.random_election_deadline()
        self.enter(Unattached(epoch, deadline_ms, leader_id, voted_key))

    def become_prospective(self, retries: int = 0) -> None:
        """Ask the voters whether they would vote for us."""
        state = self.state
        endpoints = state.leader_endpoints if isinstance(state, Follower | Prospective) else {}
        self.enter(
            Prospective(
                state.epoch,
                self.random_election_deadline(),
                self.new_tally(),
                state.leader_id,
                endpoints,
                state.voted_key,
                retries,
            )
        )

    def become_candidate(self, retries: int) -> None:
        """Begin a new epoch and vote for ourselves in it."""
        deadline_ms = self.random_election_deadline()
        self.enter(
            Candidate(self.epoch + 1, deadline_ms, self.new_tally(), self.local.key, retries)
        )

    def new_tally(self) -> Tally:
        """The votes of an election in which only we have voted, if we are a voter."""
        return Tally(self.voters, {self.local.id} if self.is_voter else set())

    def become_follower(
        self, epoch: int, leader_id: int, endpoints: Mapping[str, Endpoint]
    ) -> None:
        """Follow a leader that we can reach."""
        self.enter(
            Follower(
                epoch,
                leader_id,
                endpoints,
                fetch_deadline_ms=self.now_ms + self.config.fetch_timeout_ms,
                update_voter_due_ms=self.now_ms + self.config.fetch_timeout_ms,
                voted_key=self._vote_in(epoch),
            )
        )

    def _vote_in(self, epoch: int) -> ReplicaKey | None:
        return self.state.voted_key if epoch == self.epoch else None

    # --- What it learns ---

    def learn(
        self,
        epoch: int,
        leader_id: int | None,
        endpoints: Mapping[str, Endpoint],
        *,
        is_from_leader: bool = False,
    ) -> bool:
        """Take in who leads which epoch; False if it contradicts what we know for certain."""
        assert epoch >= self.epoch
        if leader_id == self.local.id:
            state = self.state
            led = state.resigned_id if isinstance(state, Resigned) else state.leader_id
            return epoch == self.epoch and led == leader_id
        if epoch > self.epoch:
            self._follow(epoch, leader_id, endpoints)
            return True
        return leader_id is None or self._learn_leader(leader_id, endpoints, is_from_leader)

    def _learn_leader(
        self, leader_id: int, endpoints: Mapping[str, Endpoint], is_from_leader: bool
    ) -> bool:
        state = self.state
        if isinstance(state, Resigned) or state.leader_id not in (None, leader_id):
            return False
        is_news = state.leader_id is None or isinstance(state, Unattached)
        if is_news or (is_from_leader and isinstance(state, Prospective)):
            self._follow(state.epoch, leader_id, endpoints)
        return True

    def _follow(self, epoch: int, leader_id: int | None, endpoints: Mapping[str, Endpoint]) -> None:
        if leader_id is None:
            self.become_unattached(epoch)
            return
        endpoints = endpoints or self.voters.endpoints_of(leader_id)
        if self.local.listener in endpoints:
            self.become_follower(epoch, leader_id, endpoints)
        elif epoch > self.epoch or self.state.leader_id is None:
            self.become_unattached(epoch, leader_id)
