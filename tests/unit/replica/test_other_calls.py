"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and descriptions (facts 6.5)."""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InvalidTopic,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from millstream.replica.partition_reader import NOT_FOUND, check_special_timestamp
from millstream.storage.log.config import LogConfig
from millstream.storage.log.epoch_cache import UNDEFINED_END, EpochEnd
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.log.time_lookup import TimedRecord
from tests.unit.replica.fakes import FakeVerifier
from tests.unit.replica.harness import LOCAL, World, codes
from tests.unit.storage.batches import NOW_MS, batch_bytes


@pytest.fixture
def world() -> World:
    """A broker that leads t-0 alone: five records a millisecond apart, the first deleted."""
    world = World()
    world.create()
    world.produce(batch_bytes(records=5))
    world.delete(1)
    return world


@pytest.fixture
def replicated() -> World:
    """A broker that leads t-0, with a follower in sync that has nothing yet."""
    world = World()
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    world.produce(batch_bytes(records=5), acks=1)
    return world


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        pytest.param(-1, TimedRecord(-1, 5, 0), id="latest"),
        pytest.param(-2, TimedRecord(-1, 1, 0), id="earliest"),
        pytest.param(-3, TimedRecord(NOW_MS + 4, 4, 0), id="largest timestamp"),
        pytest.param(-4, TimedRecord(-1, 1, 0), id="earliest local"),
        pytest.param(-5, NOT_FOUND, id="last tiered"),
        pytest.param(-6, NOT_FOUND, id="earliest pending upload"),
        pytest.param(0, TimedRecord(NOW_MS + 1, 1, 0), id="a time before all"),
        pytest.param(NOW_MS + 3, TimedRecord(NOW_MS + 3, 3, 0), id="a time between"),
        pytest.param(NOW_MS + 5, NOT_FOUND, id="a time after all"),
    ],
)
def test_offsets_by_timestamp(world: World, timestamp: int, found: TimedRecord) -> None:
    assert world.manager.list_offset("t", 0, timestamp) == found


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 1 << 15)]
)
def test_special_timestamps_have_a_first_version(timestamp: int, since: int) -> None:
    with pytest.raises(UnsupportedVersion):
        check_special_timestamp(timestamp, since - 1)
    check_special_timestamp(timestamp, since)
    check_special_timestamp(-1, 1)
    check_special_timestamp(-2, 1)


def test_latest_depends_on_who_asks() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    world.produce(batch_bytes(records=2), acks=1)
    world.produce(
        batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True),
        transactional_id="x",
        acks=1,
    )
    verifier.answers[0]({})
    world.produce(batch_bytes(records=2), acks=1)
    world.follow(4)

    latest = {
        isolation: world.manager.list_offset("t", 0, -1, isolation).offset
        for isolation in FetchIsolation
    }

    assert latest == {
        FetchIsolation.LOG_END: 5,
        FetchIsolation.HIGH_WATERMARK: 4,
        FetchIsolation.TXN_COMMITTED: 2,
    }


def test_a_time_beyond_what_may_be_read_is_not_found(replicated: World) -> None:
    replicated.follow(3)

    assert replicated.manager.list_offset("t", 0, NOW_MS + 2).offset == 2
    assert replicated.manager.list_offset("t", 0, NOW_MS + 3) == NOT_FOUND


def test_right_after_an_election_the_latest_offset_is_not_available(replicated: World) -> None:
    replicated.change(leader=LOCAL)

    for timestamp in (-1, NOW_MS + 3):
        with pytest.raises(OffsetNotAvailable):
            replicated.manager.list_offset("t", 0, timestamp)
    assert replicated.manager.list_offset("t", 0, -2).offset == 0
    assert replicated.manager.list_offset("t", 0, -1, FetchIsolation.LOG_END).offset == 5

    replicated.follow(5)
    assert replicated.manager.list_offset("t", 0, -1).offset == 5


