"""The replica as a whole: the role it starts in, deadlines, shutdown, what it does not know."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidArgument, NotLeaderOrFollower, UnknownTopicOrPartition
from millstream.protocol.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    MetadataRequest,
    VoteRequest,
    VoteResponse,
    describe_quorum,
)
from millstream.raft import wire_responses
from millstream.raft.config import QuorumConfig
from millstream.raft.effects import (
    AppendToLog,
    ChangeLeadership,
    CompleteShutdown,
    ElectionState,
    PersistElection,
)
from millstream.raft.events import ResponseReceived, ShutDown, Submit, Tick
from millstream.raft.states import Candidate, Follower, Resigned, Role, Unattached
from millstream.raft.wire_responses import LeaderFacts
from tests.unit.raft.bench import Bench, key_of, voter_set

# --- Starting ---


def test_a_new_replica_waits_in_epoch_0_and_writes_that_down() -> None:
    bench = Bench()

    assert isinstance(bench.core.state, Unattached)
    assert bench.of(PersistElection)[0].election == ElectionState(0)
    assert bench.of(ChangeLeadership) == [ChangeLeadership(None, 0)]


def test_a_log_that_is_ahead_of_the_file_gives_the_epoch() -> None:
    bench = Bench(log=[1, 5], stored=ElectionState(3, None, key_of(2)))

    state = bench.core.state
    assert isinstance(state, Unattached)
    assert (state.epoch, state.voted_key) == (5, None)


def test_who_led_an_epoch_comes_back_resigned_from_it() -> None:
    bench = Bench(log=[3], stored=ElectionState(3, 1, key_of(1)))

    assert isinstance(bench.core.state, Resigned)
    assert bench.core.leader_id is None
    assert [sent.peer.id for sent, _ in bench.sent(EndQuorumEpochRequest)] == [2, 3]
    assert bench.of(PersistElection) == []
    request = bench.vote(by=2, epoch=3, last_epoch=2, last_offset=9)
    response = bench.receive(request)
    assert isinstance(response, VoteResponse)
    assert not response.topics[0].partitions[0].vote_granted


def test_a_quorum_of_one_leads_again_when_it_starts() -> None:
    bench = Bench(voters=[1], log=[3], stored=ElectionState(3, 1, key_of(1)))

    assert bench.core.role is Role.LEADER
    assert bench.core.epoch == 5


def test_a_candidate_comes_back_as_one_in_its_epoch() -> None:
    bench = Bench(stored=ElectionState(3, None, key_of(1)))

    assert isinstance(bench.core.state, Candidate)
    assert bench.core.epoch == 3
    assert len(bench.sent(VoteRequest)) == 2


def test_a_candidate_that_is_no_voter_any_more_does_not() -> None:
    bench = Bench(voters=[2, 3], stored=ElectionState(3, None, key_of(1)))

    assert isinstance(bench.core.state, Unattached)


def test_a_vote_is_remembered_over_a_restart() -> None:
    bench = Bench(stored=ElectionState(3, None, key_of(2)))

    response = bench.receive(bench.vote(by=3, epoch=3))

    assert isinstance(response, VoteResponse)
    assert not response.topics[0].partitions[0].vote_granted


def test_a_follower_comes_back_to_its_leader() -> None:
    bench = Bench(stored=ElectionState(3, 2, key_of(1)))

    assert isinstance(bench.core.state, Follower)
    assert [sent.peer.id for sent, _ in bench.sent(FetchRequest)] == [2]


def test_a_follower_whose_leader_is_no_voter_looks_for_it() -> None:
    bench = Bench(stored=ElectionState(3, 9))

    state = bench.core.state
    assert isinstance(state, Unattached)
    assert state.leader_id == 9


def test_doubts_about_a_leader_that_cannot_be_reached_lead_back_to_waiting() -> None:
    bench = Bench(stored=ElectionState(3, 9))
    bench.wait(2_000)
    assert bench.core.role is Role.PROSPECTIVE

    for sent, _ in bench.sent(VoteRequest):
        bench.reply(sent, wire_responses.vote_response(LeaderFacts(3, 9), 2))

    state = bench.core.state
    assert isinstance(state, Unattached)
    assert state.leader_id == 9


# --- A removal that may not be committed ---


def test_who_may_not_have_been_removed_stands_without_counting_itself() -> None:
    bench = Bench(voters=[1, 2], log=[1, 1, 1], high_watermark=2)
    bench.core.history.add(2, voter_set(2))
    bench.wait(2_000)
    standing = bench.core.role

    bench.grant_all()
    bench.grant_all()

    assert (standing, bench.core.role) == (Role.PROSPECTIVE, Role.LEADER)
    assert bench.core.voters.ids == [2]


def test_who_has_been_removed_for_certain_does_not_stand() -> None:
    bench = Bench(voters=[1, 2], log=[1, 1, 1], high_watermark=3)
    bench.core.history.add(2, voter_set(2))

    bench.wait(20_000)

    assert bench.core.role is Role.UNATTACHED


# --- Time ---


@pytest.mark.parametrize("role", ["unattached", "prospective", "follower", "leader", "resigned"])
def test_what_is_due_is_done_when_it_is_due(role: str) -> None:
    """After a tick at its deadline a core never asks for another tick at once: no busy loop."""
    bench = Bench()
    if role == "prospective":
        bench.wait(2_000)
    elif role == "follower":
        bench.follow()
    elif role in ("leader", "resigned"):
        bench.lead()
    if role == "resigned":
        bench.wait(3_000)
    assert bench.core.role.value == role

    for _ in range(200):
        bench.wait_until_due()
        due_ms = bench.core.next_deadline_ms()
        assert due_ms is not None
        assert due_ms > bench.now_ms


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    bench = Bench()

    assert bench.step(ResponseReceived(99, VoteResponse())) == []


def test_a_failure_that_nobody_waits_for_changes_nothing() -> None:
    bench = Bench()
    (sent, _) = bench.sent(FetchRequest)[0]
    bench.fail(sent)

    assert bench.fail(sent) == []


def test_what_raft_does_not_know_is_refused() -> None:
    bench = Bench()
    (sent, _) = bench.sent(FetchRequest)[0]

    with pytest.raises(InvalidArgument, match="MetadataRequest"):
        bench.receive(MetadataRequest())
    with pytest.raises(InvalidArgument, match="does not answer"):
        bench.reply(sent, VoteResponse())


# --- Shutdown ---


def test_a_leader_hands_over_before_it_stops() -> None:
    bench = Bench()
    epoch = bench.lead().epoch
    bench.replicate(2)
    bench.step(Submit("s", epoch, [b"a"]))
    bench.step(Submit("t", epoch, [b"b"]))

    bench.step(ShutDown(5_000))
    assert len(bench.of(AppendToLog)) == 1
    assert bench.of(CompleteShutdown) == []
    for sent, _ in bench.sent(EndQuorumEpochRequest):
        bench.reply(sent, wire_responses.end_quorum_epoch_response(LeaderFacts(epoch, 1), 1))

    assert bench.of(CompleteShutdown) == [CompleteShutdown()]
    assert bench.core.next_deadline_ms() is None
    assert bench.step(Tick()) == []


def test_a_shutdown_does_not_wait_for_ever() -> None:
    bench = Bench()
    bench.lead()
    bench.step(ShutDown(500))
    assert bench.core.next_deadline_ms() is not None

    bench.wait(500)

    assert bench.of(CompleteShutdown) == [CompleteShutdown()]


def test_who_does_not_lead_stops_at_once() -> None:
    bench = Bench()
    bench.follow()

    bench.step(ShutDown(5_000))

    assert bench.of(CompleteShutdown) == [CompleteShutdown()]


# --- DescribeQuorum ---


def described(
    bench: Bench, version: int = 2, topic: str = "__cluster_metadata"
) -> DescribeQuorumResponse:
    partition = describe_quorum.DescribeQuorumRequestPartitionData(partition_index=0)
    data = describe_quorum.DescribeQuorumRequestTopicData(topic_name=topic, partitions=[partition])
    response = bench.receive(DescribeQuorumRequest(topics=[data]), version)
    assert isinstance(response, DescribeQuorumResponse)
    assert response.encode(version)
    return response


def test_the_leader_describes_the_quorum() -> None:
    bench = Bench()
    bench.lead()
    bench.replicate(2)
    bench.fetch(9, offset=1, epoch=1)

    response = described(bench)

    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 3)
    ends = {each.replica_id: each.log_end_offset for each in partition.current_voters}
    assert ends == {1: 3, 2: 3, 3: -1}
    times = {each.replica_id: each.last_fetch_timestamp for each in partition.current_voters}
    assert times == {1: bench.wall_ms, 2: bench.wall_ms, 3: -1}
    assert [(each.replica_id, each.log_end_offset) for each in partition.observers] == [(9, 1)]
    assert partition.current_voters[1].replica_directory_id == key_of(2).directory_id
    assert [each.node_id for each in response.nodes] == [1, 2, 3]
    assert response.nodes[0].listeners[0].port == 9_001


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_are_told_less(version: int) -> None:
    bench = Bench()
    bench.lead()

    response = described(bench, version)

    assert response.nodes == []
    assert response.topics[0].partitions[0].high_watermark == -1


def test_who_does_not_lead_does_not_describe() -> None:
    bench = Bench()
    bench.follow()

    other = described(bench, topic="orders").topics[0].partitions[0]
    ours = described(bench).topics[0].partitions[0]
    none = bench.receive(DescribeQuorumRequest())

    assert other.error_code == UnknownTopicOrPartition.code
    assert ours.error_code == NotLeaderOrFollower.code
    assert isinstance(none, DescribeQuorumResponse)
    assert none.error_code


def test_no_retry_backoff_is_allowed() -> None:
    bench = Bench(config=QuorumConfig(retry_backoff_ms=0))
    bench.wait(2_000)
    bench.grant_all()
    for sent, _ in bench.sent(VoteRequest):
        bench.reply(sent, wire_responses.vote_response(LeaderFacts(1), 2))

    state = bench.core.state

    assert isinstance(state, Candidate)
    assert state.election_deadline_ms > bench.now_ms
