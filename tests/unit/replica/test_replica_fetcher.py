"""A follower's fetcher: what it asks, what it does with answers, and whom a fault holds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import (
    BrokerUnreachable,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownServerError,
)
from millstream.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.replica.followed_partition import FollowState
from millstream.storage.log.config import LogConfig
from millstream.types import TopicPartition
from tests.unit.replica.harness import LOCAL, World, topic_id
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.replica.replica_fetcher import ReplicaFetcher

LEADER = 2
VERSION = 18


class Following:
    """A broker that follows broker 2, whose part the test plays."""

    def __init__(self, partitions: int = 1, config: LogConfig | None = None) -> None:
        self.world = World()
        self.world.register(LEADER)
        self.world.create(partitions=partitions, replicas=(LEADER, LOCAL), config=config)

    @property
    def fetcher(self) -> ReplicaFetcher:
        """The only one."""
        [(_, fetcher)] = self.world.manager.fetchers.by_key
        return fetcher

    def ask(self) -> Message | None:
        """What it asks now."""
        source = self.fetcher.take_request(self.world.clock.monotonic_ms())
        return None if source is None else source.build(VERSION)

    def fetch(self) -> FetchRequest:
        """The fetch that it asks now."""
        request = self.ask()
        assert isinstance(request, FetchRequest)
        return request

    def answer(self, *partitions: PartitionData, session_id: int = 7, error_code: int = 0) -> None:
        """Answer the fetch."""
        topic = FetchableTopicResponse(topic_id=topic_id("t"), partitions=list(partitions))
        self.answer_with(
            FetchResponse(session_id=session_id, error_code=error_code, responses=[topic])
        )

    def answer_with(self, answer: Any) -> None:
        """Answer with anything."""
        self.fetcher.answered(answer, self.world.clock.monotonic_ms())

    def answer_offset(self, offset: int = -1, error_code: int = 0) -> None:
        """Answer where the leader's log ends or begins."""
        found = ListOffsetsPartitionResponse(
            partition_index=0, offset=offset, error_code=error_code
        )
        topic = ListOffsetsTopicResponse(name="t", partitions=[found])
        self.answer_with(ListOffsetsResponse(topics=[topic]))

    def exchange(self, *partitions: PartitionData) -> FetchRequest:
        """Ask, and be answered; what was asked."""
        request = self.fetch()
        self.answer(*partitions)
        return request

    def state(self, index: int = 0) -> FollowState | None:
        """Where a partition stands."""
        return self.world.manager.fetchers.state_of(TopicPartition("t", index))

    def end(self, index: int = 0) -> int:
        """Where its log ends."""
        return self.world.partition(index=index).log.log_end_offset


def data(records: bytes = b"", *, index: int = 0, high_watermark: int = 0, **rest: Any) -> Any:
    """What a leader says about a partition."""
    rest.setdefault("log_start_offset", 0)
    return PartitionData(
        partition_index=index, records=records, high_watermark=high_watermark, **rest
    )


def diverging(epoch: int, end_offset: int) -> Any:
    """A leader's log parts from ours."""
    return data(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset))


def named(request: FetchRequest) -> list[tuple[int, int, int]]:
    """Partition, offset and last epoch of what a request names."""
    return [
        (each.partition, each.fetch_offset, each.last_fetched_epoch)
        for topic in request.topics
        for each in topic.partitions
    ]


def test_the_first_fetch_names_everything_and_says_who_asks() -> None:
    following = Following(partitions=2)

    request = following.fetch()

    assert request.replica_state is not None
    assert request.replica_state.replica_id == LOCAL
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [(0, 0, -1), (1, 0, -1)]
    assert following.ask() is None


