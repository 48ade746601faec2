"""`Membership`: which protocol, which coordinator, whether the user polls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.membership.assignors import resolve
from millstream.client.consumer.membership.events import Assigned, Lost
from millstream.errors import (
    BrokerUnreachable,
    CommitFailed,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    NotCoordinator,
    OperationTimeout,
    PollIntervalExceeded,
    UnsupportedVersion,
)
from millstream.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from millstream.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
)

if TYPE_CHECKING:
    from millstream.protocol.message import Message
from tests.unit.client.consumer.membership.membership_world import (
    Story,
)


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


def test_who_names_assignors_gets_them() -> None:
    story = Story(partition_assignment_strategy=resolve(["sticky"]))
    story.subscribe()
    story.membership.poll(0)
    story.find_coordinator()

    story.membership.poll(0)

    (offered,) = story.link.request(JoinGroupRequest).protocols
    assert offered.name == "sticky"


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


@pytest.mark.parametrize("protocol", ["auto", "consumer"])
def test_a_setting_without_effect_in_the_chosen_protocol_is_told(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story(group_protocol=protocol, session_timeout_ms=10_000)
    story.subscribe()
    story.find_coordinator()
    story.membership.poll(0)

    (line,) = (each for each in caplog.messages if "no effect" in each)
    assert line == (
        "group g uses the consumer protocol, in which settings have no effect: "
        "session_timeout: the group's own consumer.session.timeout.ms counts"
    )


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


# Goodbyes.


def leave(story: Story) -> None:
    story.join()
    story.membership.unsubscribe(0, lambda: story.outcomes.append("left"))
    story.membership.acknowledge(story.owner.events[-1], 0)


def test_a_leave_request_that_was_lost_is_sent_again_to_the_present_coordinator() -> None:
    story = Story()
    leave(story)

    story.link.answer(BrokerUnreachable("gone"), 100)
    due_ms = story.membership.poll(100)
    assert due_ms is not None
    assert due_ms < 300
    story.membership.poll(500)
    story.find_coordinator()
    story.membership.poll(600)
    story.link.answer(ConsumerGroupHeartbeatResponse(error_code=NotCoordinator.code), 600)
    story.membership.poll(1_500)
    story.find_coordinator()
    story.membership.poll(1_600)
    assert story.outcomes == []
    story.link.answer(ConsumerGroupHeartbeatResponse(), 1_700)

    assert story.outcomes == ["left"]


def test_a_leave_request_is_not_sent_for_ever() -> None:
    story = Story()
    leave(story)
    story.link.answer(BrokerUnreachable("gone"), 100)
    story.link.ready = False

    assert story.membership.poll(2_999) is not None
    assert story.outcomes == []
    story.membership.poll(3_000)

    assert story.outcomes == ["left"]
