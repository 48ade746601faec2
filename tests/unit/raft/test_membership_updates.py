"""Rule 8: voters that move, kraft.version, and what followers ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
)
from millstream.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    FetchRequest,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from millstream.raft import wire_requests
from millstream.raft.config import QuorumConfig
from millstream.raft.effects import AcceptSubmission, AppendToLog, RefuseSubmission
from millstream.raft.events import UpgradeKRaftVersion
from millstream.raft.states import Follower, Role
from millstream.raft.voters import Endpoint, ReplicaKey
from tests.unit.raft.bench import (
    LISTENER,
    Bench,
    directory_of,
    fetched,
    node,
    voter,
    voter_set,
)

if TYPE_CHECKING:
    from millstream.types import Uuid


def error_of(response: object) -> int:
    assert isinstance(
        response, AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse
    )
    return response.error_code


def committed_bench(**options: object) -> Bench:
    """A leader that may change its voters."""
    bench = Bench(**options)  # type: ignore[arg-type]  # passed through
    bench.lead()
    bench.replicate(2)
    return bench


def added(node_id: int = 4) -> AddRaftVoterRequest:
    request = wire_requests.add_voter_request(node(node_id), 2_000)
    request.ack_when_committed = True
    return request


def removed(node_id: int, directory_id: Uuid | None = None) -> RemoveRaftVoterRequest:
    key = ReplicaKey(node_id, directory_id or directory_of(node_id))
    return wire_requests.remove_voter_request(node(1), key)


# --- Updating ---


def moved(node_id: int = 2) -> UpdateRaftVoterRequest:
    new = replace(voter(node_id), endpoints={LISTENER: Endpoint("new", 1)})
    return wire_requests.update_voter_request(node(node_id), 1, new)


def test_rule_8_a_voter_that_has_moved_is_written_down_and_answered_at_once() -> None:
    bench = committed_bench()

    response = bench.receive(moved())

    assert error_of(response) == 0
    assert bench.core.voters.endpoints_of(2) == {LISTENER: Endpoint("new", 1)}
    assert isinstance(response, UpdateRaftVoterResponse)
    assert response.current_leader is not None
    assert (response.current_leader.leader_id, response.current_leader.port) == (1, 9_001)


def test_rule_8_an_update_that_changes_nothing_is_not_written() -> None:
    bench = committed_bench()

    assert error_of(bench.receive(wire_requests.update_voter_request(node(2), 1, voter(2)))) == 0

    assert bench.of(AppendToLog) == []


@pytest.mark.parametrize("fault", ["stranger", "epoch", "versions", "listener"])
def test_rule_8_an_update_must_fit_the_quorum(fault: str) -> None:
    bench = committed_bench()
    request = moved(9 if fault == "stranger" else 2)
    expected = InvalidRequest.code
    if fault == "stranger":
        expected = VoterNotFound.code
    elif fault == "epoch":
        request.current_leader_epoch, expected = 0, FencedLeaderEpoch.code
    elif fault == "versions":
        request.kraft_version_feature.max_supported_version = 0
    else:
        request.listeners = []

    assert error_of(bench.receive(request)) == expected
    assert bench.of(AppendToLog) == []


def test_an_update_at_a_follower_is_told_who_leads() -> None:
    bench = Bench()
    bench.follow(leader_id=9, epoch=1)

    response = bench.receive(moved())

    assert error_of(response) == NotLeaderOrFollower.code
    assert isinstance(response, UpdateRaftVoterResponse)
    assert response.current_leader is not None
    assert (response.current_leader.leader_id, response.current_leader.host) == (9, "host9")


def test_an_update_where_nobody_leads_is_told_that() -> None:
    bench = Bench(stored=None)

    response = bench.receive(moved())

    assert isinstance(response, UpdateRaftVoterResponse)
    assert response.current_leader is not None
    assert (response.current_leader.leader_id, response.current_leader.host) == (-1, "")


# --- kraft.version ---


def test_the_voters_of_a_static_quorum_cannot_be_changed() -> None:
    bench = committed_bench(kraft_version=0)

    assert error_of(bench.receive(added(4))) == UnsupportedVersion.code
    assert error_of(bench.receive(removed(3))) == UnsupportedVersion.code


def test_an_upgrade_writes_down_the_voters_that_have_introduced_themselves() -> None:
    bench = committed_bench(kraft_version=0)
    bench.step(UpgradeKRaftVersion("early", 1, 1))
    early = bench.of(RefuseSubmission)
    for voter_id in (2, 3):
        request = wire_requests.update_voter_request(node(voter_id), 1, voter(voter_id))
        assert error_of(bench.receive(request)) == 0
        assert bench.of(AppendToLog) == []

    bench.step(UpgradeKRaftVersion("if", 1, 1, validates_only=True))
    assert bench.effects == [AcceptSubmission("if", 1, 1)]
    bench.step(UpgradeKRaftVersion("now", 1, 1))

    assert isinstance(early[0].error, InvalidUpdateVersion)
    assert bench.of(AcceptSubmission) == [AcceptSubmission("now", 1, 3)]
    assert bench.core.kraft_version == 1
    assert bench.core.voters == voter_set(1, 2, 3)


def test_a_stranger_introduces_itself_in_vain() -> None:
    bench = committed_bench(kraft_version=0)

    assert error_of(bench.receive(moved(9))) == VoterNotFound.code


def test_an_upgrade_to_what_it_is_does_nothing() -> None:
    bench = committed_bench()

    bench.step(UpgradeKRaftVersion("same", 1, 1))

    assert bench.effects == [AcceptSubmission("same", 3, 3)]


@pytest.mark.parametrize("version", [0, 2])
def test_there_is_no_way_down_and_none_beyond(version: int) -> None:
    bench = committed_bench()

    bench.step(UpgradeKRaftVersion("no", 1, version))

    assert isinstance(bench.of(RefuseSubmission)[0].error, InvalidUpdateVersion)


def test_only_the_controller_of_the_epoch_upgrades() -> None:
    bench = committed_bench()

    bench.step(UpgradeKRaftVersion("old", 0, 1))

    assert isinstance(bench.of(RefuseSubmission)[0].error, NotController)


# --- A follower's part ---


def follower_bench(**options: object) -> Bench:
    bench = Bench(**options)  # type: ignore[arg-type]  # passed through
    bench.follow()
    return bench


def next_after_fetch(bench: Bench) -> None:
    """The leader answers fetches until the time to tell it something has come."""
    for _ in range(2):
        (sent, _) = bench.sent(FetchRequest)[0]
        bench.now_ms += 1_000
        bench.reply(sent, fetched())


def test_a_voter_that_has_moved_tells_the_leader() -> None:
    local = replace(node(1), endpoints={LISTENER: Endpoint("new", 1)})
    bench = follower_bench(local=local)

    next_after_fetch(bench)

    ((sent, request),) = bench.sent(UpdateRaftVoterRequest)
    assert (request.voter_id, request.listeners[0].host) == (1, "new")
    bench.reply(sent, UpdateRaftVoterResponse())
    assert len(bench.sent(FetchRequest)) == 1


def test_a_voter_that_is_where_the_log_says_tells_nothing() -> None:
    bench = follower_bench()

    next_after_fetch(bench)

    assert bench.sent(UpdateRaftVoterRequest) == []


def test_a_static_voter_introduces_itself_once_to_each_leader() -> None:
    bench = follower_bench(kraft_version=0)
    next_after_fetch(bench)
    ((sent, _),) = bench.sent(UpdateRaftVoterRequest)

    bench.reply(sent, UpdateRaftVoterResponse())

    assert isinstance(bench.core.state, Follower)
    assert bench.core.state.has_updated_leader
    next_after_fetch(bench)
    assert bench.sent(UpdateRaftVoterRequest) == []


def test_an_introduction_that_failed_is_repeated() -> None:
    bench = follower_bench(kraft_version=0)
    next_after_fetch(bench)
    ((sent, _),) = bench.sent(UpdateRaftVoterRequest)

    bench.reply(sent, UpdateRaftVoterResponse(error_code=RequestTimedOut.code))

    assert isinstance(bench.core.state, Follower)
    assert not bench.core.state.has_updated_leader


def test_an_answer_to_an_introduction_that_comes_too_late_is_dropped() -> None:
    bench = Bench()

    bench.core._membership.handle_update_voter_response(None, UpdateRaftVoterResponse())

    assert bench.core.role is Role.UNATTACHED


def test_auto_join_asks_to_become_a_voter() -> None:
    bench = follower_bench(voters=[2, 3], config=QuorumConfig(auto_join_enable=True))

    next_after_fetch(bench)

    ((sent, request),) = bench.sent(AddRaftVoterRequest)
    assert (request.voter_id, request.ack_when_committed) == (1, False)
    bench.reply(sent, AddRaftVoterResponse(error_code=RequestTimedOut.code))
    assert len(bench.sent(FetchRequest)) == 1


def test_auto_join_first_removes_the_disk_that_is_gone() -> None:
    local = replace(node(1), key=ReplicaKey(1, directory_of(9)))
    bench = follower_bench(local=local, config=QuorumConfig(auto_join_enable=True))

    next_after_fetch(bench)

    ((sent, request),) = bench.sent(RemoveRaftVoterRequest)
    assert (request.voter_id, request.voter_directory_id) == (1, directory_of(1))
    bench.reply(sent, RemoveRaftVoterResponse())


@pytest.mark.parametrize("reason", ["broker", "not enabled", "static"])
def test_nobody_joins_who_should_not(reason: str) -> None:
    enabled = QuorumConfig(auto_join_enable=reason != "not enabled")
    bench = follower_bench(
        voters=[2, 3],
        config=enabled,
        local=node(1, is_controller=reason != "broker"),
        kraft_version=0 if reason == "static" else 1,
    )

    next_after_fetch(bench)

    assert bench.sent(AddRaftVoterRequest) == []
