"""`Membership`: what is committed by itself, and how a member goes."""

from __future__ import annotations

import pytest

from millstream.client.consumer.membership.events import Revoked
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
from millstream.errors import (
    BrokerUnreachable,
    CommitFailed,
    InvalidRegularExpression,
    MillstreamError,
    OperationTimeout,
)
from millstream.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from millstream.types import TopicPartition
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    partitions,
    to,
)
from tests.unit.client.consumer.membership.membership_world import (
    T0,
    Story,
)


def test_what_was_consumed_is_committed_at_a_poll_after_each_interval() -> None:
    story = Story(auto_commit_interval_ms=5_000)
    story.join()
    consumed = {T0: OffsetAndMetadata(3), TopicPartition("other", 0): OffsetAndMetadata(1)}

    assert not story.membership.enter_poll(4_999)
    assert story.membership.enter_poll(5_000)
    story.membership.on_poll(consumed, 5_000)

    (topic,) = story.router.request(OffsetCommitRequest).topics
    assert [(topic.name, each.committed_offset) for each in topic.partitions] == [("t", 3)]
    assert not story.membership.enter_poll(9_000)


def test_what_has_not_changed_is_not_committed_again() -> None:
    story = Story(auto_commit_interval_ms=5_000)
    story.join()
    story.membership.enter_poll(0)
    story.membership.on_poll({T0: OffsetAndMetadata(3)}, 5_000)
    story.router.answer(OffsetCommitResponse())

    assert story.membership.enter_poll(10_000)
    story.membership.on_poll({T0: OffsetAndMetadata(3)}, 10_000)
    assert story.router.calls == []
    story.membership.on_poll({T0: OffsetAndMetadata(4)}, 15_000)

    story.router.request(OffsetCommitRequest)


def test_an_auto_commit_that_failed_is_logged_and_tried_with_the_next_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    story = Story(auto_commit_interval_ms=5_000)
    story.join()
    story.membership.enter_poll(0)
    story.membership.on_poll({T0: OffsetAndMetadata(3)}, 5_000)

    story.router.answer(OperationTimeout("no answer"))
    story.membership.on_poll({T0: OffsetAndMetadata(3)}, 10_000)

    assert "auto-commit: no answer" in caplog.text
    story.router.request(OffsetCommitRequest)


def test_without_auto_commit_polls_need_nothing() -> None:
    story = Story(enable_auto_commit=False)
    story.join()

    assert not story.membership.enter_poll(1_000_000)


def test_with_partitions_assigned_by_hand_offsets_are_committed_outside_of_the_group() -> None:
    story = Story(auto_commit_interval_ms=0)
    story.membership.enter_poll(0)

    story.membership.on_poll({T0: OffsetAndMetadata(3)}, 1)

    asked = story.router.request(OffsetCommitRequest)
    assert (asked.generation_id_or_member_epoch, asked.member_id) == (-1, "")


# Commits and going.


def test_only_what_is_owned_can_be_committed() -> None:
    story = Story()
    story.join()

    story.commit(TopicPartition("t", 7))
    story.commit()

    (error,) = story.outcomes
    assert isinstance(error, CommitFailed)
    assert "t-7 is not assigned to this consumer" in str(error)
    asked = story.router.request(OffsetCommitRequest)
    assert (asked.generation_id_or_member_epoch, asked.member_id) == (1, "m")


def test_a_commit_that_is_refused_reaches_the_machine() -> None:
    story = Story()
    story.join()
    story.membership._on_refused(25, 0)
    story.membership.poll(0)

    assert story.link.request(ConsumerGroupHeartbeatRequest).member_epoch == 1


def test_committed_offsets_are_asked_for_as_the_member_that_we_are() -> None:
    story = Story()
    story.join()

    story.membership.committed([T0], 0, story.outcomes.append)

    assert story.router.request(OffsetFetchRequest).groups[0].member_epoch == 1


def test_unsubscribing_gives_everything_back_and_leaves() -> None:
    story = Story()
    story.join()
    assert story.membership.subscribed_topics == {"t"}

    story.membership.unsubscribe(0, lambda: story.outcomes.append("left"))
    event = story.owner.events[-1]
    assert event == Revoked(partitions("t-0 t-1"), commits_first=True)
    story.commit()  # The user's last one, before the listener ends.
    assert story.router.request(OffsetCommitRequest).member_id == "m"
    story.membership.acknowledge(event, 0)
    story.link.answer(ConsumerGroupHeartbeatResponse())

    assert story.outcomes == ["left"]
    assert story.membership.subscribed_topics == frozenset()
    assert story.membership.group_metadata() == ConsumerGroupMetadata(GROUP)
    assert story.runtime.metadata.wanted == set()


def test_closing_without_a_group_is_done_at_once() -> None:
    story = Story()

    story.membership.close(0, lambda: story.outcomes.append("closed"))

    assert story.outcomes == ["closed"]
    assert story.membership.poll(0) is None


def test_another_subscription_reaches_the_group() -> None:
    story = Story()
    story.join()

    story.membership.subscribe(to("t", "u"), 1)
    story.membership.request_rejoin(1)
    story.membership.poll(1)

    asked = story.link.request(ConsumerGroupHeartbeatRequest)
    assert asked.subscribed_topic_names == ["t", "u"]


def test_an_expression_that_is_not_re2_is_refused_at_once() -> None:
    story = Story()

    with pytest.raises(InvalidRegularExpression, match=r"\(a' is not an RE2 expression"):
        story.membership.subscribe(Subscription(regex="(a"), 0)


def test_errors_of_the_network_are_the_machines_business() -> None:
    story = Story()
    story.join()
    error: MillstreamError = BrokerUnreachable("gone")

    story.link.order.on_response(error, 5_000)

    assert story.owner.errors == []