def test_records_are_written_as_they_are_and_the_next_fetch_acknowledges_them() -> None:
    following = Following(partitions=2)
    sent = batch_bytes(0, records=3) + batch_bytes(3, leader_epoch=0)

    following.exchange(data(sent, high_watermark=2), data(index=1))
    request = following.fetch()

    log = following.world.partition().log
    found = log.read(0, 1 << 20).records
    assert found is not None
    assert found.read() == sent
    assert (log.log_end_offset, log.high_watermark) == (4, 2)
    assert named(request) == [(0, 4, 0)]
    assert (request.session_id, request.session_epoch) == (7, 1)


def test_the_watermark_of_a_follower_goes_back_with_its_leaders() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0, records=4), high_watermark=4))

    following.exchange(data(high_watermark=1))

    assert following.world.partition().log.high_watermark == 1


def test_the_log_start_follows_the_leaders() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0, records=4), high_watermark=4))

    following.exchange(data(high_watermark=4, log_start_offset=3))

    assert following.world.partition().log.log_start_offset == 3


def test_corrupt_records_are_refused_and_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    following = Following(partitions=2)
    broken = bytearray(batch_bytes(0))
    broken[-1] ^= 1

    following.exchange(data(bytes(broken)), data(batch_bytes(0), index=1))

    assert (following.end(0), following.end(1)) == (0, 1)
    assert following.state() is FollowState.BACKING_OFF
    assert "refused" in caplog.text
    request = following.fetch()
    assert [each.partitions for each in request.forgotten_topics_data] == [[0]]
    following.answer()
    following.world.clock.advance(1000)
    assert named(following.fetch()) == [(0, 0, -1)]


def test_batches_of_a_later_epoch_than_the_fetch_are_left_out() -> None:
    following = Following()

    following.exchange(data(batch_bytes(0) + batch_bytes(1, leader_epoch=9)))

    assert following.end() == 1


def test_a_log_that_has_parted_is_cut_where_the_epochs_part() -> None:
    following = Following()
    following.exchange(
        data(batch_bytes(0, records=5) + batch_bytes(5, records=5), high_watermark=3)
    )
    following.world.change(leader=LEADER)
    request = following.fetch()

    following.answer(diverging(0, 5))
    assert following.state() is FollowState.WRITING
    following.world.settle()

    assert named(request) == [(0, 10, 0)]
    assert following.end() == 5
    again = following.fetch()
    assert named(again) == [(0, 5, 0)]
    # The watermarks that came with the divergence were not taken: they are to be told again.
    assert again.session_epoch == 0


def test_an_epoch_without_records_is_forgotten_when_the_leader_does_not_know_it() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0, records=5), high_watermark=5))
    following.world.change(leader=LOCAL)
    following.world.change(leader=LEADER)
    following.fetch()

    following.answer(diverging(0, 8))
    following.world.settle()

    assert following.end() == 5
    assert named(following.fetch()) == [(0, 5, 0)]


def test_an_answer_to_a_fetch_of_another_epoch_counts_for_nothing() -> None:
    following = Following()
    following.fetch()
    following.world.change(leader=LEADER)

    following.answer(data(batch_bytes(0)))

    assert following.end() == 0
    assert following.state() is FollowState.FETCHING


def test_a_follower_ahead_of_its_leader_is_cut_to_the_leaders_end() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0, records=5) + batch_bytes(5, records=5)))
    following.exchange(data(error_code=OffsetOutOfRange.code))

    request = following.ask()
    following.answer_offset(5)
    following.world.settle()

    assert isinstance(request, ListOffsetsRequest)
    assert request.replica_id == LOCAL
    assert following.end() == 5
    assert named(following.fetch()) == [(0, 5, 0)]


def test_a_follower_before_its_leaders_start_begins_anew_there() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0, records=5)))
    following.exchange(data(error_code=OffsetOutOfRange.code))

    following.ask()
    following.answer_offset(100)
    following.ask()
    following.answer_offset(50)
    following.world.settle()

    log = following.world.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert named(following.fetch()) == [(0, 50, -1)]


