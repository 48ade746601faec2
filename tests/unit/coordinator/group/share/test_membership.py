"""Members of share groups: joining, going on, leaving, and what they are assigned."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.coordinator.group.group import CommitOrigin
from millstream.coordinator.group.share.config import ShareGroupConfig
from millstream.coordinator.share.state import ShareKey
from millstream.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidConfig,
    InvalidRequest,
    UnknownMemberId,
)
from tests.unit.coordinator.group.share.share_world import (
    GROUP,
    NOT_NOW,
    SESSION_MS,
    ShareWorld,
)


def test_who_joins_gets_all_partitions_with_the_answer() -> None:
    world = ShareWorld()

    answer = world.beat("ann", 0, ["orders"])

    assert answer.heartbeat_interval_ms == 5000
    (topic,) = answer.assignment.topic_partitions
    assert topic.partitions == [0, 1, 2]
    assert world.assigned("ann") == {"orders": [0, 1, 2]}
    assert world.group().state_name == "Stable"


def test_members_share_partitions() -> None:
    world = ShareWorld()
    epochs = {name: world.join(name) for name in ("ann", "bob", "cid", "dan")}
    for name, epoch in epochs.items():
        world.beat(name, epoch)

    readers = sorted(each for name in epochs for each in world.assigned(name)["orders"])

    assert set(readers) == {0, 1, 2}
    assert len(readers) == 4


def test_an_assignment_is_told_once() -> None:
    world = ShareWorld()
    epoch = world.join("ann")

    assert world.beat("ann", epoch).assignment is None
    world.join("bob")
    answer = world.beat("ann", epoch)
    assert answer.assignment is not None
    assert answer.member_epoch > epoch
    assert world.beat("ann", answer.member_epoch).assignment is None


def test_a_full_heartbeat_is_told_the_assignment_again() -> None:
    world = ShareWorld()
    epoch = world.join("ann")

    assert world.beat("ann", epoch, ["orders"]).assignment is not None


def test_another_subscription_is_another_assignment() -> None:
    world = ShareWorld()
    epoch = world.join("ann")

    epoch = world.beat("ann", epoch, ["payments"]).member_epoch
    answer = world.beat("ann", epoch)

    assert answer.assignment is not None
    assert world.assigned("ann") == {"payments": [0, 1]}


def test_a_member_may_be_one_epoch_behind_but_not_more() -> None:
    world = ShareWorld()
    first = world.join("ann")
    world.join("bob")
    second = world.beat("ann", first).member_epoch

    assert world.beat("ann", first).member_epoch == second
    assert world.refusal("ann", member_epoch=second + 1) is FencedMemberEpoch
    assert world.refusal("ann", member_epoch=first - 1) is FencedMemberEpoch


def test_strangers_are_not_known() -> None:
    world = ShareWorld()
    assert world.refusal("ann", member_epoch=3) is GroupIdNotFound
    world.join("ann")

    assert world.refusal("bob", member_epoch=3) is UnknownMemberId
    assert world.refusal("bob", member_epoch=-1) is UnknownMemberId


def test_who_leaves_leaves_its_partitions_to_the_others() -> None:
    world = ShareWorld()
    epoch = world.join("ann")
    world.join("bob")

    answer = world.beat("bob", -1)

    assert answer.member_epoch == -1
    world.beat("ann", epoch)
    assert world.assigned("ann") == {"orders": [0, 1, 2]}


def test_a_silent_member_is_dropped() -> None:
    world = ShareWorld()
    epoch = world.join("ann")
    world.pass_ms(SESSION_MS - 1)
    world.beat("ann", epoch)
    world.pass_ms(SESSION_MS - 1)
    assert "ann" in world.group().members

    world.pass_ms(1)

    assert world.group().members == {}
    assert world.group().state_name == "Empty"


def test_another_coordinator_knows_everything_and_waits_a_whole_session() -> None:
    world = ShareWorld()
    epoch = world.join("ann")
    before = world.group()
    world.pass_ms(SESSION_MS - 1)

    world.restart()

    after = world.group()
    assert vars(after) == vars(before)
    world.pass_ms(SESSION_MS - 1)
    assert world.beat("ann", epoch).member_epoch == epoch


def test_a_group_has_only_so_many_members() -> None:
    world = ShareWorld()
    config = ShareGroupConfig(max_size=2)
    world.shard.shares._settings = lambda _: config.settings({})
    world.join("ann")
    world.join("bob")

    assert (
        world.refusal("cid", member_epoch=0, subscribed_topic_names=["orders"])
        is GroupMaxSizeReached
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"member_epoch": -2},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
    ],
)
def test_heartbeats_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    world = ShareWorld()
    asked: dict[str, Any] = {"member_epoch": 0, "subscribed_topic_names": ["orders"]}

    assert world.refusal("ann", **(asked | fields)) is InvalidRequest


def test_a_group_of_another_kind_has_no_share_members() -> None:
    world = ShareWorld()
    world.shard.classic.create(GROUP)

    assert (
        world.refusal("ann", member_epoch=0, subscribed_topic_names=["orders"]) is GroupIdNotFound
    )


# Topics and their state.


def test_a_topic_is_assigned_when_its_state_has_begun() -> None:
    world = ShareWorld()
    world.states.holds = True

    answers = world.ask("ann", member_epoch=0, subscribed_topic_names=["orders"])

    assert answers == []
    assert world.group().state.initializing
    world.states.go_on()
    assert len(answers) == 1
    assert world.assigned("ann") == {"orders": [0, 1, 2]}
    orders = world.topics.topic_id("orders")
    assert orders is not None
    assert world.states.started == {ShareKey(GROUP, orders, each): (1, -1) for each in range(3)}
    assert world.group().state.initializing == {}


def test_who_joins_while_state_begins_does_not_wait() -> None:
    world = ShareWorld()
    world.states.holds = True
    world.ask("ann", member_epoch=0, subscribed_topic_names=["orders"])

    answer = world.beat("bob", 0, ["orders"])

    assert answer.assignment.topic_partitions == []


def test_state_that_could_not_begin_is_tried_again() -> None:
    world = ShareWorld()
    world.states.error = NOT_NOW
    answer = world.beat("ann", 0, ["orders"])
    assert answer.assignment.topic_partitions == []
    assert world.group().state.initializing == {}
    world.states.error = None

    epoch = world.beat("ann", answer.member_epoch).member_epoch
    world.beat("ann", epoch)

    assert world.assigned("ann") == {"orders": [0, 1, 2]}


def test_partitions_that_are_added_are_assigned_too() -> None:
    world = ShareWorld()
    epoch = world.join("ann")
    world.topics.counts["orders"] = 5

    epoch = world.beat("ann", epoch).member_epoch
    world.beat("ann", epoch)

    assert world.assigned("ann") == {"orders": [0, 1, 2, 3, 4]}


def test_a_topic_that_does_not_exist_yet_is_waited_for() -> None:
    world = ShareWorld()
    epoch = world.join("ann", "later")
    assert world.assigned("ann") == {}
    world.topics.counts["later"] = 1

    epoch = world.beat("ann", epoch).member_epoch
    world.beat("ann", epoch)

    assert world.assigned("ann") == {"later": [0]}


def test_state_goes_with_its_topic() -> None:
    world = ShareWorld()
    epoch = world.join("ann", "orders", "payments")
    orders = world.topics.topic_id("orders")
    assert orders is not None
    del world.topics.counts["orders"]

    world.shares.topics_deleted({"orders": orders})

    assert {key.topic_id for key in world.states.started} == {world.topics.topic_id("payments")}
    assert world.group().state.deleting == {}
    world.beat("ann", epoch)
    assert world.assigned("ann") == {"payments": [0, 1]}


# Deleting groups, and what share groups are not.


def codes(world: ShareWorld, *groups: str) -> list[int]:
    return [each.error_code for each in world.delete_groups(*groups).results]


def test_a_deleted_group_leaves_no_state() -> None:
    world = ShareWorld()
    world.join("ann")
    assert codes(world, GROUP) == [68]
    world.beat("ann", -1)

    assert codes(world, GROUP) == [0]

    assert world.states.started == {}
    assert GROUP not in world.shard.groups
    world.restart()
    assert GROUP not in world.shard.groups


def test_a_group_whose_state_cannot_be_deleted_stays() -> None:
    world = ShareWorld()
    world.join("ann")
    world.beat("ann", -1)
    world.states.error = NOT_NOW

    assert codes(world, GROUP) == [NOT_NOW.code]

    orders = world.topics.topic_id("orders")
    assert world.group().state.deleting == {orders: "orders"}
    world.states.error = None
    assert codes(world, GROUP) == [0]


def test_share_groups_have_no_committed_offsets() -> None:
    world = ShareWorld()
    world.join("ann")
    group = world.group()

    with pytest.raises(GroupIdNotFound):
        group.validate_offset_commit(CommitOrigin("", None, -1, 9, is_transactional=False), 0)
    with pytest.raises(GroupIdNotFound):
        group.validate_offset_fetch(None, -1)
    with pytest.raises(GroupIdNotFound):
        group.validate_offset_delete()
    assert group.retention_start_ms(0) is None
    assert not group.is_expirable
    assert group.is_subscribed_to("orders")
    assert not group.is_subscribed_to("payments")


def test_a_description_says_who_reads_what() -> None:
    world = ShareWorld()
    world.join("ann")
    found: list[Any] = []

    world.shares.describe([GROUP, "nobody"], found.append)

    described, missing = found[0].groups
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    (member,) = described.members
    assert (member.member_id, member.client_host) == ("ann", "/10.0.0.1")
    assert member.subscribed_topic_names == ["orders"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_name, topic.partitions) == ("orders", [0, 1, 2])
    assert (missing.error_code, missing.group_state) == (GroupIdNotFound.code, "")


# Settings.


def test_a_groups_settings_stay_within_the_brokers() -> None:
    config = ShareGroupConfig()

    settings = config.settings(
        {
            "share.session.timeout.ms": "50000",
            "share.record.lock.duration.ms": "1000",
            "share.delivery.count.limit": "99",
            "share.isolation.level": "read_committed",
            "share.renew.acknowledge.enable": "false",
        }
    )

    assert settings.session_timeout_ms == 50_000
    assert settings.record_lock_duration_ms == 15_000
    assert settings.delivery_count_limit == 10
    assert settings.is_read_committed
    assert not settings.allows_renewal
    assert settings.auto_offset_reset == "latest"


def test_a_default_must_be_within_its_limits() -> None:
    with pytest.raises(InvalidConfig, match=r"group\.share\.heartbeat\.interval\.ms"):
        ShareGroupConfig(heartbeat_interval_ms=20_000)
