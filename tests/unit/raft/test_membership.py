"""Rule 8: voters are added and removed one at a time (KIP-853)."""

from __future__ import annotations

import pytest

from millstream.errors import (
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    NotLeaderOrFollower,
    RequestTimedOut,
    VoterNotFound,
)
from millstream.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EndQuorumEpochRequest,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
)
from millstream.protocol.messages.api_versions import SupportedFeatureKey
from millstream.raft import wire_requests
from millstream.raft.effects import AppendToLog, SendRequest
from millstream.raft.events import Submit
from millstream.raft.membership import KRAFT_VERSION_FEATURE
from millstream.raft.states import Role
from millstream.raft.voters import ReplicaKey
from millstream.types import Uuid
from tests.unit.raft.bench import (
    Bench,
    directory_of,
    node,
    voter_set,
)


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


def supports(lowest: int = 0, highest: int = 1, error_code: int = 0) -> ApiVersionsResponse:
    features = [
        SupportedFeatureKey(name="metadata.version", min_version=1, max_version=20),
        SupportedFeatureKey(name=KRAFT_VERSION_FEATURE, min_version=lowest, max_version=highest),
    ]
    return ApiVersionsResponse(error_code=error_code, supported_features=features)


def probing_bench() -> tuple[Bench, SendRequest, int]:
    """A leader that asks node 4 what it supports, and the token of the one who wants it in."""
    bench = committed_bench()
    bench.fetch(4)
    assert bench.receive(added(4)) is None
    return bench, bench.sent(ApiVersionsRequest)[0][0], bench.last_token


# --- Adding ---


def test_rule_8_a_new_voter_counts_when_its_record_is_appended() -> None:
    bench, probe, token = probing_bench()

    bench.reply(probe, supports())

    assert bench.core.voters == voter_set(1, 2, 3, 4)
    assert len(bench.of(AppendToLog)) == 1
    assert bench.answer_to(token) is None


def test_rule_8_a_leader_that_was_alone_for_long_stays_it_when_a_second_voter_comes() -> None:
    bench = Bench([1])
    bench.wait(60_000)
    bench.fetch(2)
    bench.receive(added(2))

    bench.reply(bench.sent(ApiVersionsRequest)[0][0], supports())
    bench.wait(1)

    assert bench.core.voters.ids == [1, 2]
    assert bench.core.role is Role.LEADER


def test_rule_8_an_addition_is_done_when_a_majority_of_the_new_set_has_it() -> None:
    bench, probe, token = probing_bench()
    bench.reply(probe, supports())

    bench.replicate(2)
    early = bench.answer_to(token)
    bench.replicate(4)

    assert early is None
    assert error_of(bench.answer_to(token)) == 0


def test_rule_8_who_does_not_want_to_wait_is_answered_at_the_append() -> None:
    bench = committed_bench()
    bench.fetch(4)
    request = added(4)
    request.ack_when_committed = False
    bench.receive(request)
    token = bench.last_token

    bench.reply(bench.sent(ApiVersionsRequest)[0][0], supports())

    assert error_of(bench.answer_to(token)) == 0
    bench.replicate(2, 4)
    assert bench.receive(added(5)) is None


def test_rule_8_what_was_submitted_before_stands_before_the_new_set() -> None:
    bench, probe, _ = probing_bench()
    bench.step(Submit("s", 1, [b"a"]))
    bench.step(Submit("t", 1, [b"b"]))

    bench.reply(probe, supports())

    ends = [(each.base_offset, each.end_offset) for each in bench.of(AppendToLog)]
    assert ends == [(4, 5), (5, 6)]
    assert bench.core.history.voters.last_offset == 5


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (supports(error_code=35), RequestTimedOut.code),
        (supports(0, 0), InvalidRequest.code),
        (ApiVersionsResponse(), InvalidRequest.code),
    ],
)
def test_rule_8_a_new_voter_must_support_what_the_cluster_has(
    response: ApiVersionsResponse, code: int
) -> None:
    bench, probe, token = probing_bench()

    bench.reply(probe, response)

    assert error_of(bench.answer_to(token)) == code
    assert bench.core.voters == voter_set(1, 2, 3)


def test_rule_8_a_new_voter_must_have_caught_up() -> None:
    bench = committed_bench()
    bench.fetch(5, offset=0, epoch=0)
    for node_id in (4, 5):
        bench.receive(added(node_id))
        token = bench.last_token
        bench.reply(bench.sent(ApiVersionsRequest)[0][0], supports())
        assert error_of(bench.answer_to(token)) == RequestTimedOut.code


def test_rule_8_a_new_voter_that_does_not_answer_is_not_added() -> None:
    bench, probe, token = probing_bench()

    bench.fail(probe)

    assert error_of(bench.answer_to(token)) == RequestTimedOut.code


