"""Rule 6, the follower's side: fetching, appending, truncating, finding the leader."""

from __future__ import annotations

import pytest

from millstream.errors import NotLeaderOrFollower, QuorumFault, UnknownLeaderEpoch
from millstream.protocol.messages import FetchRequest, FetchResponse
from millstream.raft import batches
from millstream.raft.config import QuorumConfig
from millstream.raft.effects import (
    AdvanceHighWatermark,
    AppendToLog,
    ChangeLeadership,
    FlushLog,
    SendRequest,
    TruncateLog,
    Warn,
)
from millstream.raft.events import LogFlushed
from millstream.raft.states import Role, Unattached
from millstream.types import OffsetAndEpoch, Uuid
from tests.unit.raft.bench import Bench, fetched, key_of, node, records_at, voter_set


def following_bench(**options: object) -> tuple[Bench, SendRequest]:
    """A follower of node 2 in epoch 1, and the fetch it has sent."""
    bench = Bench(**options)  # type: ignore[arg-type]  # passed through
    bench.follow()
    return bench, bench.sent(FetchRequest)[0][0]


def test_a_follower_fetches_from_the_end_of_its_log() -> None:
    bench, sent = following_bench(log=[1, 1], high_watermark=1)

    request = sent.message
    assert isinstance(request, FetchRequest)
    partition = request.topics[0].partitions[0]
    assert sent.peer.id == 2
    assert request.topics[0].topic_id == Uuid.METADATA_TOPIC
    assert request.replica_state is not None
    assert request.replica_state.replica_id == 1
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (2, 1)
    assert partition.current_leader_epoch == 1
    assert partition.high_watermark == 1
    assert partition.replica_directory_id == key_of(1).directory_id
    assert request.max_wait_ms == 500
    assert bench.core.next_deadline_ms() is not None


def test_records_are_appended_and_flushed_before_the_next_fetch_acknowledges_them() -> None:
    bench, sent = following_bench()
    bench.flushes = False

    bench.reply(sent, fetched(records_at(0, 1, b"a", b"b"), high_watermark=1))
    appended = [type(each) for each in bench.effects]
    bench.step(LogFlushed(1))

    assert appended == [AppendToLog, FlushLog, AdvanceHighWatermark]
    (_, request) = bench.sent(FetchRequest)[0]
    assert request.topics[0].partitions[0].fetch_offset == 2


def test_the_high_watermark_stays_within_our_log_and_never_goes_back() -> None:
    bench, sent = following_bench()

    bench.reply(sent, fetched(records_at(0, 1), high_watermark=9))
    assert bench.of(AdvanceHighWatermark) == [AdvanceHighWatermark(1)]
    bench.reply(bench.sent(FetchRequest)[0][0], fetched(high_watermark=0))

    assert bench.of(AdvanceHighWatermark) == []
    assert bench.core.outline.high_watermark == 1


def test_a_voters_record_counts_when_it_is_appended() -> None:
    bench, sent = following_bench()
    record = batches.voters_record(voter_set(1, 2, 3, 4))

    bench.reply(sent, fetched(batches.control_batch(0, 1, 0, [record])))

    assert bench.core.voters == voter_set(1, 2, 3, 4)


def test_rule_6_a_diverging_follower_truncates_and_fetches_again() -> None:
    bench, sent = following_bench(log=[1, 1, 1])

    bench.reply(sent, fetched(diverging=OffsetAndEpoch(1, 1)))

    assert bench.of(TruncateLog) == [TruncateLog(1)]
    (_, request) = bench.sent(FetchRequest)[0]
    assert request.topics[0].partitions[0].fetch_offset == 1


def test_a_truncated_voters_record_no_longer_counts() -> None:
    bench, sent = following_bench()
    record = batches.voters_record(voter_set(1, 2, 3, 4))
    bench.reply(sent, fetched(batches.control_batch(0, 1, 0, [record])))

    bench.reply(bench.sent(FetchRequest)[0][0], fetched(diverging=OffsetAndEpoch(0, 0)))

    assert bench.core.voters == voter_set(1, 2, 3)


@pytest.mark.parametrize("diverging", [OffsetAndEpoch(1, 1), OffsetAndEpoch(1, 3)])
def test_rule_6_what_was_committed_is_never_truncated(diverging: OffsetAndEpoch) -> None:
    bench, sent = following_bench(log=[1, 1, 1], high_watermark=2)

    with pytest.raises(QuorumFault, match="committed"):
        bench.reply(sent, fetched(diverging=diverging))

    assert bench.wait(10_000) == []
    assert bench.core.next_deadline_ms() is None


def test_a_flush_that_began_before_a_truncation_acknowledges_nothing() -> None:
    bench, sent = following_bench(log=[1, 1])
    bench.flushes = False
    bench.reply(sent, fetched(records_at(2, 1)))
    (old,) = bench.of(FlushLog)
    bench.follow(leader_id=3, epoch=2)
    bench.core._replica.outline.truncate_to(1)
    bench.core._replica.forget_flush()

    bench.step(LogFlushed(old.flush_id))

    assert bench.core.outline.flushed_offset == 1


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "records",
    [
        damaged(records_at(0, 1)),
        records_at(5, 1),
        records_at(0, 2),
        bytes(16) + b"\x07" + bytes(60),
    ],
)
def test_records_that_do_not_fit_are_refused_and_asked_for_again(records: bytes) -> None:
    bench, sent = following_bench()
    deadline_ms = bench.core.state.fetch_deadline_ms  # type: ignore[union-attr]  # a follower
    bench.wait(10)

    bench.reply(sent, fetched(records, high_watermark=9))

    assert bench.of(AppendToLog) == []
    assert len(bench.of(Warn)) == 1
    assert bench.core.outline.end_offset == 0
    assert bench.core.state.fetch_deadline_ms == deadline_ms  # type: ignore[union-attr]


