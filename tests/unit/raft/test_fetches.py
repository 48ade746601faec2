"""Rule 6, the leader's side: answering fetches."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidRequest,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from millstream.protocol.messages import FetchResponse
from millstream.raft import wire_requests
from millstream.raft.effects import (
    Respond,
    RespondWithRecords,
)
from millstream.raft.events import Submit
from millstream.raft.leading import OBSERVER_SESSION_MS
from millstream.raft.voters import ReplicaKey
from millstream.types import OffsetAndEpoch, Uuid
from tests.unit.raft.bench import (
    Bench,
    key_of,
    node,
    outline_of,
)


def partition_of(response: object) -> tuple[int, int, int]:
    """Error code, high watermark and leader's epoch of a fetch response."""
    assert isinstance(response, FetchResponse)
    partition = response.responses[0].partitions[0]
    assert partition.current_leader is not None
    return partition.error_code, partition.high_watermark, partition.current_leader.leader_epoch


def leading_bench(**options: object) -> Bench:
    bench = Bench(**options)  # type: ignore[arg-type]  # passed through
    bench.lead()
    return bench


def committed_bench() -> Bench:
    bench = leading_bench()
    bench.replicate(2)
    return bench


# --- Rule 6: fetches ---


def test_rule_6_a_fetch_is_answered_with_what_follows() -> None:
    bench = committed_bench()

    bench.fetch(3, offset=0, epoch=0)

    (answer,) = bench.of(RespondWithRecords)
    assert (answer.offset, answer.bytes_max) == (0, 1 << 20)
    assert partition_of(answer.message) == (0, 3, 1)


def test_rule_6_a_fetch_at_the_end_waits_for_records() -> None:
    bench = committed_bench()
    bench.wait(100)
    assert bench.fetch(2, high_watermark=3) is None
    token = bench.last_token

    bench.step(Submit("s", 1, [b"a"]))

    assert bench.answer_to(token) is not None
    assert bench.of(RespondWithRecords)[0].offset == 3


def test_rule_6_a_fetch_waits_for_the_high_watermark_too() -> None:
    bench = committed_bench()
    bench.wait(100)
    bench.step(Submit("s", 1, [b"a"]))
    assert bench.fetch(3, high_watermark=4) is None

    response = bench.fetch(2, high_watermark=3)

    assert partition_of(response) == (0, 4, 1)


def test_rule_6_a_fetch_waits_half_a_second_at_most() -> None:
    bench = committed_bench()
    bench.wait(100)
    bench.fetch(2, high_watermark=3)
    token = bench.last_token

    bench.wait(499)
    early = bench.answer_to(token)
    bench.wait(1)

    assert early is None
    assert partition_of(bench.answer_to(token)) == (0, 3, 1)


def test_a_replica_that_asks_again_has_its_older_fetch_answered() -> None:
    bench = committed_bench()
    bench.fetch(2, high_watermark=3)
    token = bench.last_token

    assert bench.fetch(2, high_watermark=3) is None

    assert partition_of(bench.answer_to(token)) == (0, 3, 1)


def test_fetches_without_a_replica_wait_side_by_side_and_are_not_remembered() -> None:
    bench = committed_bench()
    leader = bench.lead()

    for _ in range(2):
        request = wire_requests.fetch_request(node(2), 1, bench.core.outline.end, 3)
        assert request.replica_state is not None
        request.replica_state.replica_id = -1
        assert bench.receive(request) is None

    assert len(leader.fetches) == 2
    assert all(key.id >= 0 for key in leader.observers)


def test_rule_6_a_diverging_log_is_told_where() -> None:
    bench = leading_bench(log=[1, 1, 3])

    response = bench.fetch(2, offset=9, epoch=2)

    assert isinstance(response, FetchResponse)
    diverging = response.responses[0].partitions[0].diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (1, 2)


