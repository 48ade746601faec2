"""Stories of a share consumer's core: sessions with brokers, records, acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.share_consumer.acknowledgements import AcknowledgeType
from millstream.client.share_consumer.in_hand import Decided
from millstream.client.share_consumer.share_buffer import Outcome
from millstream.errors import (
    BrokerUnreachable,
    CorruptMessage,
    GroupAuthorizationFailed,
    InvalidRecordState,
    MillstreamError,
    NotLeaderOrFollower,
    OperationTimeout,
    ShareSessionNotFound,
    TopicAuthorizationFailed,
)
from millstream.protocol.messages import (
    FindCoordinatorResponse,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    share_acknowledge,
    share_fetch,
)
from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.unit.client.consumer.membership.group_world import topic_id
from tests.unit.client.share_consumer.share_world import T0, ShareWorld, fetched, records

if TYPE_CHECKING:
    from millstream.types import TopicPartition

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def with_records(**settings: object) -> tuple[ShareWorld, Decided]:
    """A core whose application has three records, and its decision to accept them."""
    world = ShareWorld(**settings).join(0)
    world.want()
    world.answer(fetched(records(0, 1, 2), last=2))
    (acquired,) = world.take()
    return world, Decided(acquired.session, T0, {0: ACCEPT, 1: ACCEPT, 2: ACCEPT})


def said(request: ShareFetchRequest | ShareAcknowledgeRequest) -> list[tuple[int, int, list[int]]]:
    return [
        (each.first_offset, each.last_offset, each.acknowledge_types)
        for topic in request.topics
        for partition in topic.partitions
        for each in partition.acknowledgement_batches
    ]


def acknowledged(code: int = 0) -> share_acknowledge.ShareAcknowledgeResponse:
    partition = share_acknowledge.PartitionData(partition_index=0, error_code=code)
    topic = share_acknowledge.ShareAcknowledgeTopicResponse(
        topic_id=topic_id("t"), partitions=[partition]
    )
    return share_acknowledge.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=7_000, responses=[topic]
    )


# Records.


def test_records_are_asked_for_only_while_the_application_waits() -> None:
    world = ShareWorld().join(0, 1)
    world.core.poll(0)
    assert world.network.sent == {}

    world.want()

    first = world.request(ShareFetchRequest)
    assert (first.share_session_epoch, first.member_id) == (0, world.core.member.member_id)
    assert (first.max_records, first.max_wait_ms, first.share_acquire_mode) == (10, 500, 0)
    assert [each.partition_index for each in first.topics[0].partitions] == [0]
    assert world.request(ShareFetchRequest, 1).topics[0].partitions[0].partition_index == 1


def test_brokers_wait_no_longer_than_the_application() -> None:
    world = ShareWorld().join(0)

    world.want(now_ms=1_000, until_ms=1_200)

    assert world.request(ShareFetchRequest).max_wait_ms == 200


def test_a_session_goes_on_without_naming_its_partitions_again() -> None:
    world = ShareWorld().join(0)
    world.want()

    world.answer(fetched())

    again = world.request(ShareFetchRequest)
    assert (again.share_session_epoch, again.topics) == (1, [])


def test_what_was_acquired_reaches_the_application_with_its_delivery_count() -> None:
    world = ShareWorld().join(0)
    world.want()

    world.answer(fetched(records(0, 1, 2), first=1, last=2))

    (acquired,) = world.take()
    assert [each.offset for each in acquired.records] == [1, 2]
    assert acquired.delivery_counts == [1, 1]
    assert acquired.partition == T0
    assert world.network.sent == {}  # The application has what it wanted.
    assert world.core.lock_timeout_ms == 30_000


def test_offsets_without_a_record_are_told_to_be_gaps() -> None:
    world = ShareWorld().join(0)
    world.want()

    world.answer(fetched(records(0, 2), last=3))

    assert [each.offset for each in world.take()[0].records] == [0, 2]
    assert said(world.request(ShareAcknowledgeRequest)) == [(1, 1, [0]), (3, 3, [0])]


def test_records_that_did_not_arrive_whole_are_rejected_and_raised() -> None:
    world = ShareWorld().join(0)
    world.want()
    broken = bytearray(records(0))
    broken[-1] ^= 1

    world.answer(fetched(bytes(broken), last=0))

    assert isinstance(world.buffer.next_error(), CorruptMessage)
    assert said(world.request(ShareAcknowledgeRequest)) == [(0, 0, [3])]


def test_with_a_strict_limit_brokers_are_asked_one_after_the_other() -> None:
    world = ShareWorld(share_acquire_mode="record_limit").join(0, 1)
    world.want()
    (asked,) = world.network.sent
    assert world.request(ShareFetchRequest, asked).share_acquire_mode == 1

    world.answer(fetched(), asked)

    assert len(world.network.sent) == 1


# Acknowledgements.


def test_acknowledgements_ride_along_with_the_next_fetch() -> None:
    world, decided = with_records()

    world.want(decided)
    request = world.request(ShareFetchRequest)
    assert (request.share_session_epoch, said(request)) == (1, [(0, 2, [1])])
    world.answer(fetched())

    assert world.buffer.take_outcomes() == [Outcome(T0, frozenset({0, 1, 2}), None)]


def test_without_a_fetch_they_go_alone() -> None:
    world, decided = with_records()

    world.core.acknowledge([decided])
    world.core.poll(0)

    assert said(world.request(ShareAcknowledgeRequest)) == [(0, 2, [1])]
    world.answer(acknowledged())
    assert world.core.lock_timeout_ms == 7_000
    assert world.network.sent == {}


def test_a_renewal_goes_alone_and_says_so() -> None:
    world, decided = with_records()

    world.want(decided._replace(decisions={0: ACCEPT, 1: RENEW}))

    request = world.request(ShareAcknowledgeRequest)
    assert request.is_renew_ack
    assert said(request) == [(0, 1, [1, 4])]
    world.answer(acknowledged())
    world.request(ShareFetchRequest)


def test_a_commit_hears_what_became_of_each_partition() -> None:
    world, decided = with_records()
    found: list[dict[TopicPartition, MillstreamError | None]] = []
    world.core.commit([decided], 0, 1_000, found.append)
    world.core.poll(0)

    world.answer(acknowledged(InvalidRecordState.code))

    assert isinstance(found[0][T0], InvalidRecordState)
    (outcome,) = world.buffer.take_outcomes()
    assert isinstance(outcome.error, InvalidRecordState)


def test_a_commit_of_nothing_is_done_at_once() -> None:
    world, _ = with_records()
    found: list[dict[TopicPartition, MillstreamError | None]] = []

    world.core.commit([], 0, 1_000, found.append)

    assert found == [{}]


def test_a_commit_that_takes_too_long_is_given_up() -> None:
    world, decided = with_records()
    found: list[dict[TopicPartition, MillstreamError | None]] = []
    world.core.commit([decided], 0, 1_000, found.append)

    due_ms = world.core.poll(500)
    assert due_ms is not None
    assert due_ms <= 1_000
    world.core.poll(1_000)

    assert isinstance(found[0][T0], OperationTimeout)


def test_refused_acknowledgements_in_a_fetch_are_told() -> None:
    world, decided = with_records()
    world.want(decided)

    world.answer(fetched(acknowledge_error_code=InvalidRecordState.code))

    (outcome,) = world.buffer.take_outcomes()
    assert isinstance(outcome.error, InvalidRecordState)


# Trouble.


def test_a_lost_session_takes_its_records_and_acknowledgements_with_it() -> None:
    world, decided = with_records()
    world.want(decided._replace(decisions={0: ACCEPT}))
    world.core.acknowledge([decided._replace(decisions={1: ACCEPT})])

    world.answer(BrokerUnreachable("gone"), now_ms=10)
    outcomes = world.buffer.take_outcomes()
    assert [each.offsets for each in outcomes] == [frozenset({0, 1})]
    assert isinstance(outcomes[0].error, BrokerUnreachable)
    assert world.metadata.requests > 0
    world.core.acknowledge([decided._replace(decisions={2: ACCEPT})])
    (late,) = world.buffer.take_outcomes()
    assert isinstance(late.error, ShareSessionNotFound)

    assert world.network.sent == {}  # Not at once.
    world.core.poll(1_000)
    assert world.request(ShareFetchRequest).share_session_epoch == 0


def test_a_session_that_the_broker_has_forgotten_begins_anew() -> None:
    world, _ = with_records()
    world.want()

    world.answer(share_fetch.ShareFetchResponse(error_code=ShareSessionNotFound.code))
    world.core.poll(1_000)

    assert world.request(ShareFetchRequest).share_session_epoch == 0
    assert world.buffer.next_error() is None


def test_errors_that_stay_are_raised() -> None:
    world, _ = with_records()
    world.want()

    world.answer(share_fetch.ShareFetchResponse(error_code=GroupAuthorizationFailed.code))

    assert isinstance(world.buffer.next_error(), GroupAuthorizationFailed)


@pytest.mark.parametrize(
    ("code", "is_raised"),
    [(NotLeaderOrFollower.code, False), (TopicAuthorizationFailed.code, True)],
)
def test_errors_of_a_partition_are_raised_unless_they_may_go_away(
    code: int, is_raised: bool
) -> None:
    world = ShareWorld().join(0)
    world.want()

    world.answer(fetched(error_code=code))

    assert (world.buffer.next_error() is not None) == is_raised
    assert bool(world.metadata.hints) != is_raised


def test_a_partition_moves_to_the_broker_that_leads_it_now() -> None:
    world = ShareWorld().join(0, 1)
    world.want()
    world.metadata.lead(1, 1)

    world.answer(fetched(), 1)
    request = world.request(ShareFetchRequest, 1)
    assert [each.partition_index for each in request.topics[0].partitions] == [0]
    world.answer(fetched(), 0)
    assert 0 not in world.network.sent

    world.metadata.lead(-1, 0)
    world.answer(fetched(), 1)
    assert 1 not in world.network.sent
    assert world.metadata.requests > 0


def test_partitions_that_are_no_longer_ours_are_forgotten() -> None:
    world = ShareWorld()
    world.metadata.lead(0, 0)
    world.join(0, 1).want()
    world.metadata.lead(0, 1)

    world.answer(fetched())

    (forgotten,) = world.request(ShareFetchRequest).forgotten_topics_data
    assert (forgotten.topic_id, forgotten.partitions) == (topic_id("t"), [1])


# Going.


def test_leaving_ends_the_sessions_with_what_is_left_to_say() -> None:
    world, decided = with_records()
    done: list[bool] = []

    world.core.unsubscribe([decided], 0, lambda: done.append(True))
    world.core.poll(0)
    last = world.request(ShareAcknowledgeRequest)
    assert (last.share_session_epoch, said(last)) == (-1, [(0, 2, [1])])
    world.answer(acknowledged())
    leave = world.network.coordinator.request(ShareGroupHeartbeatRequest)
    assert leave.member_epoch == -1
    assert not done
    world.network.coordinator.answer(ShareGroupHeartbeatResponse())

    assert done == [True]


def test_records_that_come_after_the_end_are_not_delivered() -> None:
    world = ShareWorld().join(0)
    world.want()
    world.core.unsubscribe([], 0, lambda: None)

    world.answer(fetched(records(0), last=0))

    assert world.take() == []
    assert world.request(ShareAcknowledgeRequest).share_session_epoch == -1


def test_an_application_that_does_not_poll_leaves_and_comes_back() -> None:
    world, _ = with_records(max_poll_interval_ms=1_000)
    world.core.is_in_poll = False
    world.core.poll(999)
    assert world.network.sent == {}

    world.core.poll(1_000)
    assert world.request(ShareAcknowledgeRequest).share_session_epoch == -1
    world.answer(acknowledged(), now_ms=1_000)
    world.network.coordinator.answer(ShareGroupHeartbeatResponse())
    world.want(now_ms=2_000)

    joining = world.network.coordinator.request(ShareGroupHeartbeatRequest)
    assert joining.member_epoch == 0


def test_a_group_that_one_may_not_use_is_told_to_the_application() -> None:
    world = ShareWorld()
    world.core.subscribe(frozenset("t"), 0)
    world.core.poll(0)

    world.router.answer(FindCoordinatorResponse(error_code=GroupAuthorizationFailed.code))

    assert isinstance(world.buffer.next_error(), GroupAuthorizationFailed)
