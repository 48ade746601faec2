"""The replica as a whole: events and the time in, decisions out.

`RaftDriver` steps it, and so does the simulator. It routes what happens to the modules that hold
the rules, then lets the current role do what is due. It never waits and never asks anybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from millstream.errors import ApiError, InvalidArgument, QuorumFault
from millstream.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from millstream.raft.config import parse_servers, parse_voters
from millstream.raft.describe import handle_describe_quorum
from millstream.raft.effects import CompleteShutdown, Warn
from millstream.raft.elections import Elections
from millstream.raft.events import (
    LogFlushed,
    PruneLog,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    ShutDown,
    SnapshotCreated,
    SnapshotInstalled,
    Submit,
    Tick,
    UpgradeKRaftVersion,
)
from millstream.raft.following import Following
from millstream.raft.leader_state import Leader
from millstream.raft.leading import Leading
from millstream.raft.membership import Membership
from millstream.raft.replica import Replica
from millstream.raft.snapshots import Snapshots
from millstream.raft.states import Candidate, Follower, Prospective, Resigned, Unattached

if TYPE_CHECKING:
    from random import Random

    from millstream.raft.config import QuorumConfig
    from millstream.raft.connections import InFlight
    from millstream.raft.effects import Effect, ElectionState, Peer
    from millstream.raft.events import Event
    from millstream.raft.log_outline import LogOutline
    from millstream.raft.quorum_state import State
    from millstream.raft.replica import LocalNode, QuorumHistory
    from millstream.raft.states import Role
    from millstream.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """What a replica finds of itself when it starts: see `recovery.recover`."""

    outline: LogOutline
    history: QuorumHistory
    election: ElectionState | None


class RaftCore:
    """One replica of the metadata log."""

    def __init__(
        self,
        local: LocalNode,
        config: QuorumConfig,
        random: Random,
        recovered: RecoveredState,
    ) -> None:
        self._replica = Replica(
            local,
            config,
            random,
            recovered.outline,
            recovered.history,
            parse_servers(config.bootstrap_servers),
            recovered.election,
        )
        self._elections = Elections(self._replica)
        self._leading = Leading(self._replica)
        self._membership = Membership(self._replica, self._leading)
        self._following = Following(self._replica, self._membership)
        static_voters = parse_voters(config.voters, local.listener)
        self._snapshots = Snapshots(self._replica, static_voters)
        self._replica.on_retirement = self._retire
        self._shutdown_deadline_ms: int | None = None
        self._is_stopped = False

    # --- For the driver ---

    def start(self, now_ms: int, wall_ms: int) -> list[Effect]:
        """Take the role that fits what was stored; call it once, before the first step."""
        replica = self._replica
        replica.now_ms, replica.wall_ms = now_ms, wall_ms
        replica.quorum.begin(
            self._first_state(replica.quorum.persisted), replica.kraft_version, replica.voters
        )
        return self._finish_step()

    def step(self, event: Event, now_ms: int, wall_ms: int) -> list[Effect]:
        """Take in what happened and decide what to do, in this order.

        `now_ms` is of a clock that never goes back and counts for deadlines; `wall_ms` is only
        written into records and reports. After a QuorumFault the replica does nothing any more.
        """
        replica = self._replica
        if self._is_stopped:
            return []
        assert now_ms >= replica.now_ms
        replica.now_ms, replica.wall_ms = now_ms, wall_ms
        for late in replica.connections.expire(now_ms):
            self._request_failed(late)
        try:
            self._route(event)
        except QuorumFault:
            self._is_stopped = True  # Neither votes nor answers from here on: we may be wrong.
            raise
        return self._finish_step()

    def next_deadline_ms(self) -> int | None:
        """When to step with a `Tick`, unless something else happens before; None for never."""
        if self._is_stopped:
            return None
        replica = self._replica
        deadlines = [replica.connections.next_deadline_ms(), self._elections.deadline_ms()]
        deadlines.append(self._shutdown_deadline_ms)
        if isinstance(replica.state, Leader):
            deadlines.append(self._leading.deadline_ms(replica.state))
        elif isinstance(replica.state, Follower):
            deadlines.append(self._following.deadline_ms(replica.state))
        return min((each for each in deadlines if each is not None), default=None)

    # --- For those who look on ---

    @property
    def role(self) -> Role:
        """What it is at the moment."""
        return self._replica.quorum.role

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._replica.epoch

    @property
    def leader_id(self) -> int | None:
        """Who leads the current epoch, as far as it knows."""
        return self._replica.quorum.leader_id

    @property
    def leader(self) -> Peer | None:
        """Where the leader of the current epoch listens, as far as it knows."""
        return self._replica.known_leader()

    @property
    def outline(self) -> LogOutline:
        """Offsets, epochs and snapshots of its log."""
        return self._replica.outline

    @property
    def voters(self) -> VoterSet:
        """The voters by the newest record in its log."""
        return self._replica.voters

    @property
    def kraft_version(self) -> int:
        """The kraft.version by the newest record in its log."""
        return self._replica.kraft_version

    @property
    def history(self) -> QuorumHistory:
        """Voters and kraft.version along the log, for whoever writes a snapshot."""
        return self._replica.history

    @property
    def state(self) -> State:
        """The role with all it remembers."""
        return self._replica.state

    # --- Starting ---

    def _first_state(self, stored: ElectionState | None) -> State:
        replica = self._replica
        deadline_ms = replica.random_election_deadline()
        last_epoch = replica.outline.last_epoch
        if stored is None or stored.epoch < last_epoch:
            # The file is gone or old, the log is the better witness.
            return Unattached(last_epoch, deadline_ms)
        local = replica.local
        if stored.leader_id == local.id:
            # A replica that led an epoch must not vote in it again, nor write to it: what it wrote
            # before may be lost here and live elsewhere under the same offset and epoch.
            others = {voter.id for voter in replica.other_voters}
            if replica.voters.is_only_voter(local.key):
                deadline_ms = replica.now_ms  # There is nobody to wait for.
            return Resigned(stored.epoch, local.id, deadline_ms, others, voted_key=stored.voted_key)
        if stored.leader_id is not None:
            return self._first_following(stored.epoch, stored.leader_id, stored, deadline_ms)
        if stored.voted_key == local.key and replica.may_stand:
            return Candidate(stored.epoch, deadline_ms, replica.new_tally(), local.key)
        return Unattached(stored.epoch, deadline_ms, voted_key=stored.voted_key)

    def _first_following(
        self, epoch: int, leader_id: int, stored: ElectionState, deadline_ms: int
    ) -> State:
        replica = self._replica
        endpoints = replica.voters.endpoints_of(leader_id)
        if replica.local.listener not in endpoints:
            return Unattached(epoch, deadline_ms, leader_id, stored.voted_key)
        fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
        return Follower(
            epoch,
            leader_id,
            endpoints,
            fetch_deadline_ms,
            update_voter_due_ms=fetch_deadline_ms,
            voted_key=stored.voted_key,
        )

    # --- Stepping ---

    def _route(self, event: Event) -> None:
        match event:
            case Tick():
                pass
            case RequestReceived():
                self._route_request(event)
            case ResponseReceived():
                self._route_response(event)
            case RequestFailed(request_id):
                failed = self._replica.connections.fail(request_id, self._replica.now_ms)
                if failed is not None:
                    self._request_failed(failed)
            case LogFlushed(flush_id):
                self._replica.flushed(flush_id)
            case SnapshotCreated() | PruneLog() | SnapshotInstalled():
                self._snapshots.take(event)
            case Submit() | UpgradeKRaftVersion() | Resign() | ShutDown():
                self._route_command(event)
            case _:
                assert_never(event)

    def _route_command(self, event: Submit | UpgradeKRaftVersion | Resign | ShutDown) -> None:
        match event:
            case Submit():
                self._leading.submit(event)
            case UpgradeKRaftVersion():
                self._membership.upgrade(event)
            case Resign(epoch):
                self._resign(epoch)
            case ShutDown(timeout_ms):
                self._shut_down(timeout_ms)
            case _:
                assert_never(event)

    def _route_request(self, event: RequestReceived) -> None:
        match event.message:
            case VoteRequest() as request:
                self._elections.handle_vote(event, request)
            case BeginQuorumEpochRequest() as request:
                self._elections.handle_begin_quorum_epoch(event, request)
            case EndQuorumEpochRequest() as request:
                self._elections.handle_end_quorum_epoch(event, request)
            case FetchRequest() as request:
                self._leading.handle_fetch(event, request)
            case FetchSnapshotRequest() as request:
                self._snapshots.handle_fetch_snapshot(event, request)
            case AddRaftVoterRequest() as request:
                self._membership.handle_add_voter(event, request)
            case RemoveRaftVoterRequest() as request:
                self._membership.handle_remove_voter(event, request)
            case UpdateRaftVoterRequest() as request:
                self._membership.handle_update_voter(event, request)
            case DescribeQuorumRequest() as request:
                handle_describe_quorum(self._replica, event, request)
            case message:
                raise InvalidArgument(f"raft does not answer {type(message).__name__}")

    def _route_response(self, event: ResponseReceived) -> None:
        replica = self._replica
        sent = replica.connections.finish(event.request_id)
        if sent is None:
            return
        if event.message.KEY != sent.message.KEY:
            raise InvalidArgument(f"{event.message!r} does not answer {sent.message!r}")
        try:
            self._handle_response(sent, event)
        except ApiError as error:
            text = f"an answer of node {sent.peer.id} makes no sense: {error}"
            replica.emit(Warn(text))
            replica.connections.pause(sent.peer.id, replica.now_ms)

    def _handle_response(self, sent: InFlight, event: ResponseReceived) -> None:
        state = self._replica.state
        match event.message:
            case VoteResponse() as response:
                self._elections.handle_vote_response(sent, response)
            case BeginQuorumEpochResponse() as response:
                self._elections.handle_begin_quorum_epoch_response(sent, response)
            case EndQuorumEpochResponse() as response:
                self._elections.handle_end_quorum_epoch_response(sent, response)
            case FetchResponse() as response:
                self._following.handle_fetch_response(sent, response)
            case FetchSnapshotResponse() as response:
                self._snapshots.handle_fetch_snapshot_response(sent, response)
            case ApiVersionsResponse() as response:
                self._membership.handle_api_versions_response(sent.peer.id, response)
            case UpdateRaftVoterResponse() as response:
                follower = state if isinstance(state, Follower) else None
                self._membership.handle_update_voter_response(follower, response)
            case message:
                assert isinstance(message, AddRaftVoterResponse | RemoveRaftVoterResponse)
                # The log tells whether it worked; if it did not, it is asked again.

    def _request_failed(self, failed: InFlight) -> None:
        state = self._replica.state
        if isinstance(state, Leader):
            if isinstance(failed.message, ApiVersionsRequest):
                self._membership.probe_failed(state, failed.peer.id)
            else:
                self._leading.reminder_failed(state, failed.peer.id)

    def _resign(self, epoch: int) -> None:
        state = self._replica.state
        if isinstance(state, Leader) and state.epoch == epoch:
            self._leading.resign(state)

    def _shut_down(self, timeout_ms: int) -> None:
        replica = self._replica
        self._shutdown_deadline_ms = replica.now_ms + timeout_ms
        if isinstance(replica.state, Leader):
            self._leading.append_pending(replica.state)
            self._leading.resign(replica.state)

    def _retire(self, leader: Leader) -> None:
        self._leading.retire(leader)
        self._membership.retire(leader)

    def _finish_step(self) -> list[Effect]:
        while self._act():
            pass  # A new role may have something to do at once.
        effects = self._replica.effects
        self._replica.effects = []
        return effects

    def _act(self) -> bool:
        """Do what is due in the current role; True if that changed the role."""
        if self._shutdown_deadline_ms is not None and self._is_handed_over():
            self._replica.emit(CompleteShutdown())
            self._is_stopped = True
            return False
        state = self._replica.state
        match state:
            case Leader():
                return self._leading.act(state) or self._membership.act(state)
            case Candidate() if state.tally.is_won:
                self._leading.begin(state)
                return True
            case Follower():
                return self._following.act(state)
            case Unattached():
                return self._elections.act() or self._following.act(state)
            case Prospective() | Candidate() | Resigned():
                return self._elections.act()
            case _:
                assert_never(state)

    def _is_handed_over(self) -> bool:
        state = self._replica.state
        assert self._shutdown_deadline_ms is not None
        is_late = self._replica.now_ms >= self._shutdown_deadline_ms
        return is_late or not isinstance(state, Resigned) or not state.unaware
