"""How the set of voters changes, one voter at a time (KIP-853).

Rule 8 of KRaft. A new set counts from the moment its record is appended, and is committed by a
majority of itself; because sets differ by one voter, any two majorities share a voter. The leader
answers here; followers that want in, or have moved, ask here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import (
    NO_ERROR,
    ApiError,
    DuplicateVoter,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from millstream.protocol.messages import (
    AddRaftVoterResponse,
    KRaftVersionRecord,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
    update_raft_voter,
)
from millstream.raft import batches, checks, wire_requests
from millstream.raft.effects import AcceptSubmission, Peer, RefuseSubmission, Respond
from millstream.raft.leader_state import Leader
from millstream.raft.pending import VoterChange
from millstream.raft.voters import (
    KRAFT_VERSION_DYNAMIC,
    LOCAL_SUPPORTED_VERSIONS,
    ReplicaKey,
    SupportedVersions,
    Voter,
    VoterSet,
)

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.protocol.messages import (
        AddRaftVoterRequest,
        ApiVersionsResponse,
        RemoveRaftVoterRequest,
        UpdateRaftVoterRequest,
    )
    from millstream.raft.effects import Token
    from millstream.raft.events import RequestReceived, UpgradeKRaftVersion
    from millstream.raft.leading import Leading
    from millstream.raft.replica import Replica
    from millstream.raft.states import Follower

KRAFT_VERSION_FEATURE = "kraft.version"
"""The feature's name in ApiVersions."""


