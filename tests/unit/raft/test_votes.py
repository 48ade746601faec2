"""Rules 1, 2 and 3: when to stand for election, pre-votes and votes."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    UnsupportedVersion,
)
from millstream.protocol.messages import (
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchRequest,
    VoteRequest,
    VoteResponse,
)
from millstream.raft import wire_responses
from millstream.raft.effects import (
    ChangeLeadership,
    ElectionState,
    PersistElection,
    Respond,
    SendRequest,
)
from millstream.raft.events import Resign
from millstream.raft.states import Follower, Prospective, Role, Unattached
from millstream.raft.wire_responses import LeaderFacts
from millstream.types import Uuid
from tests.unit.raft.bench import Bench, endpoint_of, fetched, key_of


def granted(response: object) -> bool:
    assert isinstance(response, VoteResponse)
    return response.topics[0].partitions[0].vote_granted


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


# --- Rule 1: when to try ---


def test_rule_1_a_voter_waits_for_the_election_timeout_and_a_random_part() -> None:
    bench = Bench()

    bench.wait(999)
    waiting = bench.core.role
    bench.wait(1_001)

    assert waiting is Role.UNATTACHED
    assert bench.core.role is Role.PROSPECTIVE


def test_rule_1_a_follower_that_fetches_nothing_becomes_prospective() -> None:
    bench = Bench()
    bench.follow()

    bench.wait(1_999)
    waiting = bench.core.role
    bench.wait(1)

    assert (waiting, bench.core.role) == (Role.FOLLOWER, Role.PROSPECTIVE)
    assert bench.core.leader_id == 2


# --- Rule 2: pre-votes ---


def test_rule_2_a_pre_vote_leaves_the_epoch_as_it_is_and_persists_no_vote() -> None:
    bench = prospective_bench()

    requests = bench.sent(VoteRequest)

    assert [sent.peer.id for sent, _ in requests] == [2, 3]
    assert all(each.topics[0].partitions[0].pre_vote for _, each in requests)
    assert bench.core.epoch == 0
    assert not any(each.election.voted_key for each in bench.of(PersistElection))


def test_rule_2_a_majority_of_pre_votes_makes_a_candidate_whose_own_vote_is_stored_first() -> None:
    bench = prospective_bench()

    bench.grant_all()

    persisted, *after = bench.effects
    assert bench.core.role is Role.CANDIDATE
    assert persisted == PersistElection(ElectionState(1, None, key_of(1)), 1, (1, 2, 3))
    assert [type(each) for each in after] == [ChangeLeadership, SendRequest, SendRequest]


@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "is_granted"),
    [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)],
)
def test_rule_2_a_pre_vote_is_given_to_a_log_that_is_no_shorter(
    last_epoch: int, last_offset: int, is_granted: bool
) -> None:
    bench = Bench(log=[1, 1, 2])

    request = bench.vote(epoch=5, last_epoch=last_epoch, last_offset=last_offset, is_pre_vote=True)

    assert granted(bench.receive(request)) is is_granted
    assert not any(each.election.voted_key for each in bench.of(PersistElection))


def test_rule_2_a_leader_grants_no_pre_vote() -> None:
    bench = Bench()
    leader = bench.lead()

    request = bench.vote(epoch=leader.epoch, last_epoch=1, last_offset=99, is_pre_vote=True)

    assert not granted(bench.receive(request))


def test_rule_2_a_follower_grants_pre_votes_only_until_its_leader_has_answered_a_fetch() -> None:
    bench = Bench()
    bench.follow()
    fetch = bench.sent(FetchRequest)[0][0]
    request = bench.vote(by=3, epoch=1, last_epoch=1, last_offset=9, is_pre_vote=True)

    before = granted(bench.receive(request))
    bench.reply(fetch, fetched())
    after = granted(bench.receive(request))

    assert (before, after) == (True, False)


@pytest.mark.parametrize("role", [Role.CANDIDATE, Role.RESIGNED, Role.PROSPECTIVE])
def test_rule_2_who_has_no_leader_grants_pre_votes(role: Role) -> None:
    bench = candidate_bench() if role is Role.CANDIDATE else prospective_bench()
    if role is Role.RESIGNED:
        bench = Bench()
        bench.step(Resign(bench.lead().epoch))
    assert bench.core.role is role
    epoch = bench.core.epoch

    request = bench.vote(epoch=epoch, last_epoch=epoch, last_offset=9, is_pre_vote=True)

    assert granted(bench.receive(request))
    assert bench.core.role is role


def test_rule_2_a_refused_pre_vote_leads_back_to_the_leader_that_was_known() -> None:
    bench = Bench()
    bench.follow()
    bench.wait(2_000)

    for sent, _ in bench.sent(VoteRequest):
        facts = LeaderFacts(1, 2, endpoint_of(2))
        bench.reply(sent, wire_responses.vote_response(facts, 2))

    assert isinstance(bench.core.state, Follower)
    assert bench.core.leader_id == 2


def test_rule_2_a_refused_pre_vote_without_a_leader_leads_back_to_waiting() -> None:
    bench = prospective_bench()

    for sent, _ in bench.sent(VoteRequest):
        bench.reply(sent, wire_responses.vote_response(LeaderFacts(0), 2))

    assert bench.core.role is Role.UNATTACHED
    assert bench.core.epoch == 0


def test_rule_2_pre_votes_nobody_answers_end_with_the_election_timeout() -> None:
    bench = prospective_bench()

    bench.wait(2_000)

    assert bench.core.role is Role.UNATTACHED


def test_rule_2_a_node_that_knows_no_pre_votes_is_asked_for_its_vote_at_once() -> None:
    bench = prospective_bench()
    sent = bench.sent(VoteRequest)[0][0]

    bench.reply(sent, VoteResponse(error_code=UnsupportedVersion.code))

    assert bench.core.role is Role.CANDIDATE


def test_rule_2_a_failed_request_for_a_vote_is_repeated_after_the_backoff() -> None:
    bench = prospective_bench()
    (first, _), _ = bench.sent(VoteRequest)

    bench.fail(first)
    assert bench.sent(VoteRequest) == []
    bench.wait(20)

    assert [sent.peer.id for sent, _ in bench.sent(VoteRequest)] == [first.peer.id]


# --- Rule 3: votes ---


def test_rule_3_a_vote_is_stored_before_it_is_given() -> None:
    bench = Bench()

    assert granted(bench.receive(bench.vote(by=2, epoch=3)))

    bumped, persisted, responded = (
        each for each in bench.effects if isinstance(each, PersistElection | Respond)
    )
    assert bumped == PersistElection(ElectionState(3), 1, (1, 2, 3))
    assert persisted == PersistElection(ElectionState(3, None, key_of(2)), 1, (1, 2, 3))
    assert isinstance(responded, Respond)


def test_rule_3_one_vote_in_an_epoch_and_the_same_again_for_the_same_candidate() -> None:
    bench = Bench()
    bench.receive(bench.vote(by=2, epoch=3))

    other = granted(bench.receive(bench.vote(by=3, epoch=3)))
    again = granted(bench.receive(bench.vote(by=2, epoch=3)))

    assert (other, again) == (False, True)
    assert bench.of(PersistElection) == []


def test_rule_3_a_candidate_that_lost_records_since_loses_the_vote_too() -> None:
    bench = Bench(log=[1, 1])
    bench.receive(bench.vote(by=2, epoch=3, last_epoch=1, last_offset=2))

    assert not granted(bench.receive(bench.vote(by=2, epoch=3, last_epoch=1, last_offset=1)))


def test_rule_3_no_vote_while_the_leader_of_the_epoch_is_known() -> None:
    bench = Bench()
    bench.follow(leader_id=2, epoch=3)

    request = bench.vote(by=3, epoch=3, last_epoch=2, last_offset=9)

    assert not granted(bench.receive(request))


def test_rule_3_a_candidate_and_a_leader_keep_their_vote() -> None:
    candidate = candidate_bench()
    leader = Bench()
    epoch = leader.lead().epoch

    assert not granted(candidate.receive(candidate.vote(epoch=1, last_offset=9)))
    assert not granted(leader.receive(leader.vote(epoch=epoch, last_offset=9)))


def test_rule_3_an_old_epoch_is_fenced_and_told_the_new_one() -> None:
    bench = Bench()
    bench.follow(leader_id=2, epoch=5)

    response = bench.receive(bench.vote(by=3, epoch=4))

    assert isinstance(response, VoteResponse)
    partition = response.topics[0].partitions[0]
    assert partition.error_code == FencedLeaderEpoch.code
    assert (partition.leader_id, partition.leader_epoch) == (2, 5)
    endpoint = response.node_endpoints[0]
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "host2", 9_002)


def test_rule_3_a_later_epoch_makes_even_a_leader_unattached() -> None:
    bench = Bench()
    epoch = bench.lead().epoch

    response = bench.receive(bench.vote(epoch=epoch + 1, last_epoch=epoch, last_offset=99))

    assert granted(response)
    assert isinstance(bench.core.state, Unattached)
    assert ChangeLeadership(None, epoch + 1) in bench.effects


def test_rule_3_a_prospective_replica_that_votes_steps_back() -> None:
    bench = prospective_bench()
    bench.receive(bench.vote(by=3, epoch=1, last_offset=0, is_pre_vote=True))
    bench.wait(3_000)
    assert isinstance(bench.core.state, Prospective)

    assert granted(bench.receive(bench.vote(by=3, epoch=1)))

    assert isinstance(bench.core.state, Unattached)
    assert bench.core.state.voted_key == key_of(3)


@pytest.mark.parametrize(
    ("fields", "is_pre_vote"),
    [
        ({"last_offset": -1}, False),
        ({"last_epoch": -1}, False),
        ({"last_epoch": 3}, False),
        ({"last_epoch": 4}, True),
    ],
)
def test_rule_3_impossible_logs_are_invalid(fields: dict[str, int], is_pre_vote: bool) -> None:
    bench = Bench()

    response = bench.receive(bench.vote(epoch=3, is_pre_vote=is_pre_vote, **fields))

    assert error_of(response) == InvalidRequest.code


def test_rule_3_a_candidate_without_an_id_is_invalid() -> None:
    bench = Bench()
    request = bench.vote(epoch=3)
    request.topics[0].partitions[0].replica_id = -1

    assert error_of(bench.receive(request)) == InvalidRequest.code


def test_rule_3_another_cluster_is_refused_and_no_cluster_is_taken_for_ours() -> None:
    bench = Bench()
    foreign, unnamed = bench.vote(epoch=3), bench.vote(epoch=3)
    foreign.cluster_id, unnamed.cluster_id = "another", None

    assert error_of(bench.receive(foreign)) == InconsistentClusterId.code
    assert bench.core.epoch == 0
    assert granted(bench.receive(unnamed))


@pytest.mark.parametrize("fault", ["topic", "partition", "no topic", "two partitions"])
def test_rule_3_any_other_partition_is_invalid(fault: str) -> None:
    bench = Bench()
    request = bench.vote(epoch=3)
    topic = request.topics[0]
    if fault == "topic":
        topic.topic_name = "orders"
    elif fault == "partition":
        topic.partitions[0].partition_index = 1
    elif fault == "no topic":
        request.topics = []
    else:
        topic.partitions *= 2

    response = bench.receive(request)

    assert isinstance(response, VoteResponse)
    assert response.error_code == InvalidRequest.code


@pytest.mark.parametrize(
    ("voter_id", "directory_id", "is_ours"),
    [
        (1, key_of(1).directory_id, True),
        (1, Uuid.ZERO, True),
        (-1, key_of(9).directory_id, True),
        (2, key_of(1).directory_id, False),
        (1, key_of(9).directory_id, False),
    ],
)
def test_rule_3_a_request_for_another_replica_has_the_wrong_voter_key(
    voter_id: int, directory_id: Uuid, is_ours: bool
) -> None:
    bench = Bench()
    request = bench.vote(epoch=3)
    request.voter_id = voter_id
    request.topics[0].partitions[0].voter_directory_id = directory_id

    response = bench.receive(request)

    assert error_of(response) == (0 if is_ours else InvalidVoterKey.code)
    assert granted(response) is is_ours


def test_rule_3_who_is_no_voter_by_its_own_log_votes_all_the_same() -> None:
    bench = Bench(voters=[2, 3])

    assert granted(bench.receive(bench.vote(by=2, epoch=3)))
