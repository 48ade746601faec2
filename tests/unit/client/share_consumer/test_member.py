"""Stories of a member of a share group, told heartbeat by heartbeat."""

from __future__ import annotations

from random import Random

import pytest

from millstream.client.consumer.membership.reconciliation import TopicIdPartition
from millstream.client.share_consumer.config import ShareConsumerConfig
from millstream.client.share_consumer.member import ShareMember
from millstream.errors import (
    BrokerUnreachable,
    CoordinatorLoadInProgress,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    MillstreamError,
    NotCoordinator,
    UnknownMemberId,
    UnsupportedVersion,
)
from millstream.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.client.consumer.membership.group_world import FakeLink, topic_id


class Story:
    """A member and its coordinator."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.errors: list[MillstreamError] = []
        self.until_ms = 300_000
        config = ShareConsumerConfig(bootstrap_servers=("h:1",), group_id="g", client_rack="east")
        self.member = ShareMember(
            config, "g", self.link, lambda now_ms: self.until_ms, self.errors.append, Random(7)
        )

    def asked(self) -> ShareGroupHeartbeatRequest:
        return self.link.request(ShareGroupHeartbeatRequest)

    def joined(self, *partitions: int) -> Story:
        self.member.subscribe(frozenset("t"))
        self.member.poll(0)
        self.link.answer(response(1, *partitions))
        return self


def response(epoch: int, *partitions: int, code: int = 0) -> ShareGroupHeartbeatResponse:
    topic = TopicPartitions(topic_id=topic_id("t"), partitions=list(partitions))
    return ShareGroupHeartbeatResponse(
        error_code=code,
        member_epoch=epoch,
        heartbeat_interval_ms=4_000,
        assignment=Assignment(topic_partitions=[topic]) if partitions else None,
    )


def assigned(*partitions: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic_id("t"), each) for each in partitions)


def test_a_member_joins_with_an_id_of_its_own_and_is_told_what_to_read() -> None:
    story = Story()
    story.member.subscribe(frozenset({"t", "a"}))

    story.member.poll(0)
    request = story.asked()
    story.link.answer(response(1, 0, 1))

    assert (request.member_epoch, request.member_id) == (0, story.member.member_id)
    assert (request.subscribed_topic_names, request.rack_id) == (["a", "t"], "east")
    assert story.member.assigned == assigned(0, 1)
    assert story.member.is_member
    assert story.link.order.every_ms == 4_000
    steady = story.link.order.request
    assert isinstance(steady, ShareGroupHeartbeatRequest)
    assert (steady.member_epoch, steady.subscribed_topic_names) == (1, None)


def test_a_new_assignment_holds_at_once_and_its_epoch_goes_into_the_heartbeats() -> None:
    story = Story().joined(0)

    story.link.order.on_response(response(2, 1), 4_000)
    assert story.member.assigned == assigned(1)
    story.member.poll(4_000)
    assert story.asked().member_epoch == 2
    story.link.answer(response(2, 1), 4_001)

    steady = story.link.order.request
    assert isinstance(steady, ShareGroupHeartbeatRequest)
    assert steady.member_epoch == 2


def test_another_subscription_is_told_at_once() -> None:
    story = Story().joined(0)

    story.member.subscribe(frozenset("u"))
    story.member.poll(1)

    assert (story.asked().member_epoch, story.asked().subscribed_topic_names) == (1, ["u"])


@pytest.mark.parametrize("code", [UnknownMemberId.code, FencedMemberEpoch.code])
def test_a_member_that_was_put_out_joins_anew(code: int) -> None:
    story = Story().joined(0)

    story.link.order.on_response(response(0, code=code), 4_000)
    assert story.member.assigned == frozenset()
    story.member.poll(4_000)

    assert story.asked().member_epoch == 0


@pytest.mark.parametrize("code", [CoordinatorLoadInProgress.code, NotCoordinator.code])
def test_a_coordinator_that_cannot_answer_now_is_asked_again_with_backoff(code: int) -> None:
    story = Story().joined(0)

    story.link.order.on_response(response(0, code=code), 4_000)
    due_ms = story.member.poll(4_000)

    assert due_ms is not None
    assert 4_080 <= due_ms <= 4_120
    story.member.poll(due_ms)
    assert story.asked().member_epoch == 1
    assert bool(story.link.lost_at) == (code == NotCoordinator.code)


def test_a_broken_connection_costs_nothing() -> None:
    story = Story().joined(0)
    story.link.ready = False

    story.link.hang_up(4_000)
    assert story.member.poll(5_000) == 5_050
    story.link.ready = True
    story.member.poll(5_050)
    story.link.answer(BrokerUnreachable("gone"), 5_060)
    story.member.poll(60_000)

    assert story.asked().member_epoch == 1
    assert story.member.assigned == assigned(0)
    assert story.link.lost_at == [4_000, 5_060]


@pytest.mark.parametrize(
    "answer", [response(0, code=GroupMaxSizeReached.code), UnsupportedVersion("not offered")]
)
def test_errors_that_stay_end_the_membership(
    answer: ShareGroupHeartbeatResponse | MillstreamError,
) -> None:
    story = Story()
    story.member.subscribe(frozenset("t"))
    story.member.poll(0)

    story.link.answer(answer)

    assert len(story.errors) == 1
    assert story.member.poll(1) is None
    assert not story.member.is_member


def test_leaving_says_so_and_subscribing_comes_back() -> None:
    story = Story().joined(0)
    done: list[bool] = []

    story.member.leave(1, lambda: done.append(True))
    assert story.asked().member_epoch == -1
    assert not done
    story.link.answer(response(-1))
    assert done == [True]
    assert story.member.poll(2) is None

    story.member.subscribe(frozenset("t"))
    story.member.poll(3)
    assert story.asked().member_epoch == 0


def test_leaving_a_group_that_was_not_joined_needs_no_word() -> None:
    story = Story()
    story.member.subscribe(frozenset("t"))
    story.member.poll(0)
    done: list[bool] = []

    story.member.leave(1, lambda: done.append(True))
    story.link.answer(response(1, 0))

    assert done == [True]
    assert story.member.assigned == frozenset()


def test_heartbeats_are_renewed_while_the_application_polls() -> None:
    story = Story().joined(0)

    story.member.poll(200_000)
    assert story.link.sent == []
    story.until_ms = 500_000
    story.member.poll(200_000)

    assert story.asked().member_epoch == 1
