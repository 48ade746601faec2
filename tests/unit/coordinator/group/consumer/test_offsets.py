"""Offsets of consumer groups: who may commit, fetch and delete them, and how long they are kept."""

from __future__ import annotations

import pytest

from millstream.errors import (
    ApiError,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
    class_for_code,
)
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from tests.unit.coordinator.group.consumer.members import CALLER, Consumer, group_of, settle
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

DAY_MS = 86_400_000


def commit(
    world: World, member: str, epoch: int, partition: int = 0, *, version: int = 9
) -> type[ApiError] | None:
    """Commit an offset; the error of the request or of the partition."""
    answers = world.commit(
        {("orders", partition): 5}, member=member, generation=epoch, version=version
    )
    if error_of(answers) is not None:
        return error_of(answers)
    code = only(answers).topics[0].partitions[0].error_code
    return class_for_code(code) if code else None


@pytest.fixture
def world() -> World:
    """A group of two members in epoch 2."""
    world = World()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.join()
    two.join()
    settle(world, one, two)
    assert one.owned == {("orders", 0), ("orders", 1)}
    return world


def test_a_member_commits_in_its_epoch(world: World) -> None:
    assert commit(world, "one", 2) is None
    assert world.offset_of("orders", 0) == 5


def test_what_a_member_has_since_an_older_epoch_it_may_commit_in_that(world: World) -> None:
    assert commit(world, "one", 1, 0) is None
    assert commit(world, "two", 1, 2) is StaleMemberEpoch
    assert commit(world, "one", 1, 2) is StaleMemberEpoch


def test_nobody_commits_in_an_epoch_to_come(world: World) -> None:
    assert commit(world, "one", 3) is StaleMemberEpoch


def test_strangers_commit_only_to_an_empty_group(world: World) -> None:
    assert commit(world, "three", 2) is UnknownMemberId
    assert commit(world, "", -1) is UnknownMemberId
    for name in ("one", "two"):
        Consumer(world, name).leave()
    assert commit(world, "", -1) is None


def test_an_old_client_cannot_commit_for_a_member_of_this_protocol(world: World) -> None:
    assert commit(world, "one", 2, version=8) is UnsupportedVersion


def test_a_producer_that_names_no_member_commits_in_its_transaction(world: World) -> None:
    assert error_of(world.commit_txn({("orders", 0): 8})) is None
    world.end_txn()
    assert world.offset_of("orders", 0) == 8


def fetch(world: World, member: str | None, epoch: int) -> int:
    """The error code of an OffsetFetch."""
    asked = OffsetFetchRequestGroup(
        group_id=GROUP, member_id=member, member_epoch=epoch, topics=None
    )
    codes: list[int] = []
    world.groups.fetch_offsets(
        [asked],
        CALLER._replace(version=9),
        lambda groups: codes.append(groups[0].error_code),
        requires_stable=False,
    )
    return codes[0]


def test_offsets_are_for_members_in_their_epoch_and_for_who_names_none(world: World) -> None:
    assert fetch(world, "one", 2) == 0
    assert fetch(world, None, -1) == 0
    assert fetch(world, "one", 1) == StaleMemberEpoch.code
    assert fetch(world, "three", 2) == UnknownMemberId.code


def test_offsets_in_use_are_not_deleted(world: World) -> None:
    commit(world, "one", 2)
    world.commit({("payments", 0): 3}, member="one", generation=2)
    (used,) = only(world.delete_offsets(("orders", 0))).topics[0].partitions
    (unused,) = only(world.delete_offsets(("payments", 0))).topics[0].partitions
    assert (used.error_code, unused.error_code) == (GroupSubscribedToTopic.code, 0)


def test_a_group_with_members_is_not_deleted(world: World) -> None:
    assert world.delete_groups(GROUP).results[0].error_code == NonEmptyGroup.code


def test_an_empty_group_goes_with_its_last_offset() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join(subscribed_topic_names=[], subscribed_topic_regex="ord.*")
    commit(world, "one", 1)
    one.leave()
    group = group_of(world)
    assert group.is_empty
    world.pass_ms(6 * DAY_MS)
    assert GROUP in world.shard.groups
    world.pass_ms(2 * DAY_MS)
    assert GROUP not in world.shard.groups
    world.restart()
    assert GROUP not in world.shard.groups


def test_an_empty_group_is_deleted_on_request() -> None:
    world = World()
    one = Consumer(world, "one")
    one.join()
    commit(world, "one", 1)
    one.leave()
    assert world.delete_groups(GROUP).results[0].error_code == 0
    world.restart()
    assert world.shard.groups == {}
    assert world.offset_of("orders", 0) == -1


def test_racks_are_part_of_the_problem() -> None:
    world = World()
    world.topics.racks = {("orders", each): frozenset({f"r{each % 2}"}) for each in range(3)}
    one = Consumer(world, "one", rack_id="r0")
    two = Consumer(world, "two", rack_id="r1")
    one.join()
    two.join()
    settle(world, one, two)
    assert two.owned == {("orders", 1)}
