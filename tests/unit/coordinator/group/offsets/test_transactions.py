"""TxnOffsetCommit: offsets that count when their transaction commits."""

from __future__ import annotations

import pytest

from millstream.coordinator.decision import ProducerStamp
from millstream.errors import (
    IllegalGeneration,
    InvalidGroupId,
    InvalidTxnState,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from tests.unit.coordinator.group.members import Member, stable
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

ORDERS = ("orders", 0)


@pytest.fixture
def world() -> World:
    return World()


def is_unstable(world: World, *, requires_stable: bool = True) -> bool:
    found = world.fetch(ORDERS, requires_stable=requires_stable)[ORDERS]
    return found.error_code == UnstableOffsetCommit.code


def test_offsets_of_an_open_transaction_are_not_in_force(world: World) -> None:
    world.commit({ORDERS: 5})

    assert only(world.commit_txn({ORDERS: 8})).topics[0].partitions[0].error_code == 0

    assert world.offset_of("orders", 0) == 5
    assert is_unstable(world)
    assert not is_unstable(world, requires_stable=False)
    assert world.fetch(requires_stable=True)[ORDERS].error_code == UnstableOffsetCommit.code


@pytest.mark.parametrize(("is_committed", "offset"), [(True, 8), (False, 5)])
def test_the_end_of_a_transaction_decides(world: World, is_committed: bool, offset: int) -> None:
    world.commit({ORDERS: 5})
    world.commit_txn({ORDERS: 8})

    world.end_txn(is_committed=is_committed)

    assert world.offset_of("orders", 0) == offset
    assert not is_unstable(world)


@pytest.mark.parametrize("is_committed", [True, False, None])
def test_a_takeover_changes_nothing(world: World, is_committed: bool | None) -> None:
    world.commit({ORDERS: 5})
    world.commit_txn({ORDERS: 8})
    if is_committed is not None:
        world.end_txn(is_committed=is_committed)

    world.restart()

    assert world.offset_of("orders", 0) == (8 if is_committed else 5)
    assert is_unstable(world) is (is_committed is None)


def test_a_later_commit_outside_of_the_transaction_stays_in_force(world: World) -> None:
    world.commit_txn({ORDERS: 8})
    world.commit({ORDERS: 9})
    assert is_unstable(world)

    world.end_txn()

    assert world.offset_of("orders", 0) == 9


def test_of_two_transactions_the_later_offset_stays_in_force(world: World) -> None:
    world.commit_txn({ORDERS: 8}, producer=1)
    world.commit_txn({ORDERS: 9}, producer=2)

    world.end_txn(2)
    assert is_unstable(world)
    world.end_txn(1)

    assert world.offset_of("orders", 0) == 9
    assert not is_unstable(world)


def test_of_two_transactions_in_order_the_later_wins_too(world: World) -> None:
    world.commit_txn({ORDERS: 8}, producer=1)
    world.commit_txn({ORDERS: 9}, producer=2)

    world.end_txn(1)
    assert world.offset_of("orders", 0) == 8
    world.end_txn(2)

    assert world.offset_of("orders", 0) == 9


def test_the_last_offset_of_a_transaction_counts(world: World) -> None:
    world.commit_txn({ORDERS: 8, ("payments", 0): 1})
    world.commit_txn({ORDERS: 9})

    world.end_txn()

    assert world.offset_of("orders", 0) == 9
    assert world.offset_of("payments", 0) == 1


def test_a_marker_of_somebody_without_offsets_is_nothing(world: World) -> None:
    world.commit({ORDERS: 5})

    world.end_txn(99)

    assert world.offset_of("orders", 0) == 5


@pytest.mark.parametrize(("version", "adds"), [(4, False), (5, True)])
def test_the_transaction_is_asked_first(world: World, version: int, adds: bool) -> None:
    world.commit_txn({ORDERS: 8}, version=version)

    assert world.transactions.asked == [("txn", ProducerStamp(7, 0), GROUP, adds)]


def test_nothing_is_written_outside_of_a_transaction(world: World) -> None:
    world.transactions.error = InvalidTxnState()

    assert error_of(world.commit_txn({ORDERS: 8})) is InvalidTxnState
    assert world.store.record_count() == 0


def test_a_group_must_have_a_name(world: World) -> None:
    assert error_of(world.commit_txn({ORDERS: 8}, group="")) is InvalidGroupId
    assert world.transactions.asked == []


def test_a_member_of_no_group_is_of_no_generation(world: World) -> None:
    assert error_of(world.commit_txn({ORDERS: 8}, generation=3)) is IllegalGeneration


def test_members_are_checked_and_who_gives_none_is_trusted(world: World) -> None:
    """Producers of before KIP-447 do not say for which member they commit."""
    member = Member(world)
    stable(world, member)

    assert error_of(world.commit_txn({ORDERS: 8}, member="x", generation=1)) is UnknownMemberId
    answers = world.commit_txn({ORDERS: 8}, member=member.member_id, generation=9)
    assert error_of(answers) is IllegalGeneration
    assert error_of(world.commit_txn({ORDERS: 8})) is None


def test_a_transaction_may_commit_while_assignments_are_awaited(world: World) -> None:
    member = Member(world)
    member.join()
    world.pass_ms(3_000)
    assert member.commit("orders", 0, 5) is RebalanceInProgress

    answers = world.commit_txn({ORDERS: 8}, member=member.member_id, generation=1)

    assert error_of(answers) is None


def test_an_old_epoch_of_a_member_is_an_old_generation_to_a_producer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StaleMemberEpoch

    world.commit({ORDERS: 5})
    monkeypatch.setattr(world.classic(), "validate_offset_commit", refuse)

    assert error_of(world.commit_txn({ORDERS: 8})) is IllegalGeneration


def test_deleted_offsets_do_not_come_back_with_a_transaction(world: World) -> None:
    world.commit_txn({ORDERS: 8, ("payments", 0): 1})

    only(world.delete_offsets(ORDERS))
    world.end_txn()

    assert world.offset_of("orders", 0) == -1
    assert world.offset_of("payments", 0) == 1


def test_a_deleted_group_does_not_come_back_with_a_transaction(world: World) -> None:
    world.commit({ORDERS: 5})
    world.commit_txn({ORDERS: 8, ("payments", 0): 1})

    assert world.delete_groups(GROUP).results[0].error_code == 0
    world.end_txn()

    assert world.shard.groups == {}
    assert world.fetch() == {}
