"""A share partition, rule by rule."""

from __future__ import annotations

import pytest

from millstream.coordinator.share.delivery import (
    Acknowledgement,
    AcquireRequest,
    ReadBatches,
    ShareLimits,
)
from millstream.coordinator.share.partition import SharePartition
from millstream.coordinator.share.state import StateBatch
from millstream.errors import InvalidRecordState, InvalidRequest

LIMITS = ShareLimits(lock_duration_ms=100, delivery_count_max=5, record_locks_max=100)
GAP, ACCEPT, RELEASE, REJECT = range(4)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def partition(
    *batches: tuple[int, int, int, int], start: int = 0, limits: ShareLimits = LIMITS
) -> SharePartition:
    return SharePartition(start, [StateBatch(*each) for each in batches], limits)


def take(
    share: SharePartition,
    *batches: tuple[int, int],
    member: str = "ann",
    most: int = 1000,
    strict: bool = False,
    withheld: list[tuple[int, int]] | None = None,
    batch_size: int = 1000,
    now_ms: int = 0,
) -> list[tuple[int, int, int]]:
    offset = share.fetch_offset
    assert offset is not None
    request = AcquireRequest(member, most, batch_size, strict)
    read = ReadBatches(offset, [each for each in batches if each[1] >= offset], withheld or [])
    return [tuple(each) for each in share.acquire(request, read, now_ms)]  # type: ignore[misc]


def say(
    share: SharePartition, first: int, last: int, *types: int, member: str = "ann"
) -> tuple[StateBatch, ...]:
    """Acknowledge, and keep it."""
    update = share.acknowledge(member, [Acknowledgement(first, last, types)], 0)
    assert update is not None
    share.commit(update)
    return update.batches


def test_a_share_partition_goes_on_where_it_was() -> None:
    share = partition((3, 5, ACKNOWLEDGED, 1), (8, 9, AVAILABLE, 2), start=2)

    assert (share.start_offset, share.end_offset, share.fetch_offset) == (2, 9, 2)
    assert take(share, (0, 12)) == [(2, 2, 1), (6, 7, 1), (8, 9, 3), (10, 12, 1)]
    assert share.complete_count == 3


def test_what_is_final_at_the_start_is_passed_over() -> None:
    share = partition((0, 5, ACKNOWLEDGED, 1), (6, 6, ARCHIVED, 5), (7, 7, AVAILABLE, 1))

    assert share.start_offset == 7


def test_whole_batches_are_delivered_unless_the_limit_is_strict() -> None:
    share = partition()

    assert take(share, (0, 4), (5, 9), (10, 14), most=6) == [(0, 9, 1)]
    assert take(share, (0, 4), (5, 9), (10, 14), most=2, strict=True) == [(10, 11, 1)]


def test_delivery_again_goes_to_the_end_of_a_batch_too() -> None:
    share = partition((0, 19, AVAILABLE, 1))

    assert take(share, (0, 4), (5, 9), (10, 19), most=6) == [(0, 9, 2)]


def test_batches_come_in_groups_that_are_well_acknowledged() -> None:
    share = partition()

    assert take(share, (0, 4), (5, 9), (10, 14), (15, 16), batch_size=8) == [
        (0, 9, 1),
        (10, 16, 1),
    ]


def test_offsets_that_do_not_exist_are_passed_over() -> None:
    share = partition()

    assert take(share, (5, 7), (10, 11)) == [(5, 7, 1), (10, 11, 1)]
    assert share.start_offset == 5
    say(share, 5, 7, ACCEPT)
    assert share.start_offset == 10


def test_available_records_that_are_gone_from_the_log_are_passed_over() -> None:
    share = partition((0, 9, AVAILABLE, 1))

    assert take(share, (6, 9)) == [(6, 9, 2)]
    assert share.start_offset == 6


def test_what_nobody_may_see_is_not_delivered() -> None:
    share = partition()

    assert take(share, (0, 2), (3, 3), (4, 6), withheld=[(3, 3)]) == [(0, 2, 1), (4, 6, 1)]
    say(share, 0, 2, ACCEPT)
    assert share.start_offset == 4


def test_only_so_many_records_are_in_flight() -> None:
    share = partition(limits=LIMITS._replace(record_locks_max=10))

    assert take(share, (0, 5), (6, 11), (12, 17)) == [(0, 11, 1)]
    assert share.fetch_offset is None
    say(share, 3, 4, RELEASE)
    assert share.fetch_offset == 3
    assert take(share, (0, 5), (6, 11)) == [(3, 4, 2)]


def test_records_that_failed_often_come_alone_and_fewer_at_a_time() -> None:
    share = partition((0, 7, AVAILABLE, 3), (8, 9, AVAILABLE, 1))

    assert take(share, (0, 9)) == [(0, 3, 4)]
    assert take(share, (0, 9)) == [(4, 5, 4)]
    say(share, 0, 3, RELEASE)
    assert take(share, (0, 9)) == [(0, 0, 5)]


