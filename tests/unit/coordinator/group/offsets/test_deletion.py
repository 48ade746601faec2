"""What becomes of offsets: deleted, expired, or gone with their topic."""

from __future__ import annotations

import pytest

from millstream.coordinator.group.config import GroupConfig
from millstream.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidGroupId,
    NonEmptyGroup,
    NotEnoughReplicas,
    UnknownTopicOrPartition,
)
from millstream.types import Uuid
from tests.unit.coordinator.group.members import Member, stable
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

ORDERS, PAYMENTS = ("orders", 0), ("payments", 0)
MINUTE_MS = 60_000
CONFIG = GroupConfig(offsets_retention_minutes=60, offsets_retention_check_interval_ms=MINUTE_MS)
HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def world() -> World:
    return World(CONFIG)


def keep_alive(world: World, member: Member, ms: int) -> None:
    for _ in range(ms // 9_000 + 1):
        world.pass_ms(9_000)
        assert error_of(member.heartbeat()) is None


# OffsetDelete.


def test_offsets_are_deleted_for_good(world: World) -> None:
    world.commit({ORDERS: 5, PAYMENTS: 6})

    answer = only(world.delete_offsets(ORDERS, ("orders", 1)))

    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, 0]
    world.restart()
    assert world.offset_of("orders", 0) == -1
    assert world.offset_of("payments", 0) == 6


def test_offsets_of_topics_that_are_read_are_not_deleted(world: World) -> None:
    member = Member(world)
    stable(world, member)
    member.commit("orders", 0, 5)
    member.commit("payments", 0, 6)

    answer = only(world.delete_offsets(ORDERS, PAYMENTS, ("nowhere", 0), ("orders", 7)))

    codes = [topic.partitions[0].error_code for topic in answer.topics]
    unknown = UnknownTopicOrPartition.code
    assert codes == [GroupSubscribedToTopic.code, 0, unknown, unknown]
    assert world.offset_of("orders", 0) == 5
    assert world.offset_of("payments", 0) == -1