def test_questions_go_to_the_leader_of_the_right_epoch(replicated: World) -> None:
    with pytest.raises(UnknownLeaderEpoch):
        replicated.manager.list_offset("t", 0, -2, current_leader_epoch=1)
    with pytest.raises(UnknownTopicOrPartition):
        replicated.manager.list_offset("nobody", 0, -2)
    replicated.change(leader=2)

    with pytest.raises(FencedLeaderEpoch):
        replicated.manager.end_of_epoch("t", 0, 0, current_leader_epoch=0)
    with pytest.raises(NotLeaderOrFollower):
        replicated.manager.end_of_epoch("t", 0, 0)
    with pytest.raises(NotLeaderOrFollower):
        replicated.manager.list_offset("t", 0, -2)
    with pytest.raises(NotLeaderOrFollower):
        replicated.manager.describe_producers("t", 0)


def test_ends_of_epochs(world: World) -> None:
    world.change(leader=LOCAL)
    world.change(leader=LOCAL)
    world.produce()

    assert world.manager.end_of_epoch("t", 0, 0) == EpochEnd(0, 5)
    assert world.manager.end_of_epoch("t", 0, 1) == EpochEnd(0, 5)
    assert world.manager.end_of_epoch("t", 0, 2) == EpochEnd(2, 6)
    assert world.manager.end_of_epoch("t", 0, 3) == UNDEFINED_END
    assert world.manager.end_of_epoch("t", 0, -1) == UNDEFINED_END


# DeleteRecords.


def test_deleting_moves_the_log_start(world: World) -> None:
    assert world.delete(3).value == [(None, 3)]
    assert world.partition().log.log_start_offset == 3


def test_deleting_what_is_gone_already_is_fine(world: World) -> None:
    assert world.delete(0).value == [(None, 1)]


def test_minus_one_deletes_what_is_committed(replicated: World) -> None:
    replicated.follow(4)

    reply = replicated.delete(-1)
    replicated.follow(4, log_start_offset=4)
    replicated.settle()

    assert reply.value == [(None, 4)]


@pytest.mark.parametrize("offset", [6, -2])
def test_deleting_beyond_the_high_watermark_is_refused(world: World, offset: int) -> None:
    assert codes(world.delete(offset).value) == [OffsetOutOfRange.code]


def test_compacted_and_internal_topics_are_not_deleted_from(world: World) -> None:
    world.create("compacted", config=LogConfig(cleanup_policy=("compact",)))
    world.create("both", config=LogConfig(cleanup_policy=("compact", "delete")))
    world.create("__transaction_state")

    assert codes(world.delete(0, topic="compacted").value) == [PolicyViolation.code]
    assert codes(world.delete(0, topic="both").value) == [0]
    assert codes(world.delete(0, topic="__transaction_state").value) == [InvalidTopic.code]


def test_deleting_waits_until_every_live_replica_has_followed(replicated: World) -> None:
    replicated.follow(5)
    reply = replicated.delete(3)
    replicated.settle()
    assert reply.is_pending

    replicated.follow(5, log_start_offset=3)
    replicated.settle()

    assert reply.value == [(None, 3)]


def test_a_dead_replica_is_not_waited_for(replicated: World) -> None:
    replicated.follow(5)
    replicated.fence(2)

    assert replicated.delete(3).value == [(None, 3)]


def test_deleting_times_out_exactly(replicated: World) -> None:
    replicated.follow(5)
    reply = replicated.delete(3, timeout_ms=200)
    replicated.pass_time(199)
    assert reply.is_pending

    replicated.pass_time(1)

    assert codes(reply.value) == [RequestTimedOut.code]


def test_lost_leadership_ends_a_deletion_that_waits(replicated: World) -> None:
    replicated.follow(5)
    reply = replicated.delete(3)

    replicated.change(leader=2)
    replicated.settle()

    assert codes(reply.value) == [NotLeaderOrFollower.code]


# Descriptions.


def test_producers_are_described_in_order(world: World) -> None:
    for pid in (9, 4):
        world.produce(batch_bytes(pid=pid, epoch=2, sequence=0))

    found = world.manager.describe_producers("t", 0)

    assert [(each.producer_id, each.epoch, each.last_sequence) for each in found] == [
        (4, 2, 0),
        (9, 2, 0),
    ]


def test_log_directories_are_described(world: World) -> None:
    (directory,) = world.manager.describe_log_dirs()

    assert directory.path == "/disk1"
    assert [(str(each.partition), each.size > 0) for each in directory.logs] == [("t-0", True)]
