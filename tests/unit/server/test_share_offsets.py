"""The administration of share groups, and what brokers ask each other about their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.coordinator.routing import partition_for
from millstream.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidRequest,
    NonEmptyGroup,
    NotCoordinator,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from millstream.metadata.topic_names import SHARE_STATE_TOPIC
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from millstream.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from millstream.protocol.messages.write_share_group_state import StateBatch
from tests.unit.server.requests import share_state_request
from tests.unit.server.share_members import (
    ACCEPT,
    GROUP,
    RELEASE,
    ShareMember,
    ack_codes,
    acquired,
    codes,
    configure,
    offsets_in,
    share_broker,
)
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from typing import Any

    from tests.unit.server.harness import Broker


@pytest.fixture
def broker() -> Broker:
    return share_broker()


@pytest.fixture
def ann(broker: Broker) -> ShareMember:
    member = ShareMember(broker)
    member.join()
    return member


def go(member: ShareMember) -> None:
    """Leave, with the share session."""
    member.acknowledge({}, epoch=-1)
    member.session_epoch = 0
    member.leave()
    member.epoch = 0


def described(
    broker: Broker, topics: dict[str, list[int]] | None = None, group: str = GROUP
) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Start offset, lag and error by partition."""
    asked = (
        None
        if topics is None
        else [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )
    answer = broker.ask(
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked)]
        )
    )
    (found,) = answer.groups
    assert found.error_code == 0, found
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag, each.error_code)
        for topic in found.topics
        for each in topic.partitions
    }


def alter(broker: Broker, *offsets: int, topic: str = "orders", group: str = GROUP) -> Any:
    return broker.ask(
        AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(
                            partition_index=index, start_offset=offset
                        )
                        for index, offset in enumerate(offsets)
                    ],
                )
            ],
        )
    )


def delete(broker: Broker, *topics: str, group: str = GROUP) -> Any:
    return broker.ask(
        DeleteShareGroupOffsetsRequest(
            group_id=group,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics],
        )
    )


def test_offsets_and_lag_are_shown(broker: Broker, ann: ShareMember) -> None:
    assert described(broker) == {("orders", 0): (-1, -1, 0), ("orders", 1): (-1, -1, 0)}
    broker.produce(batch_bytes(records=10))
    ann.take()
    ann.acknowledge({0: [(0, 3, [ACCEPT]), (6, 7, [ACCEPT])]})

    assert described(broker, {"orders": [0, 7], "nothing": [0]}) == {
        ("orders", 0): (4, 4, 0),
        ("orders", 7): (-1, -1, UnknownTopicOrPartition.code),
        ("nothing", 0): (-1, -1, UnknownTopicOrPartition.code),
    }


def test_a_topic_that_the_group_never_read_has_no_offset(broker: Broker, ann: ShareMember) -> None:
    broker.create("payments")

    assert described(broker, {"payments": [0]}) == {("payments", 0): (-1, -1, 0)}


def test_a_group_without_members_can_begin_elsewhere(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=10))
    ann.take()
    assert alter(broker, 7).error_code == NonEmptyGroup.code
    go(ann)

    answer = alter(broker, 7)

    assert (answer.error_code, codes(answer)) == (0, {0: 0})
    assert described(broker)["orders", 0] == (7, 3, 0)
    ann.join()
    assert ann.take() == {0: [(7, 9, 1)]}


def test_what_cannot_be_altered_is_said_so(broker: Broker, ann: ShareMember) -> None:
    go(ann)

    assert codes(alter(broker, 1, -5, 3)) == {
        0: 0,
        1: InvalidRequest.code,
        2: UnknownTopicOrPartition.code,
    }
    assert codes(alter(broker, 1, topic="nothing")) == {0: UnknownTopicOrPartition.code}


def test_a_group_that_is_not_there_begins_with_its_offsets(broker: Broker) -> None:
    broker.produce(batch_bytes(records=10))
    assert codes(alter(broker, 1, topic="nothing", group="later")) == {
        0: UnknownTopicOrPartition.code
    }

    assert codes(alter(broker, 7, group="later")) == {0: 0}

    assert described(broker, group="later") == {("orders", 0): (7, 3, 0)}
    ben = ShareMember(broker, "ben", group="later")
    ben.join()
    assert ben.take() == {0: [(7, 9, 1)]}


def test_a_leader_with_members_of_an_altered_group_is_fenced(
    broker: Broker, ann: ShareMember
) -> None:
    broker.produce(batch_bytes(records=10))
    ann.take()
    ann.leave()
    ann.epoch = 0
    alter(broker, 5)

    answer = ann.acknowledge({0: [(0, 9, [ACCEPT])]})

    assert codes(answer) == {0: NotLeaderOrFollower.code}
    assert ann.take() == {0: [(5, 9, 1)]}


def test_a_group_can_forget_a_topic(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=10))
    ann.take()
    ann.acknowledge({0: [(0, 9, [ACCEPT])]})
    assert delete(broker, "orders").error_code == NonEmptyGroup.code
    go(ann)

    answer = delete(broker, "orders", "nothing")

    assert [each.error_code for each in answer.responses] == [0, UnknownTopicOrPartition.code]
    assert described(broker) == {}
    ann.join()
    assert ann.take() == {0: [(0, 9, 1)]}
    assert delete(broker, "orders", group="nobody").error_code == GroupIdNotFound.code