def test_the_good_batches_before_a_bad_one_are_kept() -> None:
    bench, sent = following_bench()
    good = records_at(0, 1)

    bench.reply(sent, fetched(good + damaged(records_at(1, 1))))

    (appended,) = bench.of(AppendToLog)
    assert bytes(appended.batches) == good
    assert bench.core.outline.end_offset == 1


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    bench, sent = following_bench()

    bench.reply(sent, fetched(records_at(0, 1) + records_at(1, 1)[:-1]))

    assert bench.core.outline.end_offset == 1
    assert bench.of(Warn) == []


def test_an_answer_to_a_fetch_of_another_place_is_dropped() -> None:
    bench, sent = following_bench(log=[1])
    bench.core.outline.truncate_to(0)

    bench.reply(sent, fetched(records_at(1, 1)))

    assert bench.of(AppendToLog) == []


def test_a_leader_that_has_lost_its_office_says_who_has_it() -> None:
    bench, sent = following_bench()

    bench.reply(sent, fetched(leader_id=3, epoch=2, error_code=NotLeaderOrFollower.code))

    assert bench.core.leader_id == 3
    assert bench.of(ChangeLeadership) == [ChangeLeadership(3, 2)]
    assert [each.peer.id for each, _ in bench.sent(FetchRequest)] == [3]


@pytest.mark.parametrize(
    "response",
    [
        FetchResponse(error_code=1),
        fetched(error_code=UnknownLeaderEpoch.code),
        fetched(epoch=0, error_code=UnknownLeaderEpoch.code),
        fetched(leader_id=3),
    ],
)
def test_after_a_useless_answer_somebody_else_is_asked_for_the_leader(
    response: FetchResponse,
) -> None:
    bench, sent = following_bench()

    bench.reply(sent, response)

    assert [each.peer.id for each, _ in bench.sent(FetchRequest)] == [3]
    assert bench.core.leader_id == 2


def test_an_answer_that_names_no_leader_at_all_is_of_no_use() -> None:
    bench, sent = following_bench()
    response = fetched()
    response.responses[0].partitions[0].current_leader = None

    bench.reply(sent, response)

    assert bench.core.leader_id == 2


def test_while_the_leader_cannot_be_reached_others_are_asked_one_at_a_time() -> None:
    bench, sent = following_bench()

    bench.fail(sent)
    (asked, _) = bench.sent(FetchRequest)[0]
    bench.wait(1)
    assert bench.sent(FetchRequest) == []
    bench.reply(asked, fetched(error_code=NotLeaderOrFollower.code))
    bench.wait(19)

    assert [each.peer.id for each, _ in bench.sent(FetchRequest)] == [2]


def test_a_fetch_without_an_answer_is_given_up_after_the_request_timeout() -> None:
    bench, _ = following_bench(voters=[2, 3])

    bench.wait(2_000)

    assert [each.peer.id for each, _ in bench.sent(FetchRequest)] == [3]


def test_an_unattached_replica_looks_for_the_leader() -> None:
    bench = Bench(log=[3])
    (sent, request) = bench.sent(FetchRequest)[0]
    assert request.topics[0].partitions[0].current_leader_epoch == 3

    bench.reply(sent, fetched(leader_id=3, epoch=4, error_code=1))

    assert bench.core.role is Role.FOLLOWER
    assert bench.core.leader_id == 3


def test_records_that_come_before_we_follow_are_not_taken() -> None:
    bench = Bench()
    (sent, _) = bench.sent(FetchRequest)[0]

    bench.reply(sent, fetched(records_at(0, 0), leader_id=2, epoch=0))

    assert bench.core.role is Role.FOLLOWER
    assert bench.of(AppendToLog) == []


def test_an_unattached_replica_that_hears_nothing_new_keeps_looking() -> None:
    bench = Bench()
    (sent, _) = bench.sent(FetchRequest)[0]
    response = fetched(leader_id=-1, epoch=0)

    bench.reply(sent, response)

    assert isinstance(bench.core.state, Unattached)
    assert bench.of(AppendToLog) == []


def test_bootstrap_servers_are_asked_where_no_voter_is_known_but_never_ourselves() -> None:
    servers = ("host1:9001", "host7:9007")
    bench = Bench(voters=[], config=QuorumConfig(bootstrap_servers=servers))

    ((sent, _),) = bench.sent(FetchRequest)

    assert sent.peer.id < 0
    assert str(sent.peer.endpoint) == "host7:9007"


def test_a_bootstrap_server_that_leads_is_as_good_as_the_leader() -> None:
    servers = ("host7:9007",)
    bench = Bench(voters=[], config=QuorumConfig(bootstrap_servers=servers))
    ((sent, _),) = bench.sent(FetchRequest)

    bench.reply(sent, fetched(leader_id=7, epoch=2, error_code=UnknownLeaderEpoch.code))

    assert bench.core.leader_id == 7


def test_an_observer_never_stands_for_election() -> None:
    bench, _ = following_bench(voters=[2, 3], local=node(1, is_controller=False))

    for _ in range(20):
        bench.wait(1_000)

    assert bench.core.role is Role.FOLLOWER


def test_an_observer_without_a_leader_waits_for_answers_only() -> None:
    bench = Bench(voters=[2, 3])

    for _ in range(20):
        bench.wait(1_000)

    assert bench.core.role is Role.UNATTACHED


def test_who_knows_nobody_waits_to_be_found() -> None:
    bench = Bench(voters=[])

    assert bench.core.next_deadline_ms() is None
