"""Rules 4 and 7: how an epoch is won or lost, how it begins and how it ends."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
)
from millstream.protocol.messages import (
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from millstream.raft import wire_requests, wire_responses
from millstream.raft.effects import (
    ChangeLeadership,
    ElectionState,
    PersistElection,
    Warn,
)
from millstream.raft.events import Resign
from millstream.raft.states import Candidate, Follower, Prospective, Resigned, Role, Unattached
from millstream.raft.voters import ReplicaKey
from millstream.raft.wire_responses import LeaderFacts
from tests.unit.raft.bench import Bench, endpoint_of, key_of, node


def error_of(response: object) -> int:
    assert isinstance(response, VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse)
    return response.error_code or response.topics[0].partitions[0].error_code


def prospective_bench(**options: object) -> Bench:
    bench = Bench(**options)  # type: ignore[arg-type]  # passed through
    bench.wait(2_000)
    assert bench.core.role is Role.PROSPECTIVE
    return bench


def candidate_bench() -> Bench:
    bench = prospective_bench()
    bench.grant_all()
    assert bench.core.role is Role.CANDIDATE
    return bench


# --- Winning and losing ---


def test_a_candidate_leads_with_the_votes_of_a_majority() -> None:
    bench = candidate_bench()

    bench.grant_all()

    assert bench.core.role is Role.LEADER
    assert bench.core.epoch == 1


def test_a_candidate_that_cannot_win_pauses_and_asks_again_without_a_new_epoch() -> None:
    bench = candidate_bench()
    for sent, _ in bench.sent(VoteRequest):
        bench.reply(sent, wire_responses.vote_response(LeaderFacts(1), 2))
    state = bench.core.state
    assert isinstance(state, Candidate)
    assert state.is_backing_off
    assert bench.now_ms < state.election_deadline_ms <= bench.now_ms + 1_000

    assert bench.wait(0) == []
    bench.wait_until_due()

    assert isinstance(bench.core.state, Prospective)
    assert bench.core.state.retries == 1
    assert bench.core.epoch == 1


def test_a_candidate_that_hears_nothing_pauses_after_the_election_timeout() -> None:
    bench = candidate_bench()

    bench.wait(2_000)
    state = bench.core.state

    assert isinstance(state, Candidate)
    assert state.is_backing_off


def test_a_candidate_follows_who_has_won_its_epoch() -> None:
    bench = candidate_bench()
    sent = bench.sent(VoteRequest)[0][0]

    facts = LeaderFacts(1, 3, endpoint_of(3))
    bench.reply(sent, wire_responses.vote_response(facts, 2))

    state = bench.core.state
    assert isinstance(state, Follower)
    assert state.leader_id == 3
    assert state.voted_key == key_of(1)


def test_a_later_epoch_in_an_answer_ends_a_candidacy() -> None:
    bench = candidate_bench()
    sent = bench.sent(VoteRequest)[0][0]

    response = wire_responses.vote_response(LeaderFacts(7), 2, FencedLeaderEpoch.code)
    bench.reply(sent, response)

    assert isinstance(bench.core.state, Unattached)
    assert bench.core.epoch == 7


def test_an_answer_of_the_past_is_dropped() -> None:
    bench = candidate_bench()
    sent = bench.sent(VoteRequest)[0][0]

    bench.reply(sent, wire_responses.vote_response(LeaderFacts(0), 2, is_granted=True))

    assert bench.core.role is Role.CANDIDATE


@pytest.mark.parametrize(
    "response",
    [
        VoteResponse(error_code=InconsistentClusterId.code),
        wire_responses.vote_response(LeaderFacts(1), 2, InvalidVoterKey.code),
    ],
)
def test_an_error_that_tells_nothing_counts_as_no_answer(response: VoteResponse) -> None:
    bench = candidate_bench()
    sent = bench.sent(VoteRequest)[0][0]

    bench.reply(sent, response)

    state = bench.core.state
    assert isinstance(state, Candidate)
    assert sent.peer.id in state.tally.silent


def test_an_answer_that_makes_no_sense_is_reported_and_counts_as_none() -> None:
    bench = candidate_bench()
    sent = bench.sent(VoteRequest)[0][0]

    bench.reply(sent, VoteResponse())

    assert len(bench.of(Warn)) == 1
    assert bench.core.role is Role.CANDIDATE


def test_who_claims_that_we_lead_what_we_do_not_is_reported() -> None:
    bench = candidate_bench()
    sent = bench.sent(VoteRequest)[0][0]

    bench.reply(sent, wire_responses.vote_response(LeaderFacts(9, 1), 2))

    assert len(bench.of(Warn)) == 1
    assert bench.core.epoch == 1


# --- Rule 4: who begins ---


def test_rule_4_a_voter_follows_a_leader_that_introduces_itself() -> None:
    bench = Bench()

    state = bench.follow(leader_id=3, epoch=4)

    assert state.leader_endpoints == node(3).endpoints
    assert bench.of(PersistElection)[0].election == ElectionState(4, 3, None)
    assert bench.of(ChangeLeadership) == [ChangeLeadership(3, 4)]


def test_rule_4_a_leader_without_endpoints_is_found_among_the_voters() -> None:
    bench = Bench()
    request = wire_requests.begin_quorum_epoch_request(node(3), key_of(1), 4)
    request.leader_endpoints = []

    bench.receive(request)

    assert isinstance(bench.core.state, Follower)


def test_rule_4_a_leader_nobody_can_reach_is_known_but_not_followed() -> None:
    bench = Bench()
    request = wire_requests.begin_quorum_epoch_request(node(9), key_of(1), 4)
    request.leader_endpoints = []

    bench.receive(request)
    first = bench.core.state
    bench.receive(request)

    assert isinstance(first, Unattached)
    assert first.leader_id == 9
    assert bench.core.state is first


def test_rule_4_a_word_from_the_leader_itself_ends_the_doubts_of_a_prospective() -> None:
    bench = Bench()
    bench.follow(epoch=3)
    bench.wait(2_000)
    in_doubt = bench.core.role

    bench.follow(epoch=3)

    assert (in_doubt, bench.core.role) == (Role.PROSPECTIVE, Role.FOLLOWER)


@pytest.mark.parametrize(
    ("epoch", "leader_id", "code"),
    [(3, 2, FencedLeaderEpoch.code), (4, 3, InvalidRequest.code), (4, -1, InvalidRequest.code)],
)
def test_rule_4_a_leader_that_contradicts_what_is_known_is_refused(
    epoch: int, leader_id: int, code: int
) -> None:
    bench = Bench()
    bench.follow(leader_id=2, epoch=4)
    request = wire_requests.begin_quorum_epoch_request(node(2), key_of(1), epoch)
    request.topics[0].partitions[0].leader_id = leader_id

    assert error_of(bench.receive(request)) == code


def test_rule_4_whoever_claims_that_we_lead_is_refused() -> None:
    bench = Bench()
    request = wire_requests.begin_quorum_epoch_request(node(1), key_of(1), 4)

    assert error_of(bench.receive(request)) == InvalidRequest.code


@pytest.mark.parametrize("kind", ["begin", "end"])
def test_rule_4_another_cluster_or_partition_is_refused(kind: str) -> None:
    bench = Bench()
    if kind == "begin":
        begin = wire_requests.begin_quorum_epoch_request(node(2), key_of(1), 4)
        begin.cluster_id = "another"
        response = bench.receive(begin)
    else:
        end = wire_requests.end_quorum_epoch_request(node(2), 4, [])
        end.topics[0].topic_name = "orders"
        response = bench.receive(end)

    expected = InconsistentClusterId.code if kind == "begin" else InvalidRequest.code
    assert error_of(response) == expected


# --- Rule 7: who ends ---


def ended(successors: list[ReplicaKey], epoch: int = 4) -> EndQuorumEpochRequest:
    return wire_requests.end_quorum_epoch_request(node(2), epoch, successors)


def test_rule_7_the_first_successor_tries_at_once() -> None:
    bench = Bench()
    bench.follow(epoch=4)

    assert error_of(bench.receive(ended([key_of(1), key_of(3)]))) == 0

    assert bench.core.role is Role.PROSPECTIVE


@pytest.mark.parametrize(
    ("successors", "delay_ms"),
    [
        ([key_of(3), key_of(1)], 500),
        ([key_of(3), key_of(4), key_of(1)], 500),
        ([key_of(3), key_of(1), key_of(4)], 250),
        ([key_of(3)], 1_000),
        ([], 1_000),
        ([key_of(3), ReplicaKey(1, key_of(9).directory_id)], 1_000),
    ],
)
def test_rule_7_later_successors_wait_twice_as_long_each_and_strangers_longest(
    successors: list[ReplicaKey], delay_ms: int
) -> None:
    bench = Bench()
    state = bench.follow(epoch=4)
    state.has_fetched = True

    bench.receive(ended(successors))

    assert state.fetch_deadline_ms == bench.now_ms + delay_ms
    assert not state.has_fetched


def test_rule_7_the_ids_of_version_0_count_where_there_are_no_keys() -> None:
    bench = Bench()
    bench.follow(epoch=4)
    request = ended([key_of(1)])
    request.topics[0].partitions[0].preferred_candidates = []

    bench.receive(request, version=0)

    assert bench.core.role is Role.PROSPECTIVE


def test_rule_7_an_end_that_comes_before_the_beginning_is_understood() -> None:
    bench = Bench()

    bench.receive(ended([key_of(3), key_of(1)]))

    assert isinstance(bench.core.state, Follower)
    assert bench.core.epoch == 4


def test_rule_7_an_end_is_no_concern_of_a_replica_that_does_not_follow() -> None:
    bench = Bench(voters=[1, 3])
    request = ended([key_of(1)])
    request.leader_endpoints = []

    assert error_of(bench.receive(request)) == 0
    assert isinstance(bench.core.state, Unattached)


def test_rule_7_an_end_of_an_old_or_contradictory_epoch_is_refused() -> None:
    bench = Bench()
    bench.follow(leader_id=3, epoch=4)

    assert error_of(bench.receive(ended([], epoch=3))) == FencedLeaderEpoch.code
    assert error_of(bench.receive(ended([], epoch=4))) == InvalidRequest.code


def test_rule_7_a_leader_that_resigns_tells_all_voters_and_names_the_best_first() -> None:
    bench = Bench()
    leader = bench.lead()
    bench.fetch(3)
    bench.fetch(2, offset=0, epoch=0)

    bench.step(Resign(leader.epoch))

    requests = bench.sent(EndQuorumEpochRequest)
    candidates = requests[0][1].topics[0].partitions[0].preferred_candidates
    assert [sent.peer.id for sent, _ in requests] == [2, 3]
    assert [each.candidate_id for each in candidates] == [3, 2]
    assert ChangeLeadership(None, leader.epoch) in bench.effects


def test_rule_7_who_has_heard_of_the_end_is_not_told_again() -> None:
    bench = Bench()
    epoch = bench.lead().epoch
    bench.step(Resign(epoch))
    (first, _), (second, _) = bench.sent(EndQuorumEpochRequest)

    bench.reply(first, wire_responses.end_quorum_epoch_response(LeaderFacts(epoch, 1), 1))
    bench.reply(second, EndQuorumEpochResponse(error_code=InconsistentClusterId.code))
    bench.wait(20)

    assert [sent.peer.id for sent, _ in bench.sent(EndQuorumEpochRequest)] == [second.peer.id]
    assert isinstance(bench.core.state, Resigned)
    assert bench.core.state.unaware == {second.peer.id}


def test_rule_7_a_resigned_leader_waits_in_the_next_epoch() -> None:
    bench = Bench()
    epoch = bench.lead().epoch
    bench.step(Resign(epoch))

    bench.wait(2_000)

    assert isinstance(bench.core.state, Unattached)
    assert bench.core.epoch == epoch + 1


def test_a_resigned_leader_knows_that_nobody_else_can_lead_its_epoch() -> None:
    bench = Bench()
    epoch = bench.lead().epoch
    bench.step(Resign(epoch))

    request = wire_requests.begin_quorum_epoch_request(node(2), key_of(1), epoch)

    assert error_of(bench.receive(request)) == InvalidRequest.code


def test_only_the_current_epoch_can_be_resigned() -> None:
    bench = Bench()
    epoch = bench.lead().epoch

    bench.step(Resign(epoch - 1))

    assert bench.core.role is Role.LEADER


def test_a_voter_without_an_endpoint_is_not_asked() -> None:
    bench = Bench(voters=[1, 2, 3])
    history = bench.core.history.voters.last
    assert history.get(2) is not None
    history.get(2).endpoints.clear()  # type: ignore[union-attr]  # a dict here

    bench.wait(2_000)

    assert [sent.peer.id for sent, _ in bench.sent(VoteRequest)] == [3]
    bench.grant_all()
    bench.grant_all()
    epoch = bench.core.epoch
    assert bench.core.role is Role.LEADER
    bench.step(Resign(epoch))
    assert [sent.peer.id for sent, _ in bench.sent(EndQuorumEpochRequest)] == [3]