def test_rule_8_the_failure_of_a_voter_that_was_given_up_does_not_matter() -> None:
    bench = committed_bench()
    bench.fetch(4)
    request = added(4)
    request.timeout_ms = 100
    bench.receive(request)
    probe, token = bench.sent(ApiVersionsRequest)[0][0], bench.last_token
    bench.wait(100)
    assert error_of(bench.answer_to(token)) == RequestTimedOut.code

    bench.fail(probe)

    assert bench.answer_to(token) is None


def test_rule_8_an_addition_is_given_up_after_its_timeout() -> None:
    bench, probe, token = probing_bench()
    bench.replicate(2, 3)

    bench.wait(2_000)
    assert error_of(bench.answer_to(token)) == RequestTimedOut.code
    bench.reply(probe, supports())

    assert bench.core.voters == voter_set(1, 2, 3)


def test_rule_8_an_answer_that_nobody_waits_for_adds_nobody() -> None:
    bench, probe, _ = probing_bench()
    bench.reply(probe, supports())
    before = bench.core.outline.end_offset

    bench.core._membership.handle_api_versions_response(4, supports())
    bench.core._membership.handle_api_versions_response(9, supports())

    assert bench.core.outline.end_offset == before


def test_rule_8_an_id_that_votes_cannot_be_added_even_with_another_disk() -> None:
    bench = committed_bench()
    request = added(3)
    request.voter_directory_id = directory_of(9)

    response = bench.receive(request)

    assert error_of(response) == DuplicateVoter.code
    assert isinstance(response, AddRaftVoterResponse)
    assert "[1, 2, 3]" in (response.error_message or "")


@pytest.mark.parametrize("fault", ["id", "directory", "listener", "cluster"])
def test_rule_8_a_new_voter_needs_an_id_a_directory_and_our_listener(fault: str) -> None:
    bench = committed_bench()
    request = added(4)
    if fault == "id":
        request.voter_id = -1
    elif fault == "directory":
        request.voter_directory_id = Uuid.ZERO
    elif fault == "listener":
        request.listeners[0].name = "PLAINTEXT"
    else:
        request.cluster_id = "another"

    code = InconsistentClusterId.code if fault == "cluster" else InvalidRequest.code
    assert error_of(bench.receive(request)) == code


def test_rule_8_a_new_voter_that_failed_a_moment_ago_is_not_asked_again_yet() -> None:
    bench, probe, _ = probing_bench()
    bench.fail(probe)

    assert error_of(bench.receive(added(4))) == RequestTimedOut.code


# --- One at a time ---


def test_rule_8_only_one_change_at_a_time() -> None:
    bench, _, _ = probing_bench()

    assert error_of(bench.receive(added(5))) == RequestTimedOut.code
    assert error_of(bench.receive(removed(3))) == RequestTimedOut.code


def test_rule_8_the_next_change_waits_for_the_commit_of_the_last() -> None:
    bench = committed_bench()
    bench.receive(removed(3))
    token = bench.last_token
    bench.wait(2_000)

    assert error_of(bench.answer_to(token)) == RequestTimedOut.code
    assert error_of(bench.receive(added(4))) == RequestTimedOut.code


def test_rule_8_no_change_before_a_record_of_the_epoch_is_committed() -> None:
    bench = Bench()
    bench.lead()

    assert error_of(bench.receive(added(4))) == RequestTimedOut.code


def test_rule_8_only_a_leader_changes_voters() -> None:
    bench = Bench()
    bench.follow()

    assert error_of(bench.receive(added(4))) == NotLeaderOrFollower.code
    assert error_of(bench.receive(removed(3))) == NotLeaderOrFollower.code


def test_rule_8_a_change_ends_with_the_leadership() -> None:
    bench, _, token = probing_bench()

    bench.follow(leader_id=3, epoch=7)

    assert error_of(bench.answer_to(token)) == NotLeaderOrFollower.code


# --- Removing ---


def test_rule_8_a_removed_voter_no_longer_counts() -> None:
    bench = committed_bench()
    bench.receive(removed(3))
    token = bench.last_token

    bench.replicate(2)

    assert error_of(bench.answer_to(token)) == 0
    assert bench.core.voters == voter_set(1, 2)


def test_rule_8_a_stranger_or_another_disk_cannot_be_removed() -> None:
    bench = committed_bench()

    assert error_of(bench.receive(removed(9))) == VoterNotFound.code
    assert error_of(bench.receive(removed(3, directory_of(9)))) == VoterNotFound.code


def test_rule_8_the_last_voter_stays() -> None:
    bench = Bench(voters=[1])

    assert error_of(bench.receive(removed(1))) == VoterNotFound.code


def test_rule_8_a_leader_that_removes_itself_resigns_when_that_is_committed() -> None:
    bench = committed_bench()
    bench.receive(removed(1))
    token = bench.last_token
    bench.replicate(2)
    before = bench.core.role

    bench.replicate(3)

    assert before is Role.LEADER
    assert bench.core.role is Role.RESIGNED
    assert error_of(bench.answer_to(token)) == 0
    assert [sent.peer.id for sent, _ in bench.sent(EndQuorumEpochRequest)] == [2, 3]