class Membership:
    """The rules of membership, for one replica."""

    __slots__ = ("_leading", "_replica")

    def __init__(self, replica: Replica, leading: Leading) -> None:
        self._replica = replica
        self._leading = leading

    # --- A follower's requests ---

    def has_requests(self, state: Follower) -> bool:
        """Whether there is something to tell or ask the leader, sooner or later."""
        replica = self._replica
        if not replica.local.is_controller:
            return False
        if replica.is_voter:
            if replica.kraft_version < KRAFT_VERSION_DYNAMIC:
                return not state.has_updated_leader
            return replica.voters.get(replica.local.id) != replica.local.as_voter
        return replica.config.auto_join_enable and replica.kraft_version >= KRAFT_VERSION_DYNAMIC

    def request_when_due(self, state: Follower) -> Message | None:
        """What to tell or ask the leader now."""
        replica = self._replica
        if replica.now_ms < state.update_voter_due_ms or not self.has_requests(state):
            return None
        state.update_voter_due_ms = replica.now_ms + replica.config.fetch_timeout_ms
        local = replica.local
        if replica.is_voter:
            return wire_requests.update_voter_request(local, state.epoch, local.as_voter)
        old = replica.voters.get(local.id)
        if old is not None:
            # The same node with a directory that is gone: it must leave before we can join.
            return wire_requests.remove_voter_request(local, old.key)
        return wire_requests.add_voter_request(local, replica.config.request_timeout_ms)

    def handle_update_voter_response(
        self, state: Follower | None, response: UpdateRaftVoterResponse
    ) -> None:
        """The leader knows where we are, or will be told again."""
        if state is not None and response.error_code == NO_ERROR:
            state.has_updated_leader = True

    # --- The leader's answers ---

    def handle_add_voter(self, event: RequestReceived, request: AddRaftVoterRequest) -> None:
        """Somebody wants a new voter: ask it what it supports, then append the new set."""
        replica = self._replica
        try:
            checks.check_cluster(replica, request.cluster_id)
            leader, voters = self._check_change_is_possible()
            key = ReplicaKey(request.voter_id, request.voter_directory_id)
            endpoints = checks.told_endpoints(request.listeners)
            if key.id < 0 or not key.has_directory:
                raise InvalidRequest(f"{key} is no voter: give an id and a directory id")
            if replica.local.listener not in endpoints:
                raise InvalidRequest(f"the new voter needs a listener {replica.local.listener}")
            if voters.get(key.id) is not None:
                raise DuplicateVoter(f"{key.id} is already one of the voters {voters.ids}")
            if not replica.connections.is_ready(key.id, replica.now_ms):
                raise RequestTimedOut(f"voter {key} cannot be reached at the moment")
        except ApiError as error:
            replica.emit(Respond(event.token, _add_response(error)))
            return
        timeout_ms = min(max(1, request.timeout_ms), replica.config.request_timeout_ms)
        leader.change = VoterChange(
            event.token,
            key,
            replica.now_ms + timeout_ms,
            is_addition=True,
            endpoints=endpoints,
            is_answered_when_committed=request.ack_when_committed,
        )
        peer = Peer(key.id, endpoints[replica.local.listener])
        replica.send(peer, wire_requests.api_versions_request())

    def handle_api_versions_response(self, voter_id: int, response: ApiVersionsResponse) -> None:
        """The new voter says what it supports."""
        leader = self._replica.state
        change = leader.change if isinstance(leader, Leader) else None
        if change is None or change.key.id != voter_id or change.offset is not None:
            return
        assert isinstance(leader, Leader)
        try:
            voter = self._check_new_voter(leader, change, response)
        except ApiError as error:
            self._finish(leader, error)
            return
        self._append_voters(leader, change, self._replica.voters.with_voter(voter))

    def _check_new_voter(
        self, leader: Leader, change: VoterChange, response: ApiVersionsResponse
    ) -> Voter:
        replica = self._replica
        if response.error_code != NO_ERROR:
            raise RequestTimedOut(f"{change.key} answered with error {response.error_code}")
        supported = SupportedVersions()
        for feature in response.supported_features:
            if feature.name == KRAFT_VERSION_FEATURE:
                supported = SupportedVersions(feature.min_version, feature.max_version)
        if replica.kraft_version not in supported:
            raise InvalidRequest(
                f"{change.key} supports kraft.version {supported.minimum} to {supported.maximum}, "
                f"the cluster has {replica.kraft_version}"
            )
        progress = leader.observers.get(change.key)
        since_ms = replica.now_ms - replica.config.fetch_timeout_ms
        if progress is None or progress.last_caught_up_ms < max(0, since_ms):
            raise RequestTimedOut(f"{change.key} has not caught up with the log")
        return Voter(change.key, change.endpoints, supported)

    def handle_remove_voter(self, event: RequestReceived, request: RemoveRaftVoterRequest) -> None:
        """Somebody wants a voter out."""
        replica = self._replica
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        try:
            checks.check_cluster(replica, request.cluster_id)
            leader, voters = self._check_change_is_possible()
            remaining = voters.without_voter(key)
            if remaining is None:
                raise VoterNotFound(f"{key} is none of the voters {list(map(str, _keys(voters)))}")
            if not len(remaining):
                raise VoterNotFound(f"{key} is the only voter: add another before removing it")
        except ApiError as error:
            replica.emit(Respond(event.token, _remove_response(error)))
            return
        leader.change = VoterChange(
            event.token,
            key,
            replica.now_ms + replica.config.request_timeout_ms,
            is_addition=False,
            endpoints={},
        )
        self._append_voters(leader, leader.change, remaining)

    def handle_update_voter(self, event: RequestReceived, request: UpdateRaftVoterRequest) -> None:
        """A voter tells where it listens now and what it supports."""
        replica = self._replica
        error_code = NO_ERROR
        try:
            checks.check_cluster(replica, request.cluster_id)
            checks.check_leadership(replica, request.current_leader_epoch)
            self._update_voter(request)
        except ApiError as error:
            error_code = error.code
        facts = checks.leader_facts(replica, event.listener)
        current = update_raft_voter.CurrentLeader(leader_id=facts.wire_id, leader_epoch=facts.epoch)
        if facts.endpoint is not None:
            current.host, current.port = facts.endpoint.host, facts.endpoint.port
        response = UpdateRaftVoterResponse(error_code=error_code, current_leader=current)
        replica.emit(Respond(event.token, response))

    def _update_voter(self, request: UpdateRaftVoterRequest) -> None:
        replica = self._replica
        leader, voters = self._check_change_is_possible(is_static_allowed=True)
        feature = request.kraft_version_feature
        supported = SupportedVersions(feature.min_supported_version, feature.max_supported_version)
        endpoints = checks.told_endpoints(request.listeners)
        if replica.kraft_version not in supported or replica.local.listener not in endpoints:
            raise InvalidRequest
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        voter = Voter(key, endpoints, supported)
        if replica.kraft_version < KRAFT_VERSION_DYNAMIC:
            # The static voters are not in the log; an upgrade will write down what we learn here.
            updated = leader.known_voters.with_update(voter)
            leader.known_voters = updated or leader.known_voters
        else:
            updated = voters.with_update(voter)
            if updated is not None and updated != voters:
                self._leading.append_control(leader, [batches.voters_record(updated)])
        if updated is None:
            raise VoterNotFound

    def upgrade(self, event: UpgradeKRaftVersion) -> None:
        """The controller wants a higher kraft.version: from here on the voters are in the log."""
        replica = self._replica
        try:
            leader, _ = self._check_change_is_possible(is_static_allowed=True)
            if event.epoch != leader.epoch:
                raise NotController(f"this node does not lead epoch {event.epoch}")
            if event.version not in LOCAL_SUPPORTED_VERSIONS:
                raise InvalidUpdateVersion(f"kraft.version {event.version} is not known")
            if event.version < replica.kraft_version:
                raise InvalidUpdateVersion("kraft.version cannot be lowered")
            if not leader.known_voters.supports(event.version):
                raise InvalidUpdateVersion(
                    f"not every voter is known to support kraft.version {event.version}"
                )
        except ApiError as error:
            replica.emit(RefuseSubmission(event.token, error))
            return
        base_offset = end_offset = leader.next_offset
        if event.version > replica.kraft_version and not event.validates_only:
            record = KRaftVersionRecord(version=0, kraft_version=event.version)
            voters = batches.voters_record(leader.known_voters)
            end_offset = self._leading.append_control(leader, [record, voters])
        replica.emit(AcceptSubmission(event.token, base_offset, end_offset))

    # --- What all changes have in common ---

    def _check_change_is_possible(
        self, *, is_static_allowed: bool = False
    ) -> tuple[Leader, VoterSet]:
        replica = self._replica
        leader = replica.state
        if not isinstance(leader, Leader):
            raise NotLeaderOrFollower
        if leader.change is not None:
            raise RequestTimedOut("another change of the voters is under way")
        if leader.high_watermark is None:
            raise RequestTimedOut("the leader has not committed a record of its epoch yet")
        if not is_static_allowed and replica.kraft_version < KRAFT_VERSION_DYNAMIC:
            raise UnsupportedVersion(
                f"the voters of kraft.version {replica.kraft_version} cannot be changed"
            )
        if replica.history.voters.last_offset >= leader.high_watermark:
            raise RequestTimedOut("the last change of the voters is not committed yet")
        return leader, replica.voters

    def _append_voters(self, leader: Leader, change: VoterChange, voters: VoterSet) -> None:
        end_offset = self._leading.append_control(leader, [batches.voters_record(voters)])
        change.offset = end_offset - 1
        if not change.is_answered_when_committed:
            self._respond(change, None)

    def act(self, leader: Leader) -> bool:
        """Finish a change that is committed or late; True if we have resigned over it."""
        replica = self._replica
        change = leader.change
        is_committed = (
            change is not None
            and change.offset is not None
            and (leader.high_watermark or 0) > change.offset
        )
        if is_committed:
            self._finish(leader, None)
        elif change is not None and replica.now_ms >= change.deadline_ms:
            self._finish(leader, RequestTimedOut("the new set of voters is not committed yet"))
        is_last_set_committed = replica.history.voters.last_offset < (leader.high_watermark or 0)
        if not replica.is_voter and is_last_set_committed:
            # We were removed, and saw to it that the others can go on without us.
            self._leading.resign(leader)
            return True
        return False

    def retire(self, leader: Leader) -> None:
        """The role has changed: callers that wait for a change of the voters learn that."""
        if leader.change is not None:
            self._finish(leader, NotLeaderOrFollower())

    def probe_failed(self, leader: Leader, voter_id: int) -> None:
        """The new voter could not be asked what it supports."""
        change = leader.change
        if change is not None and change.offset is None and change.key.id == voter_id:
            self._finish(leader, RequestTimedOut(f"{change.key} did not answer"))

    def _finish(self, leader: Leader, error: ApiError | None) -> None:
        change = leader.change
        assert change is not None
        leader.change = None
        self._respond(change, error)

    def _respond(self, change: VoterChange, error: ApiError | None) -> None:
        if change.token is None:
            return
        response = _add_response(error) if change.is_addition else _remove_response(error)
        token: Token = change.token
        change.token = None
        self._replica.emit(Respond(token, response))


def _keys(voters: VoterSet) -> list[ReplicaKey]:
    return [voter.key for voter in voters]


def _add_response(error: ApiError | None) -> AddRaftVoterResponse:
    if error is None:
        return AddRaftVoterResponse()
    return AddRaftVoterResponse(error_code=error.code, error_message=str(error))


def _remove_response(error: ApiError | None) -> RemoveRaftVoterResponse:
    if error is None:
        return RemoveRaftVoterResponse()
    return RemoveRaftVoterResponse(error_code=error.code, error_message=str(error))
