"""`Membership`: which protocol, whether the user polls, what is committed by itself."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.membership.link import MEMBERSHIP_NODE_ID
from millstream.client.consumer.membership.membership import Membership
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
from millstream.errors import (
    BrokerUnreachable,
    CommitFailed,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    InvalidRegularExpression,
    MillstreamError,
    OperationTimeout,
    PollIntervalExceeded,
    UnsupportedVersion,
)
from millstream.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from millstream.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from millstream.types import TopicPartition
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    FakeLink,
    FakeMetadata,
    FakeOwner,
    FakeRouter,
    partitions,
    settings,
    to,
    topic_id,
)

if TYPE_CHECKING:
    from millstream.client.runtime import ClientRuntime
    from millstream.network.network_client import OnDone, RequestSource
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message

T0 = TopicPartition("t", 0)


class FakeNetwork:
    """One connection, to the coordinator."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.address: tuple[str, int] | None = None

    def set_address(self, node_id: int, host: str, port: int, *, is_member: bool) -> None:
        assert node_id == MEMBERSHIP_NODE_ID
        assert not is_member
        self.address = (host, port)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return self.link.ready

    def connection_delay_ms(self, node_id: int, now_ms: int) -> int:
        return 40

    def version_of(self, node_id: int, api: ApiKey) -> int | None:
        return self.link.version_of(api)

    def send(
        self,
        node_id: int,
        request: RequestSource,
        now_ms: int,
        on_done: OnDone,
        *,
        timeout_ms: int,
    ) -> None:
        self.link.send(request, now_ms, on_done, timeout_ms)

    def repeat(
        self,
        node_id: int,
        request: Message,
        first_ms: int,
        every_ms: int,
        until_ms: int,
        on_response: OnDone,
    ) -> int:
        return self.link.repeat(request, first_ms, every_ms, until_ms, on_response)

    def cancel(self, order_id: int) -> None:
        self.link.cancel(order_id)


class FakeRuntime:
    """What a membership sees of its client."""

    def __init__(self, **sizes: int) -> None:
        self.network = FakeNetwork()
        self.metadata = FakeMetadata(**sizes)
        self.router = FakeRouter()


class Story:
    """A membership and everything around it."""

    def __init__(self, **changes: object) -> None:
        self.runtime = FakeRuntime(t=2)
        self.owner = FakeOwner()
        self.link = self.runtime.network.link
        self.router = self.runtime.router
        self.membership = Membership(
            settings(**changes), cast("ClientRuntime", self.runtime), self.owner, Random(7)
        )
        self.outcomes: list[object] = []

    def subscribe(self, now_ms: int = 0) -> None:
        self.membership.enter_poll(now_ms)
        self.membership.subscribe(to("t"), now_ms)
        self.membership.poll(now_ms)

    def find_coordinator(self) -> None:
        found = FoundCoordinator(key=GROUP, node_id=5, host="h", port=9092)
        self.router.answer(FindCoordinatorResponse(coordinators=[found]))

    def take_in(self, assigned: str = "t-0 t-1") -> None:
        """The coordinator takes a member of the consumer protocol in."""
        topics = ConsumerGroupHeartbeatResponseTopicPartitions(
            topic_id=topic_id("t"),
            partitions=sorted(each.partition for each in partitions(assigned)),
        )
        self.link.answer(
            ConsumerGroupHeartbeatResponse(
                member_id="m",
                member_epoch=1,
                heartbeat_interval_ms=5_000,
                assignment=Assignment(topic_partitions=[topics]),
            )
        )

    def join(self) -> None:
        """Up to a stable member that owns both partitions."""
        self.subscribe()
        self.find_coordinator()
        self.membership.poll(0)
        self.take_in()
        self.membership.acknowledge(self.owner.events[-1], 0)
        self.membership.poll(0)
        self.take_in()

    def commit(self, partition: TopicPartition = T0, offset: int = 3) -> None:
        self.membership.commit({partition: OffsetAndMetadata(offset)}, 0, self.outcomes.append)


# Which protocol.


def test_the_coordinator_is_found_before_a_protocol_is_chosen() -> None:
    story = Story()
    story.subscribe()

    assert story.router.request(FindCoordinatorRequest).coordinator_keys == [GROUP]
    assert story.router.request(FindCoordinatorRequest, version=3).key == GROUP
    story.find_coordinator()
    assert story.runtime.network.address == ("h", 9092)
    story.membership.poll(0)

    assert story.link.request(ConsumerGroupHeartbeatRequest).member_epoch == 0


def test_a_coordinator_without_the_consumer_protocol_gets_a_classic_member() -> None:
    story = Story()
    story.link.version = None
    story.subscribe()
    story.find_coordinator()

    story.membership.poll(0)

    assert story.link.request(JoinGroupRequest).group_id == GROUP


