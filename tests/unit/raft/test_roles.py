"""Roles, tallies, what a leader remembers, and the quorum-state file."""

from __future__ import annotations

import json

import pytest

from millstream.errors import InvalidArgument
from millstream.raft import quorum_state
from millstream.raft.effects import ChangeLeadership, Effect, ElectionState, PersistElection
from millstream.raft.leader_state import Leader, ReplicaProgress
from millstream.raft.quorum_state import QuorumState
from millstream.raft.quorum_state_file import decode_quorum_state, encode_quorum_state
from millstream.raft.states import Candidate, Follower, Role, Tally, Unattached
from millstream.raft.voters import (
    ReplicaKey,
    Voter,
    VoterSet,
)
from millstream.types import Uuid
from tests.unit.raft.bench import directory_of, key_of, voter_set

# --- Votes ---


def test_a_tally_is_won_lost_or_open() -> None:
    tally = Tally(voter_set(1, 2, 3, 4, 5), {1})
    tally.record(2, is_granted=True)
    tally.record(3, is_granted=False)
    assert (tally.is_won, tally.is_lost, tally.silent) == (False, False, [4, 5])

    tally.record(9, is_granted=True)
    assert not tally.is_won
    tally.record(4, is_granted=False)
    tally.record(5, is_granted=False)
    assert tally.is_lost
    tally.record(5, is_granted=True)
    assert tally.is_won


# --- Roles ---


def test_every_role_has_its_place_in_both_tables() -> None:
    assert set(quorum_state.SAME_EPOCH) == set(quorum_state.NEXT_EPOCH) == set(Role)
    for allowed in quorum_state.NEXT_EPOCH.values():
        assert {Role.UNATTACHED, Role.FOLLOWER} <= allowed
        assert Role.LEADER not in allowed


def begun(state: quorum_state.State) -> tuple[QuorumState, list[Effect]]:
    effects: list[Effect] = []
    quorum = QuorumState(effects.append, None)
    quorum.begin(state, 1, voter_set(1, 2, 3))
    return quorum, effects


def follower(epoch: int, leader_id: int, voted_key: ReplicaKey | None = None) -> Follower:
    return Follower(epoch, leader_id, {}, 0, 0, voted_key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (follower(3, 2), Unattached(3, 0)),
        (follower(3, 2), follower(3, 1)),
        (follower(3, 2), follower(2, 2)),
        (Unattached(3, 0, None, key_of(2)), Unattached(3, 0, None, key_of(3))),
        (Unattached(3, 0), Candidate(4, 0, Tally(voter_set(1), {1}), key_of(1))),
    ],
)
def test_what_the_tables_do_not_allow_does_not_happen(
    old: quorum_state.State, new: quorum_state.State
) -> None:
    quorum, _ = begun(old)

    with pytest.raises(AssertionError):
        quorum.enter(new, 1, voter_set(1, 2, 3))


def test_only_news_is_persisted_and_announced() -> None:
    quorum, effects = begun(follower(3, 2))
    expected: list[Effect] = [
        PersistElection(ElectionState(3, 2), 1, (1, 2, 3)),
        ChangeLeadership(2, 3),
    ]
    assert effects == expected

    quorum.enter(follower(3, 2), 1, voter_set(1, 2, 3))

    assert effects == expected


# --- What a leader remembers ---


def make_leader(voters: VoterSet) -> Leader:
    leader = Leader(3, key_of(1), {}, 10, frozenset({1}), 0, voters)
    leader.take_voters(voters)
    return leader


@pytest.mark.parametrize(
    ("ends", "own", "expected"),
    [
        ({2: 12, 3: 15}, 20, 15),
        ({2: 12, 3: 15}, 11, 12),
        ({2: None, 3: None}, 20, 0),
        ({2: 12, 3: None}, 20, 12),
    ],
)
def test_rule_5_the_majority_offset_is_what_most_disks_have(
    ends: dict[int, int | None], own: int, expected: int
) -> None:
    voters = voter_set(1, 2, 3)
    leader = make_leader(voters)
    for voter_id, end in ends.items():
        leader.voters[voter_id].end_offset = end

    assert leader.majority_offset(own, voters) == expected


def test_rule_5_a_leader_that_is_no_voter_does_not_count() -> None:
    voters = voter_set(2, 3)
    leader = make_leader(voters)
    leader.voters[2].end_offset, leader.voters[3].end_offset = 12, 15

    assert leader.majority_offset(99, voters) == 12


def test_what_is_known_of_a_replica_survives_a_change_of_the_voters() -> None:
    leader = make_leader(voter_set(1, 2, 3))
    leader.voters[3].end_offset = 15
    leader.progress_of(key_of(4), voter_set(1, 2, 3)).end_offset = 14

    leader.take_voters(voter_set(1, 2, 4))

    assert leader.voters[4].end_offset == 14
    assert leader.observers[key_of(3)].end_offset == 15
    leader.take_voters(voter_set(2, 4))
    assert key_of(1) not in leader.observers


def test_a_static_voter_keeps_its_progress_when_its_directory_becomes_known() -> None:
    leader = make_leader(VoterSet([Voter(ReplicaKey(1)), Voter(ReplicaKey(2))]))
    leader.voters[2].end_offset = 15

    leader.take_voters(voter_set(1, 2))

    assert leader.voters[2] == ReplicaProgress(key_of(2), end_offset=15)


def test_a_replica_is_caught_up_when_it_has_what_we_had_when_it_last_asked() -> None:
    progress = ReplicaProgress(key_of(2))

    progress.fetched(5, leader_end=10, now_ms=100, wall_ms=1_100)
    assert progress.last_caught_up_ms == -1
    progress.fetched(10, leader_end=12, now_ms=200, wall_ms=1_200)
    assert (progress.last_caught_up_ms, progress.last_caught_up_wall_ms) == (100, 1_100)
    progress.fetched(12, leader_end=12, now_ms=300, wall_ms=1_300)
    assert progress.last_caught_up_ms == 300


# --- The file ---


def test_the_file_of_a_dynamic_quorum_has_version_1() -> None:
    election = ElectionState(7, 2, key_of(3))

    data = encode_quorum_state(election, 1, (1, 2, 3))

    assert json.loads(data) == {
        "leaderId": 2,
        "leaderEpoch": 7,
        "votedId": 3,
        "votedDirectoryId": str(directory_of(3)),
        "data_version": 1,
    }
    assert decode_quorum_state(data) == election


def test_the_file_of_a_static_quorum_has_version_0() -> None:
    data = encode_quorum_state(ElectionState(7, None, key_of(3)), 0, (1, 2))

    assert json.loads(data) == {
        "clusterId": "",
        "leaderId": -1,
        "leaderEpoch": 7,
        "votedId": 3,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}, {"voterId": 2}],
        "data_version": 0,
    }
    assert decode_quorum_state(data) == ElectionState(7, None, ReplicaKey(3))


def test_nobody_is_minus_one_in_the_file() -> None:
    data = encode_quorum_state(ElectionState(7), 1, ())

    assert json.loads(data)["votedDirectoryId"] == str(Uuid.ZERO)
    assert decode_quorum_state(data) == ElectionState(7)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data_version":2,"leaderId":1,"leaderEpoch":1,"votedId":-1}',
        b'{"data_version":0,"leaderId":"one","leaderEpoch":1,"votedId":-1}',
        b'{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":2,"votedDirectoryId":"?"}',
    ],
)
def test_a_damaged_file_is_refused(damage: bytes) -> None:
    with pytest.raises(InvalidArgument, match="quorum-state"):
        decode_quorum_state(damage)
