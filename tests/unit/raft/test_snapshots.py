"""The rest of rule 6: snapshots made, served, fetched, and what they replace."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InconsistentClusterId,
    InvalidArgument,
    InvalidRequest,
    NotLeaderOrFollower,
    PositionOutOfRange,
    QuorumFault,
    SnapshotNotFound,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages import (
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from millstream.raft import wire_requests, wire_responses
from millstream.raft.effects import (
    DeleteBefore,
    InstallSnapshot,
    RespondWithSnapshot,
    SendRequest,
    Warn,
    WriteSnapshotChunk,
)
from millstream.raft.events import PruneLog, SnapshotCreated, SnapshotInstalled
from millstream.raft.log_outline import BOOTSTRAP_SNAPSHOT
from millstream.raft.states import Follower, Role
from millstream.raft.wire_responses import LeaderFacts
from millstream.types import OffsetAndEpoch
from tests.unit.raft.bench import Bench, endpoint_of, fetched, key_of, node, voter_set

SNAPSHOT = OffsetAndEpoch(1, 9)


# --- Our own ---


def test_a_snapshot_of_committed_records_is_kept() -> None:
    bench = Bench(log=[1, 1, 1], high_watermark=2)

    bench.step(SnapshotCreated(OffsetAndEpoch(1, 2), 100))

    assert bench.core.outline.snapshots == {OffsetAndEpoch(1, 2): 100}


@pytest.mark.parametrize("snapshot_id", [OffsetAndEpoch(1, 3), OffsetAndEpoch(2, 2)])
def test_a_snapshot_of_anything_else_is_refused(snapshot_id: OffsetAndEpoch) -> None:
    bench = Bench(log=[1, 1, 1], high_watermark=2)

    with pytest.raises(InvalidArgument):
        bench.step(SnapshotCreated(snapshot_id, 100))


def test_the_log_below_a_snapshot_can_be_dropped() -> None:
    bench = Bench(log=[1, 1, 1], high_watermark=3)
    bench.core.history.add(0, voter_set(1, 2))
    bench.core.history.add(2, voter_set(1, 2, 3))
    bench.step(SnapshotCreated(OffsetAndEpoch(1, 1), 50))
    bench.step(SnapshotCreated(OffsetAndEpoch(1, 2), 100))

    bench.step(PruneLog(OffsetAndEpoch(1, 2)))

    assert bench.effects == [DeleteBefore(OffsetAndEpoch(1, 2))]
    assert bench.core.outline.start_offset == 2
    assert bench.core.history.voters.at(1) == voter_set(1, 2)
    bench.step(PruneLog(OffsetAndEpoch(1, 2)))
    assert bench.effects == []


def test_a_snapshot_that_is_older_than_the_log_is_too_late() -> None:
    bench = Bench(log=[1, 1, 1], high_watermark=3)
    bench.step(SnapshotCreated(OffsetAndEpoch(1, 2), 100))
    bench.step(PruneLog(OffsetAndEpoch(1, 2)))

    bench.step(SnapshotCreated(OffsetAndEpoch(1, 1), 50))

    assert bench.core.outline.snapshots == {OffsetAndEpoch(1, 2): 100}


def test_without_a_snapshot_nothing_is_dropped() -> None:
    bench = Bench(log=[1], high_watermark=1)

    with pytest.raises(InvalidArgument, match="no snapshot"):
        bench.step(PruneLog(OffsetAndEpoch(1, 1)))


# --- For others ---


def serving_bench() -> Bench:
    bench = Bench(log=[1] * 9, high_watermark=9)
    bench.lead()
    bench.step(SnapshotCreated(SNAPSHOT, 100))
    return bench


def asked(bench: Bench, position: int = 0, epoch: int | None = None) -> FetchSnapshotRequest:
    current = bench.core.epoch if epoch is None else epoch
    return wire_requests.fetch_snapshot_request(node(2), current, SNAPSHOT, position)


def error_of(response: object) -> int:
    assert isinstance(response, FetchSnapshotResponse)
    return response.error_code or response.topics[0].partitions[0].error_code


def test_a_piece_of_a_snapshot_is_served() -> None:
    bench = serving_bench()

    response = bench.receive(asked(bench, position=40))

    assert isinstance(response, FetchSnapshotResponse)
    (effect,) = bench.of(RespondWithSnapshot)
    partition = response.topics[0].partitions[0]
    assert (effect.snapshot_id, effect.position, effect.bytes_max) == (SNAPSHOT, 40, 1 << 20)
    assert (partition.size, partition.position) == (100, 40)
    assert (partition.snapshot_id.epoch, partition.snapshot_id.end_offset) == (1, 9)
    assert response.node_endpoints[0].node_id == 1


def test_fetching_a_snapshot_counts_for_check_quorum() -> None:
    bench = serving_bench()
    bench.wait(2_900)
    bench.receive(asked(bench))

    bench.wait(2_999)

    assert bench.core.role is Role.LEADER


@pytest.mark.parametrize("position", [-1, 100])
def test_a_position_outside_a_snapshot_is_refused(position: int) -> None:
    bench = serving_bench()

    assert error_of(bench.receive(asked(bench, position))) == PositionOutOfRange.code


def test_an_unknown_snapshot_is_not_found_and_the_bootstrap_snapshot_never_is() -> None:
    bench = serving_bench()
    bench.core.outline.snapshots[BOOTSTRAP_SNAPSHOT] = 10
    unknown, bootstrap = asked(bench), asked(bench)
    unknown.topics[0].partitions[0].snapshot_id.end_offset = 7
    bootstrap.topics[0].partitions[0].snapshot_id.end_offset = 0
    bootstrap.topics[0].partitions[0].snapshot_id.epoch = 0

    assert error_of(bench.receive(unknown)) == SnapshotNotFound.code
    assert error_of(bench.receive(bootstrap)) == SnapshotNotFound.code


def test_only_the_leader_of_the_epoch_serves_snapshots() -> None:
    bench = serving_bench()
    follower = Bench()
    follower.follow(epoch=2)

    assert error_of(bench.receive(asked(bench, epoch=1))) == FencedLeaderEpoch.code
    assert error_of(follower.receive(asked(follower))) == NotLeaderOrFollower.code


def test_other_clusters_and_partitions_are_refused() -> None:
    bench = serving_bench()
    foreign, other, none = asked(bench), asked(bench), asked(bench)
    foreign.cluster_id = "another"
    other.topics[0].name = "orders"
    none.topics = []

    assert error_of(bench.receive(foreign)) == InconsistentClusterId.code
    assert error_of(bench.receive(other)) == UnknownTopicOrPartition.code
    assert error_of(bench.receive(none)) == InvalidRequest.code


# --- From the leader ---


def downloading_bench(**options: object) -> tuple[Bench, SendRequest]:
    """A follower that was told to take a snapshot, and its first request for it."""
    bench = Bench(**options)  # type: ignore[arg-type]  # passed through
    bench.follow()
    bench.reply(bench.sent(FetchRequest)[0][0], fetched(snapshot_id=SNAPSHOT))
    return bench, bench.sent(FetchSnapshotRequest)[0][0]


def piece(
    data: bytes = b"12345",
    *,
    position: int = 0,
    size: int = 8,
    snapshot_id: OffsetAndEpoch = SNAPSHOT,
    error_code: int = 0,
) -> FetchSnapshotResponse:
    response = wire_responses.fetch_snapshot_response(
        LeaderFacts(1, 2, endpoint_of(2)),
        1,
        error_code,
        snapshot_id=snapshot_id,
        size=size,
        position=position,
    )
    response.topics[0].partitions[0].unaligned_records = data
    return response


def test_rule_6_a_snapshot_is_fetched_piece_by_piece_and_takes_the_place_of_the_log() -> None:
    bench, sent = downloading_bench(log=[1, 1])

    bench.reply(sent, piece(b"12345"))
    assert bench.of(WriteSnapshotChunk) == [WriteSnapshotChunk(SNAPSHOT, 0, b"12345")]
    (second, request) = bench.sent(FetchSnapshotRequest)[0]
    assert request.topics[0].partitions[0].position == 5
    bench.reply(second, piece(b"678", position=5))

    assert bench.effects == [
        WriteSnapshotChunk(SNAPSHOT, 5, b"678"),
        InstallSnapshot(SNAPSHOT, 8),
    ]
    assert bench.core.outline.end == SNAPSHOT
    assert bench.sent(FetchRequest) == []


def test_rule_6_the_voters_of_the_snapshot_are_the_voters_then() -> None:
    bench, sent = downloading_bench()
    bench.reply(sent, piece(b"12345678"))

    bench.step(SnapshotInstalled(SNAPSHOT, 8, 1, voter_set(1, 2, 3, 4)))

    assert bench.core.voters == voter_set(1, 2, 3, 4)
    assert bench.core.history.voters.last_offset == 8
    (_, request) = bench.sent(FetchRequest)[0]
    assert request.topics[0].partitions[0].fetch_offset == 9


def test_a_snapshot_without_voters_leaves_the_static_ones() -> None:
    bench, sent = downloading_bench(kraft_version=0)
    bench.reply(sent, piece(b"12345678"))

    bench.step(SnapshotInstalled(SNAPSHOT, 8, 0, None))

    assert bench.core.voters.ids == [1, 2, 3]
    assert bench.core.kraft_version == 0


def test_an_installed_snapshot_counts_even_if_the_role_has_changed_since() -> None:
    bench, sent = downloading_bench()
    bench.reply(sent, piece(b"12345678"))
    bench.receive(bench.vote(epoch=5, last_epoch=4, last_offset=20))

    bench.step(SnapshotInstalled(SNAPSHOT, 8, 1, voter_set(1, 2, 3, 4)))

    assert bench.core.voters == voter_set(1, 2, 3, 4)


@pytest.mark.parametrize("code", [SnapshotNotFound.code, PositionOutOfRange.code])
def test_a_snapshot_that_is_gone_is_given_up_for_what_the_next_fetch_says(code: int) -> None:
    bench, sent = downloading_bench()

    bench.reply(sent, piece(error_code=code))

    assert len(bench.sent(FetchRequest)) == 1


@pytest.mark.parametrize(
    "response",
    [
        piece(position=3),
        piece(snapshot_id=OffsetAndEpoch(1, 8)),
        piece(b""),
        piece(b"123456789"),
    ],
)
def test_a_wrong_piece_is_reported_and_the_download_begins_anew(
    response: FetchSnapshotResponse,
) -> None:
    bench, sent = downloading_bench()

    bench.reply(sent, response)

    assert len(bench.of(Warn)) == 1
    assert isinstance(bench.core.state, Follower)
    assert bench.core.state.download is None


@pytest.mark.parametrize(
    "response",
    [FetchSnapshotResponse(error_code=1), piece(error_code=NotLeaderOrFollower.code)],
)
def test_an_answer_with_another_error_is_followed_by_another_try(
    response: FetchSnapshotResponse,
) -> None:
    bench, sent = downloading_bench()

    bench.reply(sent, response)
    bench.wait(20)

    assert len(bench.sent(FetchSnapshotRequest)) == 1


def test_an_answer_without_a_leader_is_of_no_use() -> None:
    bench, sent = downloading_bench()
    response = piece()
    response.topics[0].partitions[0].current_leader = None

    bench.reply(sent, response)

    assert bench.of(WriteSnapshotChunk) == []


def test_a_piece_nobody_waits_for_is_dropped() -> None:
    bench, sent = downloading_bench()
    assert isinstance(bench.core.state, Follower)
    bench.core.state.download = None

    bench.reply(sent, piece())

    assert bench.of(WriteSnapshotChunk) == []


def test_pieces_keep_a_follower_from_an_election() -> None:
    bench, sent = downloading_bench()
    bench.wait(1_900)
    bench.reply(sent, piece())

    bench.wait(1_900)

    assert bench.core.role is Role.FOLLOWER


def test_a_snapshot_below_what_is_committed_is_a_fault_of_the_quorum() -> None:
    bench, sent = downloading_bench(log=[1] * 12, high_watermark=10)

    with pytest.raises(QuorumFault):
        bench.reply(sent, piece(b"12345678"))


def test_the_first_fetch_of_an_empty_log_names_our_directory() -> None:
    _, sent = downloading_bench()

    request = sent.message
    assert isinstance(request, FetchSnapshotRequest)
    assert request.replica_id == 1
    assert request.topics[0].partitions[0].replica_directory_id == key_of(1).directory_id
