"""OffsetCommit and OffsetFetch: what is stored, who may store it, and how it is found."""

from __future__ import annotations

import pytest

from millstream.coordinator.decision import Caller
from millstream.coordinator.group.config import GroupConfig
from millstream.errors import (
    ApiError,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from millstream.protocol.messages.offset_commit import OffsetCommitResponse
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.records import RecordBatch
from millstream.types import Uuid
from tests.unit.coordinator.group.members import Member, stable
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

ORDERS = ("orders", 0)


@pytest.fixture
def world() -> World:
    return World()


def code_of(answers: object) -> int:
    """The error code of the only partition."""
    assert isinstance(answers, list)
    return int(only(answers).topics[0].partitions[0].error_code)


# Who may commit.


def test_anybody_may_commit_for_a_group_that_does_not_exist(world: World) -> None:
    assert code_of(world.commit({ORDERS: 5})) == 0

    found = world.fetch(ORDERS)[ORDERS]
    assert (found.committed_offset, found.committed_leader_epoch) == (5, 4)
    assert world.classic().is_empty
    assert world.classic().protocol_type is None


@pytest.mark.parametrize(("version", "error"), [(9, GroupIdNotFound), (8, IllegalGeneration)])
def test_a_member_of_no_group_is_refused(world: World, version: int, error: type) -> None:
    answers = world.commit({ORDERS: 5}, member="m", generation=1, version=version)

    assert error_of(answers) is error
    assert world.shard.groups == {}


def test_members_of_the_generation_commit(world: World) -> None:
    member = Member(world)
    stable(world, member)

    assert member.commit("orders", 0, 5) is None
    member.generation += 1
    assert member.commit("orders", 0, 6) is IllegalGeneration
    member.member_id = "stranger"
    assert member.commit("orders", 0, 6) is UnknownMemberId
    assert world.offset_of("orders", 0) == 5


def test_nobody_else_commits_for_a_group_with_members(world: World) -> None:
    stable(world, Member(world))

    assert error_of(world.commit({ORDERS: 5})) is UnknownMemberId


def test_a_group_without_members_is_anybodys_again(world: World) -> None:
    member = Member(world)
    stable(world, member)
    member.leave()

    assert code_of(world.commit({ORDERS: 5})) == 0
    assert member.commit("orders", 0, 6) is UnknownMemberId


def test_members_commit_before_they_join_again_but_not_after(world: World) -> None:
    first, second = Member(world, "a"), Member(world, "b")
    stable(world, first)
    second.join()

    assert first.commit("orders", 0, 5) is None
    first.join()
    assert first.commit("orders", 0, 6) is RebalanceInProgress


# What is refused.


def test_a_long_text_is_refused_and_the_rest_is_stored() -> None:
    world = World(GroupConfig(offset_metadata_max_bytes=3))

    assert code_of(world.commit({ORDERS: 5}, metadata="long")) == OffsetMetadataTooLarge.code
    assert world.shard.groups == {}
    assert code_of(world.commit({ORDERS: 5}, metadata="abc")) == 0
    assert world.fetch(ORDERS)[ORDERS].metadata == "abc"


def test_no_text_is_an_empty_one(world: World) -> None:
    world.commit({ORDERS: 5}, metadata=None)

    assert world.fetch(ORDERS)[ORDERS].metadata == ""


@pytest.mark.parametrize("place", [("nowhere", 0), ("orders", 3), ("orders", -1)])
def test_a_partition_that_does_not_exist_is_refused(world: World, place: tuple[str, int]) -> None:
    answer = only(world.commit({place: 5, ORDERS: 6}))

    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [UnknownTopicOrPartition.code, 0]
    assert world.offset_of("orders", 0) == 6


def test_what_cannot_be_written_is_not_in_force(world: World) -> None:
    world.commit({ORDERS: 5})
    world.store.failure = NotEnoughReplicas()

    assert error_of(world.commit({ORDERS: 6})) is CoordinatorNotAvailable
    assert world.offset_of("orders", 0) == 5


def test_a_commit_is_answered_when_it_is_safe(world: World) -> None:
    world.store.holds_commits = True

    answers = world.commit({ORDERS: 5})
    assert answers == []

    world.store.commit()
    assert code_of(answers) == 0


# Topic ids.


def test_topics_go_by_id_from_version_10_on(world: World) -> None:
    answer = only(world.commit({ORDERS: 5, ("nowhere", 0): 6}, version=10))

    assert answer.topics[0].topic_id == world.topics.topic_id("orders")
    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [0, UnknownTopicId.code]
    assert world.fetch(ORDERS, version=10)[ORDERS].committed_offset == 5
    assert world.offset_of("orders", 0) == 5


def test_an_id_nobody_knows_has_no_offsets(world: World) -> None:
    found = world.fetch(("nowhere", 1), version=10)

    assert found[("", 1)].error_code == UnknownTopicId.code


def test_offsets_of_a_topic_that_was_deleted_are_not_of_its_namesake(world: World) -> None:
    world.commit({ORDERS: 5})

    world.topics.ids["orders"] = Uuid(bytes(15) + b"\x07")

    assert world.offset_of("orders", 0) == -1
    assert world.fetch()[ORDERS].committed_offset == -1


# Fetching.


def test_what_was_never_committed_is_no_error(world: World) -> None:
    assert world.offset_of("orders", 0) == -1
    world.commit({ORDERS: 5})

    found = world.fetch(("orders", 1))[("orders", 1)]

    assert (found.committed_offset, found.error_code) == (-1, 0)


def test_all_offsets_of_a_group_are_found(world: World) -> None:
    world.commit({ORDERS: 5, ("payments", 1): 6})
    world.commit({ORDERS: 9}, group="others")

    found = {place: each.committed_offset for place, each in world.fetch().items()}

    assert found == {ORDERS: 5, ("payments", 1): 6}
    assert world.fetch(group="nobody") == {}


def test_topics_that_are_gone_have_no_id_to_be_named_by(world: World) -> None:
    world.commit({ORDERS: 5, ("payments", 1): 6})
    del world.topics.counts["orders"]

    assert set(world.fetch(version=10)) == {("payments", 1)}
    assert set(world.fetch(version=9)) == {ORDERS, ("payments", 1)}


def test_several_groups_are_asked_at_once_and_fail_each_for_itself(world: World) -> None:
    world.commit({ORDERS: 5})
    answers: list[object] = []
    asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (GROUP, "nobody")]
    caller = Caller("c", "/host", 9)

    world.groups.fetch_offsets(asked, caller, answers.append, requires_stable=False)
    world.groups.fetch_offsets([], caller, answers.append, requires_stable=False)
    world.runtime.close()
    world.groups.fetch_offsets(asked, caller, answers.append, requires_stable=False)

    found, none, failed = answers
    assert isinstance(found, list)
    assert isinstance(failed, list)
    assert [(each.group_id, len(each.topics)) for each in found] == [(GROUP, 1), ("nobody", 0)]
    assert none == []
    assert [each.error_code for each in failed] == [NotCoordinator.code] * 2


