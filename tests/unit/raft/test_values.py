"""Settings, voters, histories and connections."""

from __future__ import annotations

from random import Random

import pytest

from millstream.errors import InvalidArgument, InvalidConfig
from millstream.protocol.messages import FetchRequest, VoteRequest
from millstream.raft.config import QuorumConfig, parse_servers, parse_voters
from millstream.raft.connections import Connections
from millstream.raft.effects import Peer
from millstream.raft.replica import QuorumHistory
from millstream.raft.voters import (
    Endpoint,
    LogHistory,
    ReplicaKey,
    SupportedVersions,
    Voter,
    VoterSet,
)
from tests.unit.raft.bench import directory_of, endpoint_of, key_of, voter, voter_set

# --- Settings ---


def test_the_defaults_are_kafkas() -> None:
    config = QuorumConfig()

    assert (config.election_timeout_ms, config.fetch_timeout_ms) == (1_000, 2_000)
    assert (config.election_backoff_max_ms, config.request_timeout_ms) == (1_000, 2_000)
    assert (config.retry_backoff_ms, config.append_linger_ms) == (20, 25)
    assert not config.auto_join_enable


def test_rule_1_the_leader_checks_its_quorum_after_one_and_a_half_fetch_timeouts() -> None:
    config = QuorumConfig(fetch_timeout_ms=1_000)

    assert config.check_quorum_timeout_ms == 1_500
    assert config.begin_quorum_interval_ms == 500