def test_a_deleted_group_begins_anew(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=3))
    ann.take()
    ann.acknowledge({0: [(0, 2, [ACCEPT])]})
    go(ann)

    answer = broker.ask(DeleteGroupsRequest(groups_names=[GROUP]))

    assert answer.results[0].error_code == 0
    gone = broker.ask(ShareGroupDescribeRequest(group_ids=[GROUP])).groups[0]
    assert gone.error_code == GroupIdNotFound.code
    ann.join()
    assert ann.take() == {0: [(0, 2, 1)]}


# The state, as brokers ask for it.


def test_share_state_goes_from_broker_to_broker(broker: Broker) -> None:
    def ask(api: ApiKey, **fields: Any) -> Any:
        return broker.ask(share_state_request(api, broker, **fields)).results[0].partitions[0]

    assert ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, state_epoch=2, start_offset=5).error_code == 0
    batch = StateBatch(first_offset=6, last_offset=8, delivery_state=2, delivery_count=1)
    written = ask(
        ApiKey.WRITE_SHARE_GROUP_STATE,
        state_epoch=2,
        leader_epoch=3,
        start_offset=-1,
        delivery_complete_count=3,
        state_batches=[batch],
    )
    assert written.error_code == 0
    read = ask(ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=4)
    assert (read.state_epoch, read.start_offset) == (2, 5)
    assert [(each.first_offset, each.last_offset) for each in read.state_batches] == [(6, 8)]
    assert ask(ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=3).error_code == FencedLeaderEpoch.code
    stale = ask(ApiKey.WRITE_SHARE_GROUP_STATE, state_epoch=1, leader_epoch=4)
    assert stale.error_code == FencedStateEpoch.code
    summary = ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, leader_epoch=4)
    assert (summary.start_offset, summary.delivery_complete_count) == (5, 3)
    assert ask(ApiKey.DELETE_SHARE_GROUP_STATE).error_code == 0
    assert ask(ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=4).error_code == InvalidRequest.code


# When the coordinator cannot keep something.


def until_given_up(broker: Broker) -> None:
    """Let the time pass in which a coordinator is asked again and again."""
    for _ in range(20):
        broker.pass_time(1_000)


def test_what_is_not_kept_can_be_said_again(
    broker: Broker, ann: ShareMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(batch_bytes(records=3))
    ann.take()
    states = broker.coordinators.facades.shares.states
    with monkeypatch.context() as patched:
        patched.setattr(states, "write", lambda *given: given[-1](NotCoordinator("not here")))
        call = ann.call_fetch(acks={0: [(0, 2, [ACCEPT])]})
        assert call.is_pending, "it is tried again for a while"
        until_given_up(broker)
        assert ack_codes(call.response)[0] != 0

    assert codes(ann.acknowledge({0: [(0, 2, [ACCEPT])]})) == {0: 0}


def test_locks_end_even_if_that_cannot_be_kept(
    broker: Broker, ann: ShareMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(batch_bytes(records=3))
    ann.take()
    states = broker.coordinators.facades.shares.states
    with monkeypatch.context() as patched:
        patched.setattr(states, "write", lambda *given: given[-1](NotCoordinator("not here")))
        broker.pass_time(30_000)
        until_given_up(broker)

    assert ann.take() == {0: [(0, 2, 2)]}


def test_a_fetch_waits_while_the_state_cannot_be_read(
    broker: Broker, ann: ShareMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce(batch_bytes(records=3))
    states = broker.coordinators.facades.shares.states
    with monkeypatch.context() as patched:
        patched.setattr(states, "read", lambda *given: given[-1](NotCoordinator("not here")))
        call = ann.call_fetch(max_wait_ms=500)
        assert call.is_pending
        broker.pass_time(500)
    assert acquired(call.response) == {}

    answer = ann.fetch()

    assert acquired(answer) == {0: [(0, 2, 1)]}
    assert offsets_in(answer) == [0, 1, 2]


def test_a_partition_of_another_leader_is_said_to_be_so(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=3))
    ann.take()
    call = ann.call_fetch(max_wait_ms=500)
    broker.partition().resign()
    broker.pass_time(500)

    assert codes(call.response)[0] == NotLeaderOrFollower.code
    assert codes(ann.acknowledge({0: [(0, 2, [RELEASE])]})) == {0: NotLeaderOrFollower.code}
    configure(broker, ("share.isolation.level", "read_committed"))
    assert codes(ann.fetch()) == {0: NotLeaderOrFollower.code}


# The log of the states.


def test_the_log_of_the_states_is_shortened(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=50))
    ann.take()
    for offset in range(50):
        ann.acknowledge({0: [(offset, offset, [ACCEPT])]})
    topic_id = broker.metadata.topic_id("orders")
    count = broker.metadata.partition_count(SHARE_STATE_TOPIC) or 0
    place = partition_for(f"{GROUP}:{topic_id}:0", count)
    log = broker.partition(SHARE_STATE_TOPIC, place).log
    assert log.log_start_offset == 0
    before = log.log_end_offset

    broker.pass_time(300_000)

    assert log.log_start_offset == before
    assert described(broker)["orders", 0] == (50, 0, 0)


def test_nothing_is_left_of_a_deleted_topic(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=3))
    ann.take()
    shares = broker.coordinators.facades.shares
    (shard,) = [each for each in shares.states._runtime.shards if each.states][:1]
    assert shard.states

    broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")]))

    assert not any(each.states for each in shares.states._runtime.shards)
    assert described(broker) == {}
    broker.pass_time(30_000)
