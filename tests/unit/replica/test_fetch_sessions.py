"""Fetch sessions (KIP-227): what is kept, what is said, who gets a slot."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from millstream.replica.fetch_session import next_epoch
from millstream.replica.fetch_session_cache import EVICTION_MS, FetchSessionCache
from tests.unit.replica.harness import LOCAL, World, asked, error_codes, sizes, topic_id
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.replica.fetch_partition import FetchPartition

BATCH = len(batch_bytes())


@pytest.fixture
def world() -> World:
    """A broker that leads four partitions alone, with one batch in the first."""
    world = World()
    world.create(partitions=4)
    world.produce()
    return world


def indices(
    world: World,
    *partitions: FetchPartition,
    session: tuple[int, int],
    forgotten: Sequence[tuple[str, int]] = (),
) -> list[int]:
    """Which partitions a fetch answers for."""
    answer = world.fetch(*partitions, session=session, forgotten=forgotten).value
    return [each.index for each, _ in answer.partitions]


def begin(world: World, *offsets: int) -> int:
    """Open a session on the first partitions, from these offsets on."""
    partitions = [asked(offset, index=index) for index, offset in enumerate(offsets)]
    return world.fetch(*partitions, session=(0, 0)).value.session_id


def test_a_full_fetch_with_epoch_0_gets_a_session_and_all_partitions(world: World) -> None:
    answer = world.fetch(asked(0), asked(0, index=1), session=(0, 0)).value

    assert answer.session_id > 0
    assert sizes(answer) == [BATCH, 0]


def test_a_full_fetch_with_epoch_minus_1_gets_none(world: World) -> None:
    answer = world.fetch(asked(0), session=(0, -1)).value

    assert answer.session_id == 0
    assert len(world.manager.fetch_sessions) == 0


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_it_names(world: World, epoch: int) -> None:
    old = begin(world, 1)

    new = world.fetch(asked(1), session=(old, epoch)).value.session_id

    assert len(world.manager.fetch_sessions) == (epoch == 0)
    assert new != old
    with pytest.raises(FetchSessionIdNotFound):
        world.fetch(session=(old, 1))


def test_an_incremental_fetch_says_only_what_is_new(world: World) -> None:
    session = begin(world, 1, 0, 0)

    assert indices(world, session=(session, 1)) == []
    world.produce(index=1)
    assert indices(world, session=(session, 2)) == [1]


def test_a_moved_high_watermark_or_log_start_is_news_without_records() -> None:
    world = World()
    world.register(2)
    world.create(partitions=2, replicas=(LOCAL, 2))
    world.produce(batch_bytes(records=2), acks=1)
    session = begin(world, 2, 0)
    assert indices(world, session=(session, 1)) == []

    world.follow(2)
    assert indices(world, session=(session, 2)) == [0]
    world.delete(2)

    answer = world.fetch(session=(session, 3)).value
    assert [(result.log_start_offset, result.size) for _, result in answer.partitions] == [(2, 0)]
    assert indices(world, session=(session, 4)) == []


def test_records_come_again_as_long_as_the_offset_stays(world: World) -> None:
    session = begin(world, 0, 0)

    assert indices(world, session=(session, 1)) == [0]
    assert indices(world, session=(session, 2)) == [0]
    assert indices(world, asked(1), session=(session, 3)) == []


def test_a_request_adds_changes_and_forgets_partitions(world: World) -> None:
    session = begin(world, 1)
    world.produce(index=1)
    world.produce(index=2)

    assert indices(world, asked(0, index=1), session=(session, 1)) == [1]
    assert indices(world, asked(0), asked(1, index=1), session=(session, 2)) == [0]
    assert indices(world, session=(session, 3), forgotten=[("t", 0)]) == []
    world.produce()
    assert indices(world, session=(session, 4)) == []


def test_an_added_partition_is_answered_for_once_even_if_it_is_empty(world: World) -> None:
    session = begin(world, 1)

    assert indices(world, asked(0, index=3), session=(session, 1)) == [3]
    assert indices(world, session=(session, 2)) == []


def test_an_error_is_repeated_and_its_end_is_news(world: World) -> None:
    session = world.fetch(asked(1), asked(0, "late"), session=(0, 0)).value.session_id
    answer = world.fetch(session=(session, 1)).value
    assert error_codes(answer) == [UnknownTopicOrPartition.code]

    world.create("late")
    answer = world.fetch(session=(session, 2)).value

    assert [(each.topic, result.error) for each, result in answer.partitions] == [("late", None)]
    assert world.fetch(session=(session, 3)).value.partitions == []


def test_a_deleted_topic_is_an_error_and_its_successor_is_found(world: World) -> None:
    session = begin(world, 1)
    world.remove()
    assert error_codes(world.fetch(session=(session, 1)).value) == [UnknownTopicOrPartition.code]

    world.create(generation=1)
    world.produce()

    assert sizes(world.fetch(asked(0), session=(session, 2)).value) == [BATCH]


def test_partitions_that_gave_records_go_to_the_end_of_the_order(world: World) -> None:
    for index in (0, 1, 2):
        world.produce(index=index)
    partitions = [asked(0, index=index) for index in (0, 1, 2)]
    first = world.fetch(*partitions, session=(0, 0), max_bytes=1).value
    assert [result.size > 0 for _, result in first.partitions] == [True, False, False]
    session = first.session_id

    served = [
        [each.index for each, result in answer.partitions if result.size]
        for epoch in (1, 2, 3)
        for answer in [world.fetch(session=(session, epoch), max_bytes=1).value]
    ]

    assert served == [[1], [2], [0]]


@pytest.mark.parametrize("epoch", [2, 5, 1 << 30])
def test_another_epoch_than_the_expected_one_is_refused(world: World, epoch: int) -> None:
    session = begin(world, 1)

    with pytest.raises(InvalidFetchSessionEpoch):
        world.fetch(session=(session, epoch))


def test_epochs_begin_again_at_1() -> None:
    assert next_epoch(0) == 1
    assert next_epoch((1 << 31) - 1) == 1
    assert next_epoch(-1) == -1


def test_topic_ids_and_names_do_not_mix_in_a_session(world: World) -> None:
    named = begin(world, 1)
    by_id = world.fetch(
        asked(1, topic_id("t")), session=(0, 0), uses_topic_ids=True
    ).value.session_id

    with pytest.raises(FetchSessionTopicIdError):
        world.fetch(session=(named, 1), uses_topic_ids=True)
    with pytest.raises(FetchSessionTopicIdError):
        world.fetch(session=(by_id, 1))


def test_a_session_that_everything_was_forgotten_of_is_closed(world: World) -> None:
    session = begin(world, 1, 0)

    answer = world.fetch(
        session=(session, 1), forgotten=[("t", 0), ("t", 1)], max_wait_ms=500
    ).value

    assert (answer.session_id, answer.partitions) == (0, [])
    assert len(world.manager.fetch_sessions) == 0
    assert not world.partition().watchers


def test_a_session_whose_request_waits_is_woken_by_any_of_its_partitions(world: World) -> None:
    session = begin(world, 1, 0, 0)
    reply = world.fetch(session=(session, 1), max_wait_ms=500)

    world.produce(index=2)
    world.settle()

    assert [(each.index, result.size) for each, result in reply.value.partitions] == [(2, BATCH)]


def test_a_full_fetch_that_waited_becomes_a_session(world: World) -> None:
    reply = world.fetch(asked(1), asked(0, index=1), session=(0, 0), max_wait_ms=500)
    world.produce(index=1)
    world.settle()
    session = reply.value.session_id

    world.produce()

    assert session > 0
    assert indices(world, asked(1, index=1), session=(session, 1)) == [0]


def test_a_request_that_waits_while_its_session_is_used_again_is_refused(world: World) -> None:
    session = begin(world, 1)
    reply = world.fetch(session=(session, 1), max_wait_ms=500)

    world.fetch(session=(session, 2))
    world.pass_time(500)

    assert isinstance(reply.value.error, InvalidFetchSessionEpoch)


def test_a_throttled_request_that_is_never_read_loses_no_news(world: World) -> None:
    session = begin(world, 1)
    world.produce()

    world.open(session=(session, 1))  # The handler answers with nothing.

    assert indices(world, session=(session, 2)) == [0]


def follow_two() -> tuple[World, int]:
    """A follower of two partitions with a session in which both are quiet."""
    world = World()
    world.register(2)
    world.create(partitions=2, replicas=(LOCAL, 2))
    partitions = [asked(0, index=index) for index in range(2)]
    session = world.fetch(*partitions, session=(0, 0), replica_id=2, replica_epoch=1).value
    world.fetch(session=(session.session_id, 1), replica_id=2, replica_epoch=1)
    return world, session.session_id


def test_each_fetch_of_a_follower_is_a_sign_of_life_for_all_its_partitions() -> None:
    world, session = follow_two()
    world.clock.advance(777)

    world.fetch(session=(session, 2), replica_id=2, replica_epoch=1)

    caught_up = [world.partition(index=index).followers[2].last_caught_up_ms for index in range(2)]
    assert caught_up == [777, 777]


def test_a_follower_without_news_has_no_partition_looked_at() -> None:
    world, session = follow_two()
    known = world.manager.fetch_sessions.by_id[session]
    assert known.candidates() == []

    world.produce(index=1, acks=1)

    assert [each.index for each in known.candidates()] == [1]


def test_a_process_that_was_replaced_is_refused_for_all_partitions() -> None:
    world, session = follow_two()
    world.register(2, epoch=5)

    answer = world.fetch(session=(session, 2), replica_id=2, replica_epoch=1).value

    assert error_codes(answer) == [NotLeaderOrFollower.code] * 2


def test_a_quiet_session_looks_at_no_partition(world: World) -> None:
    session = begin(world, 1, 0, 0, 0)

    context = world.open(session=(session, 1))
    assert context.partitions() == []
    world.produce(index=3)

    assert [each.index for each in context.partitions()] == [3]


def test_nobody_watches_a_partition_after_a_fetch_without_session(world: World) -> None:
    reply = world.fetch(asked(1), max_wait_ms=500)
    assert world.partition().watchers

    world.pass_time(500)

    assert not reply.is_pending
    assert not world.partition().watchers


# Slots.


def open_session(
    cache: FetchSessionCache, now_ms: int, *, size: int = 1, is_follower: bool = False
) -> int | None:
    """A new session of some partitions; None if there was no slot."""
    partitions = [asked(0, index=index) for index in range(size)]
    session = cache.create(partitions, is_follower=is_follower, uses_topic_ids=False, now_ms=now_ms)
    return None if session is None else session.id


def is_kept(cache: FetchSessionCache, session_id: int | None, now_ms: int = 0) -> bool:
    """Whether a session is still there (which uses it)."""
    assert session_id is not None
    try:
        cache.open(session_id, 9, [], now_ms=now_ms)
    except InvalidFetchSessionEpoch:
        return True
    except FetchSessionIdNotFound:
        return False
    raise AssertionError("epoch 9 cannot be right")


def test_without_a_slot_there_is_no_session() -> None:
    cache = FetchSessionCache(1, Random(1))
    first = open_session(cache, 0)

    assert open_session(cache, 0, size=5) is None
    assert is_kept(cache, first)
    assert (
        FetchSessionCache(0, Random(1)).create(
            [asked(0)], is_follower=False, uses_topic_ids=False, now_ms=0
        )
        is None
    )


def test_a_session_idle_for_more_than_two_minutes_gives_way() -> None:
    cache = FetchSessionCache(1, Random(1))
    idle = open_session(cache, 0, size=9, is_follower=True)
    assert open_session(cache, EVICTION_MS) is None

    new = open_session(cache, EVICTION_MS + 1)

    assert new is not None
    assert not is_kept(cache, idle)


def established(cache: FetchSessionCache, *, size: int, is_follower: bool = False) -> int:
    """A session that is older than two minutes and in use."""
    session_id = open_session(cache, 0, size=size, is_follower=is_follower)
    assert session_id is not None
    cache.open(session_id, 1, [], now_ms=EVICTION_MS)
    cache.open(session_id, 2, [], now_ms=EVICTION_MS + 1)
    return session_id


def test_a_larger_session_takes_the_slot_of_an_established_smaller_one() -> None:
    cache = FetchSessionCache(2, Random(1))
    small, large = established(cache, size=2), established(cache, size=8)
    now_ms = EVICTION_MS + 2

    assert open_session(cache, now_ms, size=1) is None
    assert open_session(cache, now_ms, size=4) is not None
    assert not is_kept(cache, small)
    assert is_kept(cache, large)


def test_a_follower_takes_the_slot_of_any_consumer_however_young_or_large() -> None:
    cache = FetchSessionCache(1, Random(1))
    consumer = open_session(cache, 0, size=100)

    assert open_session(cache, 0, size=1, is_follower=True) is not None
    assert not is_kept(cache, consumer)


def test_a_consumer_never_takes_the_slot_of_a_follower_in_use() -> None:
    cache = FetchSessionCache(1, Random(1))
    follower = established(cache, size=1, is_follower=True)

    assert open_session(cache, EVICTION_MS + 2, size=100) is None
    assert is_kept(cache, follower)


def test_an_evicted_session_stops_watching(world: World) -> None:
    session = begin(world, 1, 0)
    assert world.partition().watchers

    world.fetch(asked(1), session=(session, -1))

    assert not world.partition().watchers
    assert world.manager.fetch_sessions.partition_count == 0


def test_a_follower_that_asks_from_the_same_offset_again_is_told_the_watermark_again() -> None:
    world = World()
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    session = world.fetch(asked(0), session=(0, 0), replica_id=2).value.session_id

    again = world.fetch(asked(0, leader_epoch=0), session=(session, 1), replica_id=2).value

    assert [result.high_watermark for _, result in again.partitions] == [0]