def test_a_fetch_that_takes_too_long_sends_consumers_to_look_for_the_coordinator(
    world: World,
) -> None:
    world.store.holds_commits = True
    world.commit({ORDERS: 5})
    answers: list[list[object]] = []
    asked = [OffsetFetchRequestGroup(group_id=GROUP, topics=None)]
    caller = Caller("c", "/host", 9)
    world.groups.fetch_offsets(
        asked, caller, lambda found: answers.append(list(found)), requires_stable=False
    )
    assert answers == []

    world.store.commit(RequestTimedOut())

    assert error_of(answers[0]) in (NotCoordinator, CoordinatorNotAvailable)


# Records.


def test_offsets_are_there_again_after_a_takeover(world: World) -> None:
    world.commit({ORDERS: 5, ("payments", 1): 6}, metadata="note")
    world.commit({ORDERS: 7})

    world.restart()

    found = {place: each.committed_offset for place, each in world.fetch().items()}
    assert found == {ORDERS: 7, ("payments", 1): 6}
    assert world.shard.offsets.committed.count == 2
    assert world.fetch(("payments", 1))[("payments", 1)].metadata == "note"


@pytest.mark.parametrize("retention_ms", [2**63 - 1, -(2**63), 0, -2])
def test_no_retention_is_too_long_to_be_written(world: World, retention_ms: int) -> None:
    (answer,) = world.commit({ORDERS: 5}, version=3, retention_ms=retention_ms)

    assert isinstance(answer, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0
    assert len(world.store.batches[0]) == 1


@pytest.mark.parametrize(("retention_ms", "version"), [(-1, 4), (60_000, 1)])
def test_records_have_the_versions_that_kafka_writes(
    world: World, retention_ms: int, version: int
) -> None:
    world.commit({ORDERS: 5}, retention_ms=retention_ms)

    (record,) = RecordBatch(world.store.batches[0][0]).records()
    assert record.key is not None
    assert record.value is not None
    assert bytes(record.key)[:2] == b"\x00\x01"
    assert bytes(record.value)[:2] == bytes([0, version])


def test_groups_have_the_version_that_kafka_writes(world: World) -> None:
    stable(world, Member(world))

    for batch in world.store.batches[0]:
        (record,) = RecordBatch(batch).records()
        assert record.key is not None
        assert record.value is not None
        assert bytes(record.key)[:2] == b"\x00\x02"
        assert bytes(record.value)[:2] == b"\x00\x03"


def test_records_of_the_oldest_form_are_understood(world: World) -> None:
    key = LegacyOffsetCommitKey(group=GROUP, topic="orders", partition=0)
    value = LegacyOffsetCommitValue(offset=5, metadata="note", commit_timestamp=1)

    world.shard.replay(key, value, None)
    assert world.offset_of("orders", 0) == 5

    world.shard.replay(key, None, None)
    assert world.offset_of("orders", 0) == -1


def test_checks_of_single_partitions_are_asked(world: World) -> None:
    """As groups of the consumer protocol refuse partitions that a member has lost."""

    class Picky:
        def __getattr__(self, name: str) -> object:
            return getattr(group, name)

        def validate_offset_commit(self, origin: object, now_ms: int) -> object:
            def check(topic: str, topic_id: Uuid, partition: int) -> None:
                if partition == 1:
                    raise IllegalGeneration

            return check

    world.commit({ORDERS: 5})
    group = world.classic()
    world.shard.groups[GROUP] = Picky()  # type: ignore[assignment]  # As much as is needed.

    answer = only(world.commit({("orders", 1): 5, ORDERS: 6}))

    codes = [topic.partitions[0].error_code for topic in answer.topics]
    assert codes == [IllegalGeneration.code, 0]
    assert issubclass(IllegalGeneration, ApiError)
