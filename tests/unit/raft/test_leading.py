"""Rules 1, 4 and 5: what a leader begins with, commits, and when it gives up."""

from __future__ import annotations

import pytest

from millstream.errors import (
    InvalidRequest,
    NotController,
    RecordListTooLarge,
)
from millstream.protocol.messages import BeginQuorumEpochRequest, LeaderChangeMessage
from millstream.raft import batches, wire_requests, wire_responses
from millstream.raft.effects import (
    AcceptSubmission,
    AdvanceHighWatermark,
    AppendToLog,
    ChangeLeadership,
    FlushLog,
    RefuseSubmission,
)
from millstream.raft.events import LogFlushed, Submit
from millstream.raft.states import Role
from millstream.raft.voters import Endpoint
from millstream.raft.wire_responses import LeaderFacts
from tests.unit.raft.bench import (
    LISTENER,
    Bench,
    endpoint_of,
    key_of,
    node,
    voter_set,
)


def leading_bench(**options: object) -> Bench:
    bench = Bench(**options)  # type: ignore[arg-type]  # passed through
    bench.lead()
    return bench


def committed_bench() -> Bench:
    bench = leading_bench()
    bench.replicate(2)
    return bench


# --- Rule 4: the beginning ---


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_rule_4_the_first_record_of_an_epoch_says_who_leads_it(kraft_version: int) -> None:
    """In a version that Apache Kafka's tools read, which have only this one."""
    bench = leading_bench(kraft_version=kraft_version)

    appended = bench.of(AppendToLog)[0]
    batch = next(batches.walk_batches(appended.batches))
    message = LeaderChangeMessage.decode(batch.records()[0].value or b"", 0)

    assert appended.base_offset == 0
    assert batch.is_control
    assert batch.leader_epoch == 1
    assert batch.max_timestamp == bench.wall_ms
    assert message.leader_id == 1
    assert [each.voter_id for each in message.voters] == [1, 2, 3]
    assert [each.voter_id for each in message.granting_voters] == [1, 2]


def test_rule_4_the_first_leader_of_a_dynamic_quorum_writes_down_version_and_voters() -> None:
    bench = leading_bench()

    batch = next(batches.walk_batches(bench.of(AppendToLog)[0].batches))

    assert batches.quorum_records(batch) == [(1, 1), (2, voter_set(1, 2, 3))]


def test_rule_4_later_leaders_do_not_repeat_what_the_log_says() -> None:
    bench = Bench(log=[1, 1, 1])
    bench.core.history.add(1, 1)
    bench.core.history.add(2, voter_set(1, 2, 3))

    bench.lead()

    batch = next(batches.walk_batches(bench.of(AppendToLog)[0].batches))
    assert batches.quorum_records(batch) == []
    assert batch.record_count == 1


def test_a_leader_that_has_moved_says_so_with_its_first_records() -> None:
    bench = Bench(log=[1, 1, 1], local=node(1))
    moved = voter_set(1, 2, 3)
    old = moved.get(1)
    assert old is not None
    old.endpoints[LISTENER] = Endpoint("old", 1)  # type: ignore[index]  # a dict here
    bench.core.history.add(1, 1)
    bench.core.history.add(2, moved)

    bench.lead()

    voters = bench.core.voters.get(1)
    assert voters is not None
    assert voters.endpoints == {LISTENER: endpoint_of(1)}


def test_rule_4_voters_that_do_not_fetch_are_reminded_every_half_fetch_timeout() -> None:
    bench = leading_bench()
    first = [sent.peer.id for sent, _ in bench.sent(BeginQuorumEpochRequest)]
    for sent, _ in bench.sent(BeginQuorumEpochRequest):
        response = wire_responses.begin_quorum_epoch_response(LeaderFacts(1, 1), 1)
        bench.reply(sent, response)

    bench.wait(500)
    bench.fetch(2)
    bench.wait(500)

    assert first == [2, 3]
    assert [sent.peer.id for sent, _ in bench.sent(BeginQuorumEpochRequest)] == [3]


def test_rule_4_a_reminder_that_fails_is_sent_again_after_the_backoff() -> None:
    bench = leading_bench()
    (failed, _), _ = bench.sent(BeginQuorumEpochRequest)

    bench.fail(failed)
    bench.wait_until_due()

    assert bench.now_ms == 1_020
    assert [sent.peer.id for sent, _ in bench.sent(BeginQuorumEpochRequest)] == [failed.peer.id]


def test_rule_4_a_reminder_of_a_voter_that_was_removed_since_is_forgotten() -> None:
    bench = leading_bench()
    (_, (to_third, _)) = bench.sent(BeginQuorumEpochRequest)
    bench.replicate(2)
    bench.receive(wire_requests.remove_voter_request(node(2), key_of(3)))

    bench.fail(to_third)

    assert bench.core.voters.ids == [1, 2]
    assert bench.sent(BeginQuorumEpochRequest) == []


def test_a_leader_is_announced_only_when_a_record_of_its_epoch_is_committed() -> None:
    bench = leading_bench()
    assert bench.of(ChangeLeadership) == []

    bench.replicate(2)

    kinds = [type(each) for each in bench.effects]
    assert ChangeLeadership(1, 1) in bench.effects
    assert kinds.index(AdvanceHighWatermark) < kinds.index(ChangeLeadership)


# --- Rule 1: check quorum ---


def test_rule_1_a_leader_without_a_majority_resigns() -> None:
    bench = leading_bench()

    bench.wait(2_999)
    before = bench.core.role
    bench.wait(1)

    assert (before, bench.core.role) == (Role.LEADER, Role.RESIGNED)