def test_others_are_not_mixed_with_records_that_failed_often() -> None:
    share = partition((0, 1, AVAILABLE, 1), (2, 5, AVAILABLE, 4))

    assert take(share, (0, 9)) == [(0, 1, 2)]


def test_the_last_delivery_is_the_last() -> None:
    share = partition((0, 0, AVAILABLE, 4))
    take(share, (0, 0))

    assert say(share, 0, 0, RELEASE) == ()
    assert share.start_offset == 1


def test_each_record_can_have_its_own_word() -> None:
    share = partition()
    take(share, (0, 4))

    assert say(share, 0, 4, ACCEPT, ACCEPT, RELEASE, REJECT, GAP) == (
        (2, 2, AVAILABLE, 1),
        (3, 4, ARCHIVED, 1),
    )
    assert share.start_offset == 2
    assert share.complete_count == 2


def test_acknowledging_is_all_or_nothing() -> None:
    share = partition()
    take(share, (0, 4))
    take(share, (5, 9), member="bob")

    with pytest.raises(InvalidRecordState):
        share.acknowledge("ann", [Acknowledgement(0, 5, [ACCEPT])], 0)
    with pytest.raises(InvalidRecordState):
        share.acknowledge("bob", [Acknowledgement(5, 12, [ACCEPT])], 0)

    assert say(share, 0, 4, ACCEPT) == ()
    assert share.start_offset == 5


@pytest.mark.parametrize(
    "said",
    [
        [Acknowledgement(3, 2, [ACCEPT])],
        [Acknowledgement(-1, 2, [ACCEPT])],
        [Acknowledgement(0, 2, [ACCEPT, ACCEPT])],
        [Acknowledgement(0, 2, [])],
        [Acknowledgement(0, 2, [5])],
        [Acknowledgement(0, 2, [ACCEPT]), Acknowledgement(2, 3, [ACCEPT])],
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused(said: list[Acknowledgement]) -> None:
    share = partition()
    take(share, (0, 9))

    with pytest.raises(InvalidRequest):
        share.acknowledge("ann", said, 0)


def test_what_is_being_kept_is_nobody_elses() -> None:
    share = partition()
    take(share, (0, 4))
    update = share.acknowledge("ann", [Acknowledgement(0, 4, [RELEASE])], 0)
    assert update is not None

    with pytest.raises(InvalidRecordState):
        share.acknowledge("ann", [Acknowledgement(0, 4, [ACCEPT])], 0)
    assert share.fetch_offset == 5
    assert share.release_member("ann") is None

    share.commit(update)
    assert share.fetch_offset == 0


def test_what_could_not_be_kept_is_with_its_member_as_before() -> None:
    share = partition()
    take(share, (0, 4))
    update = share.acknowledge("ann", [Acknowledgement(0, 4, [ACCEPT])], 0)
    assert update is not None

    share.rollback(update)

    assert share.start_offset == 0
    assert say(share, 0, 4, ACCEPT) == ()


def test_a_lock_that_ended_while_something_was_kept_ends_afterwards() -> None:
    share = partition()
    take(share, (0, 4))
    update = share.acknowledge("ann", [Acknowledgement(0, 4, [ACCEPT])], 0)
    assert update is not None
    assert share.expire(100) is None
    share.rollback(update)

    assert share.next_deadline_ms == 100
    released = share.expire(100)
    assert released is not None
    share.commit(released)
    assert take(share, (0, 4)) == [(0, 4, 2)]


def test_locks_end_one_after_the_other() -> None:
    share = partition()
    take(share, (0, 4))
    take(share, (5, 9), now_ms=50)
    assert share.next_deadline_ms == 100

    released = share.expire(149)

    assert released is not None
    assert released.batches == ((0, 4, AVAILABLE, 1),)
    share.commit(released)
    assert share.next_deadline_ms == 150
    assert share.expire(149) is None


def test_a_log_that_begins_later_takes_records_away_from_everybody() -> None:
    share = partition()
    take(share, (0, 9))
    update = share.acknowledge("ann", [Acknowledgement(0, 6, [ACCEPT])], 0)
    assert update is not None

    share.move_start(5)
    share.move_start(2)
    share.commit(update)

    assert (share.start_offset, share.end_offset) == (7, 9)
    assert say(share, 3, 9, ACCEPT) == ()
    share.move_start(20)
    assert share.fetch_offset == 20


def test_nothing_comes_of_nothing() -> None:
    share = partition()

    assert take(share) == []
    assert share.acknowledge("ann", [], 0) is None
    assert share.release_member("ann") is None
    assert share.next_deadline_ms is None