def test_the_topics_of_a_shortened_subscription_are_known(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """kafkajs announces version 1 of its subscription and leaves its last field out."""
    member = Member(world)
    blob = member.metadata()
    member.metadata = lambda: b"\0\1" + blob[2:]  # type: ignore[method-assign]  # as kafkajs does
    stable(world, member)
    member.commit("orders", 0, 5)
    member.commit("payments", 0, 6)

    answer = only(world.delete_offsets(ORDERS, PAYMENTS))

    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [GroupSubscribedToTopic.code, 0]
    assert caplog.text == ""


def test_members_that_are_no_consumers_keep_all_their_offsets(world: World) -> None:
    member = Member(world)
    member.protocol_type = "connect"
    stable(world, member)

    assert error_of(world.delete_offsets(ORDERS)) is NonEmptyGroup


def test_offsets_of_nobody_cannot_be_deleted(world: World) -> None:
    assert error_of(world.delete_offsets(ORDERS)) is GroupIdNotFound
    assert error_of(world.delete_offsets(ORDERS, group="")) is InvalidGroupId


# DeleteGroups.


def test_an_empty_group_is_deleted_with_its_offsets(world: World) -> None:
    member = Member(world)
    stable(world, member)
    member.commit("orders", 0, 5)
    assert world.delete_groups(GROUP).results[0].error_code == NonEmptyGroup.code
    member.leave()

    answer = world.delete_groups(GROUP, "nobody", GROUP)

    codes = {each.group_id: each.error_code for each in answer.results}
    assert codes == {GROUP: 0, "nobody": GroupIdNotFound.code}
    world.restart()
    assert world.shard.groups == {}
    assert world.shard.offsets.committed.count == 0


def test_an_id_given_out_by_a_deleted_group_does_no_harm(world: World) -> None:
    member = Member(world)
    member.ask_to_join()

    world.delete_groups(GROUP)
    world.pass_ms(HOUR_MS)

    assert len(world.shard.timers) == 0


# Expiry.


def test_offsets_of_a_group_without_members_go_after_their_retention(world: World) -> None:
    member = Member(world)
    stable(world, member)
    member.commit("orders", 0, 5)
    keep_alive(world, member, 2 * HOUR_MS)
    member.leave()

    world.pass_ms(HOUR_MS - 2 * MINUTE_MS)
    assert world.offset_of("orders", 0) == 5

    world.pass_ms(3 * MINUTE_MS)
    assert world.shard.groups == {}
    world.restart()
    assert world.shard.groups == {}


def test_offsets_without_a_group_go_after_their_retention(world: World) -> None:
    world.commit({ORDERS: 5})
    world.pass_ms(HOUR_MS - 5 * MINUTE_MS)
    world.commit({PAYMENTS: 6})

    world.pass_ms(6 * MINUTE_MS)

    assert world.offset_of("orders", 0) == -1
    assert world.offset_of("payments", 0) == 6
    assert world.classic().is_empty


def test_consumers_keep_what_they_read_and_lose_the_rest(world: World) -> None:
    member = Member(world)
    stable(world, member)
    member.commit("orders", 0, 5)
    member.commit("payments", 0, 6)

    keep_alive(world, member, HOUR_MS + MINUTE_MS)

    assert world.offset_of("orders", 0) == 5
    assert world.offset_of("payments", 0) == -1


@pytest.mark.parametrize("why", ["unreadable subscriptions", "no consumers", "rebalancing"])
def test_nothing_goes_while_it_is_not_known_what_is_read(world: World, why: str) -> None:
    member = Member(world, session_ms=1_800_000, rebalance_ms=1_800_000)
    if why == "no consumers":
        member.protocol_type = "connect"
    elif why == "unreadable subscriptions":
        member.metadata = lambda: b"\0"  # type: ignore[method-assign]  # Not what consumers say.
    stable(world, member)
    member.commit("payments", 0, 6)
    for _ in range(8):
        world.pass_ms(HOUR_MS // 4)
        member.heartbeat()
        if why == "rebalancing":
            Member(world, "b", session_ms=1_800_000, rebalance_ms=1_800_000).join()

    assert world.offset_of("payments", 0) == 6


def test_offsets_of_open_transactions_are_not_touched(world: World) -> None:
    world.commit({ORDERS: 5})
    world.commit_txn({ORDERS: 8})

    world.pass_ms(2 * HOUR_MS)
    assert world.offset_of("orders", 0) == 5

    world.end_txn(is_committed=False)
    world.pass_ms(2 * MINUTE_MS)
    assert world.shard.groups == {}


def test_a_group_with_only_an_open_transaction_stays(world: World) -> None:
    world.commit_txn({ORDERS: 8})

    world.pass_ms(2 * HOUR_MS)
    assert GROUP in world.shard.groups

    world.end_txn()
    assert world.offset_of("orders", 0) == 8


def test_old_clients_say_themselves_how_long(world: World) -> None:
    world.commit({ORDERS: 5}, version=4, retention_ms=2 * HOUR_MS)
    world.commit({PAYMENTS: 6}, version=4, retention_ms=MINUTE_MS)

    world.pass_ms(HOUR_MS + 2 * MINUTE_MS)

    assert world.offset_of("orders", 0) == 5
    assert world.offset_of("payments", 0) == -1


def test_a_group_that_nobody_ever_entered_goes_unless_somebody_may_come(world: World) -> None:
    member = Member(world, session_ms=90_000)
    member.ask_to_join()

    world.pass_ms(MINUTE_MS)
    assert GROUP in world.shard.groups

    world.pass_ms(MINUTE_MS)
    assert world.shard.groups == {}


def test_nobody_looks_while_there_is_nothing(world: World) -> None:
    assert len(world.shard.timers) == 0
    world.commit({ORDERS: 5})
    assert len(world.shard.timers) == 1

    world.pass_ms(HOUR_MS + 2 * MINUTE_MS)

    assert len(world.shard.timers) == 0


def test_expiry_goes_on_after_a_takeover(world: World) -> None:
    world.commit({ORDERS: 5})

    world.restart()
    world.pass_ms(HOUR_MS + MINUTE_MS)

    assert world.shard.groups == {}


def test_what_could_not_be_deleted_is_deleted_later(world: World) -> None:
    world.commit({ORDERS: 5})
    world.store.failure = NotEnoughReplicas()
    world.pass_ms(HOUR_MS + MINUTE_MS)
    assert world.offset_of("orders", 0) == 5

    world.store.failure = None
    world.pass_ms(2 * MINUTE_MS)

    assert world.shard.groups == {}


# Topics that are deleted.


def test_offsets_go_with_their_topic(world: World) -> None:
    world.commit({ORDERS: 5, PAYMENTS: 6})
    world.commit_txn({("orders", 1): 7})
    orders_id = world.topics.topic_id("orders")
    assert orders_id is not None

    world.groups.topics_deleted({"orders": orders_id})
    world.end_txn()

    world.restart()
    assert set(world.fetch()) == {PAYMENTS}


def test_offsets_of_a_namesake_stay(world: World) -> None:
    world.commit({ORDERS: 5})

    world.groups.topics_deleted({"orders": Uuid(b"another topic id")})

    assert world.offset_of("orders", 0) == 5
