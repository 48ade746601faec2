"""The state of share partitions: epochs, fences, snapshots and what is forgotten."""

from __future__ import annotations

import pytest

from millstream.coordinator.share.state import ShareKey, ShareState, StateSummary
from millstream.errors import (
    ApiError,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    NotEnoughReplicas,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.share_state_records import ShareSnapshotKey, ShareUpdateKey
from millstream.protocol.records_framing import SHARE_RECORDS
from millstream.records import RecordBatch
from millstream.types import Uuid
from tests.unit.coordinator.share.state_world import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    KEY,
    TOPIC,
    StateWorld,
)


def kinds(world: StateWorld) -> str:
    """The records of the log: S for a snapshot, u for an update, x for a deletion."""
    letters = ""
    for data in world.store.batches.get(0, []):
        for record in RecordBatch(data).records():
            assert record.key is not None
            key, value = SHARE_RECORDS.decode(record.key, record.value)
            if value is None:
                letters += "x"
            else:
                letters += {ShareSnapshotKey: "S", ShareUpdateKey: "u"}[type(key)]
    return letters


def test_what_a_leader_writes_is_what_the_next_one_reads() -> None:
    world = StateWorld()
    world.initialize(offset=10)
    world.write((10, 19, ACKNOWLEDGED, 1), (20, 24, AVAILABLE, 2), leader=3)
    world.write((15, 21, ARCHIVED, 3), start=12, leader=3, complete=9)
    before = world.state()

    world.restart()

    state = world.read(leader=4)
    assert isinstance(state, ShareState)
    assert state.start_offset == 12
    assert state.batches == (
        (12, 14, ACKNOWLEDGED, 1),
        (15, 21, ARCHIVED, 3),
        (22, 24, AVAILABLE, 2),
    )
    assert state == before._replace(leader_epoch=4)


def test_all_of_the_state_is_written_after_so_many_changes() -> None:
    world = StateWorld(updates_per_snapshot=3)
    world.initialize()
    for offset in range(8):
        world.write((offset, offset, ACKNOWLEDGED, 1))

    assert kinds(world) == "SuuuSuuuS"
    assert world.state().snapshot_epoch == 2
    world.restart()
    assert world.state().batches == ((0, 7, ACKNOWLEDGED, 1),)


def test_the_start_offset_never_goes_back() -> None:
    world = StateWorld()
    world.initialize(offset=10)
    world.write(start=20)

    world.write((22, 22, ACKNOWLEDGED, 1), start=15)

    assert world.state().start_offset == 20


def test_a_leader_of_an_earlier_epoch_is_fenced() -> None:
    world = StateWorld()
    world.initialize()
    world.read(leader=5)

    assert world.write((0, 0, ACKNOWLEDGED, 1), leader=4) is FencedLeaderEpoch
    assert world.read(leader=4) is FencedLeaderEpoch
    assert world.write((0, 0, ACKNOWLEDGED, 1), leader=5) is None


def test_a_share_partition_that_began_anew_fences_who_does_not_know() -> None:
    world = StateWorld()
    world.initialize(epoch=1)
    world.write((0, 5, ACKNOWLEDGED, 1), start=6)

    world.initialize(epoch=2, offset=3)

    assert world.state().start_offset == 3
    assert world.state().batches == ()
    assert world.write((3, 3, ACKNOWLEDGED, 1), epoch=1) is FencedStateEpoch
    assert world.initialize(epoch=1) is FencedStateEpoch


def test_what_never_began_cannot_be_read_or_written() -> None:
    world = StateWorld()

    assert world.read() is InvalidRequest
    assert world.write((0, 0, ACKNOWLEDGED, 1)) is InvalidRequest


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (ShareKey("", TOPIC, 0), InvalidRequest),
        (ShareKey("g", TOPIC, -1), InvalidRequest),
        (ShareKey("g", TOPIC, 3), UnknownTopicOrPartition),
        (ShareKey("g", Uuid(b"x" * 16), 0), UnknownTopicOrPartition),
    ],
)
def test_keys_that_name_nothing_are_refused(key: ShareKey, error: type[ApiError]) -> None:
    world = StateWorld()
    answers: list[object] = []

    assert world.initialize(key) is error
    assert world.write(key=key) is error
    assert world.read(key) is error
    world.shares.summarize(key, 0, answers.append)
    assert type(answers[0]) is error


def test_a_summary_says_how_far_a_share_partition_is() -> None:
    world = StateWorld()
    answers: list[StateSummary | ApiError] = []
    world.shares.summarize(KEY, -1, answers.append)
    world.initialize(offset=5)
    world.write((7, 9, ACKNOWLEDGED, 1), leader=2, complete=3)

    world.shares.summarize(KEY, -1, answers.append)

    assert answers == [StateSummary(0, 0, -1, -1), StateSummary(1, 2, 5, 3)]


def test_what_is_deleted_is_forgotten() -> None:
    world = StateWorld()
    world.initialize()
    answers: list[ApiError | None] = []

    world.shares.delete(KEY, answers.append)
    world.shares.delete(KEY, answers.append)

    assert answers == [None, None]
    assert kinds(world) == "Sx"
    world.restart()
    assert world.read() is InvalidRequest


def test_needless_records_are_deleted() -> None:
    world = StateWorld(prune_interval_ms=1000)
    world.initialize()
    for offset in range(5):
        world.write((offset, offset, ACKNOWLEDGED, 1))

    world.pass_ms(1000)

    assert world.log.deleted == [(0, 6)]
    assert kinds(world) == "SuuuuuS"
    world.pass_ms(1000)
    assert world.log.deleted == [(0, 6)]


def test_nothing_is_deleted_before_its_replacement_is_safe() -> None:
    world = StateWorld(prune_interval_ms=1000)
    world.initialize()
    world.write((0, 0, ACKNOWLEDGED, 1))
    world.write((1, 1, ACKNOWLEDGED, 1))
    world.store.failure = NotEnoughReplicas("the others are gone")

    world.pass_ms(1000)

    assert world.log.deleted == []


def test_a_coordinator_that_takes_over_shortens_the_log_too() -> None:
    world = StateWorld(prune_interval_ms=1000)
    world.initialize()
    for offset in range(5):
        world.write((offset, offset, ACKNOWLEDGED, 1))
    world.restart()

    world.pass_ms(1000)

    assert world.log.deleted == [(0, 6)]
