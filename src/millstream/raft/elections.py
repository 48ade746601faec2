"""How a leader is found: pre-votes, votes, and the announcements of who begins and who ends.

Rules 2, 3, 4 and 7 of KRaft as the facts number them. Votes are persisted by the change of role,
which comes before the answer. Replication begins where this ends: `leading` and `following`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import NO_ERROR, ApiError, InvalidRequest, UnsupportedVersion
from millstream.protocol.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from millstream.raft import checks, wire_requests, wire_responses
from millstream.raft.effects import Respond
from millstream.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from millstream.raft.voters import ReplicaKey
from millstream.types import OffsetAndEpoch, Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.messages.begin_quorum_epoch import (
        BeginQuorumEpochResponsePartitionData,
    )
    from millstream.protocol.messages.end_quorum_epoch import (
        EndQuorumEpochRequestPartitionData,
        EndQuorumEpochResponsePartitionData,
    )
    from millstream.protocol.messages.vote import VoteRequestPartitionData
    from millstream.raft.connections import InFlight
    from millstream.raft.events import RequestReceived
    from millstream.raft.replica import Replica

_BACKOFF_DOUBLINGS_MAX = 20


class Elections:
    """The rules of elections, for one replica."""

    __slots__ = ("_replica",)

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    # --- What is due ---

    def act(self) -> bool:
        """Do what the time or the votes demand; True if the role has changed."""
        replica = self._replica
        match replica.state:
            case Unattached() as state if replica.may_stand:
                is_alone = replica.voters.is_only_voter(replica.local.key)
                if is_alone or replica.now_ms >= state.election_deadline_ms:
                    replica.become_prospective()
                    return True
            case Prospective() as state:
                return self._act_prospective(state)
            case Candidate() as state:
                return self._act_candidate(state)
            case Resigned() as state:
                return self._act_resigned(state)
        return False

    def _act_prospective(self, state: Prospective) -> bool:
        replica = self._replica
        if state.tally.is_won:
            replica.become_candidate(state.retries)
            return True
        if state.tally.is_lost or replica.now_ms >= state.election_deadline_ms:
            # Not wanted: back to the leader we had, or to waiting. Nobody was disturbed.
            if state.leader_id is not None and replica.local.listener in state.leader_endpoints:
                replica.become_follower(state.epoch, state.leader_id, state.leader_endpoints)
            else:
                replica.become_unattached(state.epoch, state.leader_id)
            return True
        self._request_votes(state)
        return False

    def _act_candidate(self, state: Candidate) -> bool:
        replica = self._replica
        is_over = replica.now_ms >= state.election_deadline_ms
        if state.is_backing_off:
            if is_over:
                replica.become_prospective(state.retries + 1)
            return is_over
        if is_over or state.tally.is_lost:
            state.is_backing_off = True
            state.election_deadline_ms = replica.now_ms + self._backoff_ms(state.retries)
        else:
            self._request_votes(state)
        return False

    def _backoff_ms(self, retries: int) -> int:
        """Longer and more random with each lost election, so that one of two gets ahead."""
        config = self._replica.config
        doublings = min(retries + 1, _BACKOFF_DOUBLINGS_MAX)
        steps = 1 + self._replica.random.randrange(1 << doublings)
        return min(config.election_backoff_max_ms, max(1, config.retry_backoff_ms) * steps)

    def _act_resigned(self, state: Resigned) -> bool:
        replica = self._replica
        if replica.now_ms >= state.election_deadline_ms:
            replica.become_unattached(state.epoch + 1)
            return True
        for voter in replica.other_voters:
            peer = replica.peer_of(voter)
            if (
                voter.id in state.unaware
                and peer is not None
                and replica.connections.is_ready(voter.id, replica.now_ms)
            ):
                successors = state.preferred_successors
                request = wire_requests.end_quorum_epoch_request(
                    replica.local, state.epoch, successors
                )
                replica.send(peer, request)
        return False

    def _request_votes(self, state: Prospective | Candidate) -> None:
        replica = self._replica
        for voter_id in state.tally.silent:
            voter = state.tally.voters.get(voter_id)
            assert voter is not None
            peer = replica.peer_of(voter)
            if peer is not None and replica.connections.is_ready(voter_id, replica.now_ms):
                request = wire_requests.vote_request(
                    replica.local,
                    voter.key,
                    state.epoch,
                    replica.outline.end,
                    is_pre_vote=isinstance(state, Prospective),
                )
                replica.send(peer, request)

    def deadline_ms(self) -> int | None:
        """When the time will demand something."""
        state = self._replica.state
        if isinstance(state, Unattached):
            return state.election_deadline_ms if self._replica.may_stand else None
        if isinstance(state, Prospective | Candidate | Resigned):
            return state.election_deadline_ms
        return None

    # --- Votes ---

    def handle_vote(self, event: RequestReceived, request: VoteRequest) -> None:
        """Another replica asks for our vote, or whether it would have it."""
        replica = self._replica
        try:
            checks.check_cluster(replica, request.cluster_id)
            topic = checks.only(request.topics)
            partition = checks.only(topic.partitions)
            checks.check_partition(topic.topic_name, partition.partition_index)
        except ApiError as error:
            replica.emit(Respond(event.token, VoteResponse(error_code=error.code)))
            return
        error_code, is_granted = NO_ERROR, False
        try:
            is_granted = self._decide_vote(request.voter_id, partition)
        except ApiError as error:
            error_code = error.code
        leader = checks.leader_facts(replica, event.listener)
        response = wire_responses.vote_response(
            leader, event.version, error_code, is_granted=is_granted
        )
        replica.emit(Respond(event.token, response))

    def _decide_vote(self, voter_id: int, asked: VoteRequestPartitionData) -> bool:
        replica = self._replica
        checks.check_sender(replica, asked.replica_id, asked.replica_epoch)
        newest_epoch = asked.replica_epoch if asked.pre_vote else asked.replica_epoch - 1
        if asked.last_offset < 0 or not 0 <= asked.last_offset_epoch <= newest_epoch:
            raise InvalidRequest
        if asked.replica_epoch > replica.epoch:
            replica.become_unattached(asked.replica_epoch)
        checks.check_receiver(replica, voter_id, asked.voter_directory_id)
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        candidate_end = OffsetAndEpoch(asked.last_offset_epoch, asked.last_offset)
        is_granted = replica.state.would_vote_for(
            candidate,
            is_up_to_date=candidate_end >= replica.outline.end,
            is_pre_vote=asked.pre_vote,
        )
        if is_granted and not asked.pre_vote and replica.state.voted_key != candidate:
            replica.become_unattached(replica.epoch, voted_key=candidate)
        return is_granted

    def handle_vote_response(self, sent: InFlight, response: VoteResponse) -> None:
        """A voter has answered; the votes are counted in `act`."""
        replica = self._replica
        state = replica.state
        if response.error_code == UnsupportedVersion.code and isinstance(state, Prospective):
            # A node from before pre-votes cannot be asked; it may still refuse the vote itself.
            state.tally.record(sent.peer.id, is_granted=True)
            return
        if response.error_code != NO_ERROR:
            replica.connections.pause(sent.peer.id, replica.now_ms)
            return
        answered = checks.only(checks.only(response.topics).partitions)
        leader = checks.told_leader(
            answered.leader_id, answered.leader_epoch, response.node_endpoints
        )
        if checks.absorb(replica, sent, answered.error_code, leader):
            assert isinstance(replica.state, Prospective | Candidate)
            replica.state.tally.record(sent.peer.id, is_granted=answered.vote_granted)

    # --- Beginnings and ends ---

    def handle_begin_quorum_epoch(
        self, event: RequestReceived, request: BeginQuorumEpochRequest
    ) -> None:
        """A leader introduces itself."""
        replica = self._replica
        try:
            checks.check_cluster(replica, request.cluster_id)
            topic = checks.only(request.topics)
            partition = checks.only(topic.partitions)
            checks.check_partition(topic.topic_name, partition.partition_index)
        except ApiError as error:
            response = BeginQuorumEpochResponse(error_code=error.code)
            replica.emit(Respond(event.token, response))
            return
        error_code = NO_ERROR
        try:
            checks.check_sender(replica, partition.leader_id, partition.leader_epoch)
            checks.check_leader(replica, partition.leader_id, partition.leader_epoch)
            checks.check_receiver(replica, request.voter_id, partition.voter_directory_id)
            endpoints = checks.told_endpoints(request.leader_endpoints)
            if not replica.learn(
                partition.leader_epoch, partition.leader_id, endpoints, is_from_leader=True
            ):
                raise InvalidRequest
        except ApiError as error:
            error_code = error.code
        leader = checks.leader_facts(replica, event.listener)
        replica.emit(
            Respond(
                event.token,
                wire_responses.begin_quorum_epoch_response(leader, event.version, error_code),
            )
        )

    def handle_begin_quorum_epoch_response(
        self, sent: InFlight, response: BeginQuorumEpochResponse
    ) -> None:
        """A voter knows that we lead, or knows better."""
        partitions = [each for topic in response.topics for each in topic.partitions]
        self._absorb_acknowledgement(sent, response, partitions)

    def handle_end_quorum_epoch(
        self, event: RequestReceived, request: EndQuorumEpochRequest
    ) -> None:
        """A leader takes its leave: the best successor tries at once, the others a bit later."""
        replica = self._replica
        try:
            checks.check_cluster(replica, request.cluster_id)
            topic = checks.only(request.topics)
            partition = checks.only(topic.partitions)
            checks.check_partition(topic.topic_name, partition.partition_index)
        except ApiError as error:
            response = EndQuorumEpochResponse(error_code=error.code)
            replica.emit(Respond(event.token, response))
            return
        error_code = NO_ERROR
        try:
            checks.check_sender(replica, partition.leader_id, partition.leader_epoch)
            checks.check_leader(replica, partition.leader_id, partition.leader_epoch)
            endpoints = checks.told_endpoints(request.leader_endpoints)
            if not replica.learn(partition.leader_epoch, partition.leader_id, endpoints):
                raise InvalidRequest
            self._prepare_succession(partition)
        except ApiError as error:
            error_code = error.code
        leader = checks.leader_facts(replica, event.listener)
        replica.emit(
            Respond(
                event.token,
                wire_responses.end_quorum_epoch_response(leader, event.version, error_code),
            )
        )

    def _prepare_succession(self, ended: EndQuorumEpochRequestPartitionData) -> None:
        state = self._replica.state
        if not isinstance(state, Follower):
            return
        if ended.preferred_candidates:
            keys = [
                ReplicaKey(each.candidate_id, each.candidate_directory_id)
                for each in ended.preferred_candidates
            ]
        else:
            keys = [ReplicaKey(each) for each in ended.preferred_successors]
        state.fetch_deadline_ms = self._replica.now_ms + self._succession_delay_ms(keys)
        # The leader itself says that an election is needed, so a pre-vote may be granted.
        state.has_fetched = False

    def _succession_delay_ms(self, successors: Sequence[ReplicaKey]) -> int:
        local, longest_ms = self._replica.local.key, self._replica.config.election_backoff_max_ms
        ours = (local, replace(local, directory_id=Uuid.ZERO))
        place = next((at for at, key in enumerate(successors) if key in ours), None)
        if place is None:
            return longest_ms
        return 0 if place == 0 else longest_ms >> (len(successors) - place)

    def handle_end_quorum_epoch_response(
        self, sent: InFlight, response: EndQuorumEpochResponse
    ) -> None:
        """A voter knows that we lead no more."""
        partitions = [each for topic in response.topics for each in topic.partitions]
        if self._absorb_acknowledgement(sent, response, partitions):
            assert isinstance(self._replica.state, Resigned)
            self._replica.state.unaware.discard(sent.peer.id)

    def _absorb_acknowledgement(
        self,
        sent: InFlight,
        response: BeginQuorumEpochResponse | EndQuorumEpochResponse,
        partitions: Sequence[
            BeginQuorumEpochResponsePartitionData | EndQuorumEpochResponsePartitionData
        ],
    ) -> bool:
        replica = self._replica
        if response.error_code != NO_ERROR:
            replica.connections.pause(sent.peer.id, replica.now_ms)
            return False
        answered = checks.only(partitions)
        leader = checks.told_leader(
            answered.leader_id, answered.leader_epoch, response.node_endpoints
        )
        return checks.absorb(replica, sent, answered.error_code, leader)