def test_rule_1_fetches_of_a_majority_keep_a_leader() -> None:
    bench = leading_bench(voters=[1, 2, 3, 4, 5])
    bench.wait(2_000)
    bench.fetch(2)
    bench.wait(900)
    bench.fetch(3)

    bench.wait(2_999)

    assert bench.core.role is Role.LEADER


def test_rule_1_one_voter_of_five_is_no_majority_however_often_it_fetches() -> None:
    bench = leading_bench(voters=[1, 2, 3, 4, 5])

    for _ in range(30):
        bench.wait(100)
        bench.fetch(2)

    assert bench.core.role is Role.RESIGNED


def test_rule_1_observers_and_the_leader_itself_do_not_count() -> None:
    bench = leading_bench()

    for _ in range(30):
        bench.wait(100)
        bench.fetch(9)
        bench.fetch(1)

    assert bench.core.role is Role.RESIGNED


def test_rule_1_a_leader_that_decides_alone_never_resigns_and_has_nothing_to_wait_for() -> None:
    bench = Bench(voters=[1])

    assert bench.core.role is Role.LEADER
    assert bench.core.next_deadline_ms() is None


# --- Rule 5: commitment ---


def test_rule_5_a_record_is_committed_when_a_majority_has_it_on_disk() -> None:
    bench = committed_bench()
    bench.wait(100)
    bench.step(Submit("s", 1, [b"a"]))
    assert bench.of(AdvanceHighWatermark) == []

    bench.replicate(3)

    assert bench.of(AdvanceHighWatermark) == [AdvanceHighWatermark(4)]


def test_rule_5_records_of_older_epochs_wait_for_one_of_our_own() -> None:
    bench = leading_bench(log=[1, 1, 1])
    epoch_start = 3

    bench.fetch(2, offset=epoch_start, epoch=1)
    assert bench.of(AdvanceHighWatermark) == []
    bench.fetch(2)

    assert bench.of(AdvanceHighWatermark) == [AdvanceHighWatermark(bench.core.outline.end_offset)]


def test_rule_5_the_leaders_own_disk_counts_only_when_it_is_flushed() -> None:
    bench = Bench(voters=[1, 2], starts=False)
    bench.flushes = False
    bench.start()
    bench.lead()
    bench.replicate(2)
    before = bench.of(AdvanceHighWatermark)

    bench.step(LogFlushed(1))

    assert before == []
    assert bench.of(AdvanceHighWatermark) == [AdvanceHighWatermark(3)]


def test_rule_5_a_quorum_of_one_commits_with_its_flush() -> None:
    bench = Bench(voters=[1], starts=False)
    bench.flushes = False
    bench.start()

    assert bench.of(AdvanceHighWatermark) == []
    assert bench.of(FlushLog) == [FlushLog(1)]
    bench.step(LogFlushed(1))

    assert bench.effects == [AdvanceHighWatermark(3), ChangeLeadership(1, 1)]


def test_what_is_appended_during_a_flush_gets_the_next_one() -> None:
    bench = Bench(voters=[1], starts=False)
    bench.flushes = False
    bench.start()
    bench.step(Submit("s", 1, [b"a"]))
    assert bench.of(FlushLog) == []

    bench.step(LogFlushed(1))

    assert bench.of(FlushLog) == [FlushLog(2)]
    bench.step(LogFlushed(1))
    assert bench.of(AdvanceHighWatermark) == []
    bench.step(LogFlushed(2))
    assert bench.of(AdvanceHighWatermark) == [AdvanceHighWatermark(4)]


# --- Submissions ---


def test_submitted_records_get_their_offsets_at_once() -> None:
    bench = committed_bench()

    bench.step(Submit("s", 1, [b"a", b"b"]))

    assert bench.of(AcceptSubmission) == [AcceptSubmission("s", 3, 5)]


def test_the_first_submission_after_a_pause_is_appended_at_once_and_the_next_waits() -> None:
    bench = committed_bench()
    bench.wait(100)

    bench.step(Submit("first", 1, [b"a"]))
    first = bench.of(AppendToLog)
    bench.wait(1)
    bench.step(Submit("second", 1, [b"b"]))
    bench.step(Submit("third", 1, [b"c"]))
    waiting = bench.of(AppendToLog)
    bench.wait_until_due()

    assert [(each.base_offset, each.end_offset) for each in first] == [(3, 4)]
    assert waiting == []
    assert [(each.base_offset, each.end_offset) for each in bench.of(AppendToLog)] == [(4, 6)]
    found = list(batches.walk_batches(bench.of(AppendToLog)[0].batches))
    assert [batch.base_offset for batch in found] == [4, 5]


@pytest.mark.parametrize(
    ("epoch", "records", "error"),
    [
        (7, [b"a"], NotController),
        (1, [], InvalidRequest),
        (1, [bytes(9 << 20)], RecordListTooLarge),
    ],
)
def test_a_submission_that_cannot_be_is_refused(
    epoch: int, records: list[bytes], error: type[Exception]
) -> None:
    bench = committed_bench()

    bench.step(Submit("s", epoch, records))

    (refused,) = bench.of(RefuseSubmission)
    assert isinstance(refused.error, error)
    assert bench.core.outline.end_offset == 3


def test_who_does_not_lead_refuses_submissions() -> None:
    bench = Bench()

    bench.step(Submit("s", 0, [b"a"]))

    assert isinstance(bench.of(RefuseSubmission)[0].error, NotController)