@pytest.mark.parametrize(
    ("protocol", "request_kind"),
    [("classic", JoinGroupRequest), ("consumer", ConsumerGroupHeartbeatRequest)],
)
def test_a_protocol_that_is_named_is_used(protocol: str, request_kind: type[Message]) -> None:
    story = Story(group_protocol=protocol)
    story.subscribe()
    story.find_coordinator()

    story.membership.poll(0)

    story.link.request(request_kind)


def test_a_coordinator_that_refuses_the_consumer_protocol_gets_a_classic_member() -> None:
    story = Story()
    story.subscribe()
    story.find_coordinator()
    story.membership.poll(0)

    story.link.answer(ConsumerGroupHeartbeatResponse(error_code=UnsupportedVersion.code))
    story.membership.poll(0)

    assert story.owner.errors == []
    story.link.request(JoinGroupRequest)


def test_without_auto_the_same_refusal_is_told_to_the_user() -> None:
    story = Story(group_protocol="consumer")
    story.subscribe()
    story.find_coordinator()
    story.membership.poll(0)

    story.link.answer(ConsumerGroupHeartbeatResponse(error_code=UnsupportedVersion.code))

    assert [type(each) for each in story.owner.errors] == [UnsupportedVersion]
    assert story.membership.poll(0) is None


# The coordinator.


def test_the_coordinator_is_looked_for_again_with_backoff() -> None:
    story = Story()
    story.subscribe()

    missing = FoundCoordinator(key=GROUP, error_code=CoordinatorNotAvailable.code)
    story.router.answer(FindCoordinatorResponse(coordinators=[missing]))
    due_ms = story.membership.poll(0)
    assert due_ms is not None
    assert 80 <= due_ms <= 120
    assert story.router.calls == []
    story.membership.poll(due_ms)
    story.router.answer(OperationTimeout("nobody there"), due_ms)
    story.membership.poll(10_000)

    story.find_coordinator()
    assert story.owner.errors == []


def test_a_group_that_one_may_not_use_is_told_to_the_user() -> None:
    story = Story()
    story.subscribe()

    refused = FindCoordinatorResponse(error_code=GroupAuthorizationFailed.code)
    story.router.answer(refused)

    assert [type(each) for each in story.owner.errors] == [GroupAuthorizationFailed]


def test_a_connection_that_is_not_there_yet_is_waited_for() -> None:
    story = Story()
    story.subscribe()
    story.link.ready = False

    story.find_coordinator()

    assert story.membership.poll(1_000) == 1_040


def test_a_lost_coordinator_is_found_again() -> None:
    story = Story()
    story.join()

    story.link.hang_up(5_000)
    story.membership.poll(6_000)
    story.find_coordinator()
    story.membership.poll(7_000)

    assert story.link.request(ConsumerGroupHeartbeatRequest).member_epoch == 1


# Polls.


def test_a_user_who_does_not_poll_in_time_loses_his_partitions() -> None:
    story = Story(max_poll_interval_ms=10_000)
    story.join()
    story.membership.leave_poll(0)
    assert story.membership.poll(5_000) == 10_000

    story.membership.poll(10_000)

    event = story.owner.events[-1]
    assert isinstance(event, Lost)
    assert isinstance(event.reason, PollIntervalExceeded)
    assert "not called for 10 s" in str(event.reason)
    assert story.link.request(ConsumerGroupHeartbeatRequest).member_epoch == -1
    story.commit()
    assert isinstance(story.outcomes[0], CommitFailed)
    assert "not called in time" in str(story.outcomes[0])


def test_he_joins_again_with_his_next_poll() -> None:
    story = Story(max_poll_interval_ms=10_000)
    story.join()
    story.membership.leave_poll(0)
    story.membership.poll(10_000)
    story.link.answer(ConsumerGroupHeartbeatResponse())
    story.membership.acknowledge(story.owner.events[-1], 20_000)

    assert story.membership.enter_poll(20_000)
    story.membership.on_poll({}, 20_000)
    story.membership.poll(20_000)

    assert story.link.request(ConsumerGroupHeartbeatRequest).member_epoch == 0
    assert not story.membership.enter_poll(20_001)


def test_a_user_who_waits_in_a_poll_is_there() -> None:
    story = Story(max_poll_interval_ms=10_000)
    story.join()

    story.membership.poll(1_000_000)

    assert isinstance(story.owner.events[-1], Assigned)
    assert story.membership.heartbeats_until_ms(1_000_000) == 1_010_000


# Auto-commit.


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
    story.commit()  # The user's last one, before his listener ends.
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