def test_a_leaders_start_within_a_batch_is_followed() -> None:
    following = Following()
    following.exchange(data(error_code=OffsetOutOfRange.code))
    following.ask()
    following.answer_offset(10)
    following.ask()
    following.answer_offset(7)
    following.world.settle()

    following.exchange(data(batch_bytes(5, records=5), high_watermark=10, log_start_offset=7))

    log = following.world.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (7, 10)


def test_a_leader_that_cannot_be_reached_is_left_alone_for_a_while() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0)))
    following.fetch()

    following.answer_with(BrokerUnreachable("gone"))

    assert following.ask() is None
    assert following.fetcher.next_deadline_ms() == following.world.clock.monotonic_ms() + 1000
    following.world.clock.advance(1000)
    request = following.fetch()
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [(0, 1, 0)]


def test_a_lost_session_begins_anew_at_once() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0)))
    following.fetch()

    following.answer(session_id=0, error_code=FetchSessionIdNotFound.code)

    assert named(following.fetch()) == [(0, 1, 0)]


@pytest.mark.parametrize("error", [NotLeaderOrFollower, UnknownServerError])
def test_an_error_of_one_partition_does_not_hold_up_the_others(error: Any) -> None:
    following = Following(partitions=2)

    following.exchange(data(error_code=error.code), data(batch_bytes(0), index=1))

    assert following.state(0) is FollowState.BACKING_OFF
    assert named(following.fetch()) == [(1, 1, 0)]


def test_a_fenced_epoch_waits_for_the_metadata() -> None:
    following = Following()

    following.exchange(data(error_code=FencedLeaderEpoch.code))
    following.world.clock.advance(10_000)

    assert following.state() is FollowState.FAILED
    assert following.world.manager.fetchers.failed_count == 1
    assert following.ask() is None
    following.world.change(leader=LEADER)
    assert following.state() is FollowState.FETCHING


def test_a_failed_disk_ends_the_fetching_of_its_partitions() -> None:
    following = Following()
    following.fetch()
    partition = following.world.partition()

    following.world.manager.changes.fail(partition.name, KafkaStorageError("broken"))
    following.answer(data(batch_bytes(0)))

    assert following.state() is None


def test_a_topic_that_waits_for_the_disk_acknowledges_what_is_on_disk() -> None:
    following = Following(config=LogConfig(durability="disk"))

    following.exchange(data(batch_bytes(0)))

    assert following.state() is FollowState.WRITING
    assert following.ask() is None
    following.world.settle()
    assert following.world.partition().log.recovery_point == 1
    assert named(following.fetch()) == [(0, 1, 0)]


def test_a_slow_disk_does_not_hold_up_the_other_partitions_for_long() -> None:
    following = Following(partitions=2, config=LogConfig(durability="disk"))
    following.exchange(data(batch_bytes(0)), data(index=1))
    assert following.ask() is None

    following.world.clock.advance(20)
    request = following.fetch()

    assert request.max_wait_ms == 20
    assert [each.partitions for each in request.forgotten_topics_data] == [[0]]


def test_who_leads_does_not_follow_and_the_session_is_closed() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0)))

    following.world.change(leader=LOCAL)

    request = following.fetch()
    assert (request.session_id, request.session_epoch) == (7, -1)
    following.answer(session_id=0)
    assert following.state() is None
    [(key, _)] = following.world.manager.fetchers.by_key
    assert following.world.manager.fetchers.drop_idle(key)


def test_without_a_leader_nobody_is_asked() -> None:
    following = Following()

    following.world.change(leader=-1)

    assert following.state() is None


def test_a_broker_on_its_way_down_does_not_go_after_what_it_lost() -> None:
    following = Following()
    following.world.manager.fetchers.leave()

    following.world.change(isr=[LEADER])

    assert following.state() is None


def test_more_isr_changes_leave_the_fetching_alone() -> None:
    following = Following()
    following.exchange(data(batch_bytes(0)))

    following.world.change(isr=[LEADER])

    assert named(following.fetch()) == [(0, 1, 0)]
    assert following.state() is FollowState.FETCHING