def test_rule_6_what_is_no_longer_in_the_log_is_in_a_snapshot() -> None:
    outline = outline_of(1, 1, 1, high_watermark=3)
    outline.snapshots = {OffsetAndEpoch(1, 2): 10}
    outline.trim_before(OffsetAndEpoch(1, 2))
    bench = leading_bench(outline=outline)

    response = bench.fetch(2, offset=0, epoch=0)

    assert isinstance(response, FetchResponse)
    snapshot_id = response.responses[0].partitions[0].snapshot_id
    assert snapshot_id is not None
    assert (snapshot_id.epoch, snapshot_id.end_offset) == (1, 2)


@pytest.mark.parametrize(
    ("current", "code"), [(0, FencedLeaderEpoch.code), (2, UnknownLeaderEpoch.code)]
)
def test_rule_6_a_fetch_of_another_epoch_is_refused(current: int, code: int) -> None:
    bench = committed_bench()

    assert partition_of(bench.fetch(2, offset=0, epoch=0, current=current)) == (code, -1, 1)


def test_rule_6_who_does_not_lead_says_who_does() -> None:
    bench = Bench()
    bench.follow(leader_id=2, epoch=4)

    response = bench.fetch(3, offset=0, epoch=0)

    assert partition_of(response) == (NotLeaderOrFollower.code, -1, 4)
    assert isinstance(response, FetchResponse)
    assert response.node_endpoints[0].node_id == 2


def test_a_waiting_fetch_learns_that_the_leader_is_gone() -> None:
    bench = committed_bench()
    bench.fetch(2, high_watermark=3)
    token = bench.last_token

    bench.follow(leader_id=3, epoch=5)

    response = next(each.message for each in bench.of(Respond) if each.token == token)
    assert partition_of(response)[0] == FencedLeaderEpoch.code


@pytest.mark.parametrize("fault", ["wait", "offset", "epoch", "future epoch"])
def test_rule_6_impossible_fetches_are_invalid(fault: str) -> None:
    bench = committed_bench()
    request = wire_requests.fetch_request(node(2), 1, bench.core.outline.end, 0)
    partition = request.topics[0].partitions[0]
    if fault == "wait":
        request.max_wait_ms = -1
    elif fault == "offset":
        partition.fetch_offset = -1
    elif fault == "epoch":
        partition.last_fetched_epoch = -1
    else:
        partition.last_fetched_epoch = 2

    assert partition_of(bench.receive(request))[0] == InvalidRequest.code


@pytest.mark.parametrize("version", [12, 18])
def test_rule_6_any_other_partition_is_invalid(version: int) -> None:
    bench = committed_bench()
    request = wire_requests.fetch_request(node(2), 1, bench.core.outline.end, 0)
    request.topics[0].topic, request.topics[0].topic_id = "orders", Uuid.ZERO

    response = bench.receive(request, version=version)

    assert isinstance(response, FetchResponse)
    assert response.error_code == InvalidRequest.code


def test_rule_6_another_cluster_is_refused() -> None:
    bench = committed_bench()
    request = wire_requests.fetch_request(node(2), 1, bench.core.outline.end, 0)
    request.cluster_id = "another"

    response = bench.receive(request)

    assert isinstance(response, FetchResponse)
    assert response.error_code == InconsistentClusterId.code


def test_an_old_version_names_the_replica_elsewhere_and_has_no_room_for_the_leader() -> None:
    bench = committed_bench()
    leader = bench.lead()
    request = wire_requests.fetch_request(node(2), 1, bench.core.outline.end, 0)
    request.replica_state, request.replica_id = None, 7
    request.topics[0].partitions[0].replica_directory_id = Uuid.ZERO

    bench.receive(request, version=12)
    request.topics[0].partitions[0].last_fetched_epoch = -1
    response = bench.receive(request, version=11)

    assert ReplicaKey(7) in leader.observers
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].current_leader is None


def test_observers_that_fetch_no_more_are_forgotten() -> None:
    bench = Bench(voters=[1])
    leader = bench.lead()
    bench.fetch(7)
    bench.wait(OBSERVER_SESSION_MS)
    bench.fetch(8)
    assert set(leader.observers) == {key_of(7), key_of(8)}

    bench.wait(1)
    bench.fetch(8)

    assert set(leader.observers) == {key_of(8)}