@pytest.mark.parametrize(
    "settings",
    [
        {"voters": ("1@host",)},
        {"voters": ("one@host:9000",)},
        {"voters": ("1@host:99999",)},
        {"voters": ("1@a:1", "1@b:2")},
        {"bootstrap_servers": ("host",)},
        {"bootstrap_servers": ("host:99999",)},
        {"election_timeout_ms": 0},
    ],
)
def test_faulty_settings_are_refused(settings: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(InvalidConfig):
        QuorumConfig(**settings)  # type: ignore[arg-type]  # faulty on purpose


def test_voters_and_servers_are_read() -> None:
    voters = parse_voters(("2@b:2", "1@a:1"), "CONTROLLER")

    assert voters.ids == [1, 2]
    assert voters.endpoints_of(2) == {"CONTROLLER": Endpoint("b", 2)}
    assert parse_servers(("a:1", "[::1]:2")) == (Endpoint("a", 1), Endpoint("[::1]", 2))


# --- Voters ---


def test_a_voter_is_an_id_with_its_directory() -> None:
    voters = voter_set(1, 2, 3)

    assert voters.is_voter(key_of(1))
    assert not voters.is_voter(ReplicaKey(1, directory_of(9)))
    assert not voters.is_voter(key_of(9))


def test_where_no_directory_is_known_the_id_is_enough() -> None:
    voters = VoterSet([Voter(ReplicaKey(1))])

    assert voters.is_voter(key_of(1))
    assert voters.is_only_voter(key_of(1))


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_the_majority_is_more_than_half(count: int, majority: int) -> None:
    assert voter_set(*range(1, count + 1)).majority == majority


def test_a_set_changes_by_making_another() -> None:
    voters = voter_set(1, 2)
    moved = Voter(key_of(2), {"CONTROLLER": Endpoint("elsewhere", 1)})

    assert voters.with_voter(voter(3)).ids == [1, 2, 3]
    assert voters.without_voter(key_of(2)) == voter_set(1)
    assert voters.without_voter(ReplicaKey(2, directory_of(9))) is None
    updated = voters.with_update(moved)
    assert updated is not None
    assert updated.get(2) == moved
    assert voters.with_update(voter(3)) is None
    assert voters == voter_set(1, 2)
    assert voters != "voters"
    assert "2" in repr(voters)


def test_an_id_votes_once() -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        voter_set(1).with_voter(voter(1))


def test_a_version_is_supported_when_every_voter_can_run_it() -> None:
    old = Voter(key_of(2), {}, SupportedVersions(0, 0))
    unknown_disk = Voter(ReplicaKey(2), {}, SupportedVersions(0, 1))

    assert voter_set(1, 2).supports(1)
    assert not voter_set(1).with_voter(old).supports(1)
    assert not voter_set(1).with_voter(unknown_disk).supports(1)
    assert voter_set(1).with_voter(unknown_disk).supports(0)


def test_keys_and_endpoints_read_well() -> None:
    assert str(ReplicaKey(7)) == "7"
    assert str(key_of(7)) == f"7:{directory_of(7)}"
    assert str(Endpoint("h", 1)) == "h:1"


# --- What the log says over time ---


def test_a_history_follows_the_log_forth_and_back() -> None:
    history = LogHistory("initial")
    history.add(3, "three")
    history.add(7, "seven")

    assert [history.at(offset) for offset in (0, 3, 6, 7)] == [
        "initial",
        "three",
        "three",
        "seven",
    ]
    assert history.last_offset == 7
    assert history.possible_at(8) == ["seven"]
    assert history.possible_at(7) == ["three", "seven"]
    assert history.possible_at(0) == ["initial", "three", "seven"]

    history.truncate_to(7)
    assert history.last == "three"
    history.truncate_to(0)
    assert (history.last, history.last_offset) == ("initial", -1)


def test_a_history_can_lose_its_beginning() -> None:
    history = LogHistory("initial")
    history.add(3, "three")
    history.add(7, "seven")

    history.trim_before(5)
    assert history.at(4) == "three"
    assert history.at(1) == "three"
    history.trim_before(2)
    assert history.at(4) == "three"
    history.reset(20, "snapshot")
    assert (history.last, history.last_offset) == ("snapshot", 20)


def test_versions_and_voters_have_a_history_each() -> None:
    history = QuorumHistory.starting_from(voter_set(1))
    history.add(4, 1)
    history.add(5, voter_set(1, 2))

    history.trim_before(4)
    history.truncate_to(5)

    assert (history.kraft_version.last, history.voters.last) == (1, voter_set(1))


# --- Connections ---

PEER = Peer(2, endpoint_of(2))


def test_one_request_at_a_time_to_a_node() -> None:
    connections = Connections(timeout_ms=100, backoff_ms=10)

    request_id = connections.start(PEER, VoteRequest(), now_ms=0)

    assert not connections.is_ready(2, 0)
    assert connections.is_ready(3, 0)
    assert connections.is_waiting_for(VoteRequest)
    assert not connections.is_waiting_for(FetchRequest)
    assert connections.next_deadline_ms() == 100
    assert connections.finish(request_id) is not None
    assert connections.is_ready(2, 0)
    assert connections.finish(request_id) is None
    assert connections.fail(request_id, 0) is None
    assert connections.next_deadline_ms() is None


def test_a_node_that_fails_is_left_alone_for_a_while() -> None:
    connections = Connections(timeout_ms=100, backoff_ms=10)
    request_id = connections.start(PEER, VoteRequest(), now_ms=0)

    connections.fail(request_id, now_ms=5)

    assert connections.is_paused(2, 14)
    assert not connections.is_paused(2, 15)
    assert connections.next_deadline_ms() == 15
    assert connections.expire(15) == []
    assert connections.next_deadline_ms() is None


def test_a_request_without_an_answer_expires() -> None:
    connections = Connections(timeout_ms=100, backoff_ms=10)
    request_id = connections.start(PEER, VoteRequest(), now_ms=0)

    assert connections.expire(99) == []
    late = connections.expire(100)

    assert [each.request_id for each in late] == [request_id]
    assert connections.is_paused(2, 109)


def test_a_ready_node_is_chosen_at_random() -> None:
    connections = Connections(timeout_ms=100, backoff_ms=10)
    connections.start(PEER, VoteRequest(), now_ms=0)
    peers = [PEER, Peer(3, endpoint_of(3))]

    assert connections.choose_ready(peers, 0, Random(1)) == peers[1]
    assert connections.choose_ready([PEER], 0, Random(1)) is None
