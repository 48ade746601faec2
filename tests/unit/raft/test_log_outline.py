"""The outline of a log: epochs, snapshots, and what a replica may fetch."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidArgument
from millstream.raft.log_outline import (
    BOOTSTRAP_SNAPSHOT,
    Diverges,
    FetchCheck,
    Fits,
    LogOutline,
    NeedsSnapshot,
)
from millstream.types import OffsetAndEpoch
from tests.simulation.raft.memory import MemoryLog
from tests.unit.raft.bench import outline_of, records_at


def at(epoch: int, offset: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(epoch, offset)


def pruned() -> LogOutline:
    """Records 4 (epoch 2), 5 (2) and 6 (5) after a snapshot that ends at 4, in epoch 2."""
    outline = outline_of(1, 1, 2, 2, 2, 2, 5, high_watermark=7)
    outline.snapshots = {at(1, 2): 10, at(2, 4): 20}
    outline.trim_before(at(2, 4))
    return outline


def test_an_empty_log_ends_in_epoch_0() -> None:
    outline = LogOutline()

    assert outline.end == at(0, 0)
    assert outline.epoch_before(0) == 0
    assert outline.end_offset_for_epoch(3) == at(0, 0)


def test_an_opened_log_is_flushed_and_committed_up_to_its_snapshot() -> None:
    log = MemoryLog()
    log.append(records_at(0, 1, b"a", b"b") + records_at(2, 3, b"c"))
    log.complete[at(1, 2)] = b"snapshot"

    outline = LogOutline.of(log)

    assert outline.end == at(3, 3)
    assert outline.flushed_offset == 3
    assert outline.high_watermark == 2
    assert outline.epochs == [(1, 0), (3, 2)]
    assert outline.snapshots == {at(1, 2): 8}


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(0, (0, 0)), (1, (1, 2)), (2, (2, 3)), (3, (2, 3)), (4, (2, 3)), (5, (5, 5)), (9, (5, 5))],
)
def test_an_epoch_ends_where_the_next_begins(epoch: int, end: tuple[int, int]) -> None:
    outline = outline_of(1, 1, 2, 5, 5)

    assert outline.end_offset_for_epoch(epoch) == at(*end)


def test_truncation_forgets_epochs_and_what_was_flushed() -> None:
    outline = outline_of(1, 1, 2, 5, 5)

    outline.truncate_to(2)

    assert outline.end == at(1, 2)
    assert outline.flushed_offset == 2
    assert outline.epochs == [(1, 0)]


def test_pruning_keeps_what_the_snapshot_does_not_hold() -> None:
    outline = pruned()

    assert outline.start_offset == 4
    assert outline.epochs == [(2, 4), (5, 6)]
    assert outline.snapshots == {at(2, 4): 20}
    assert outline.epoch_before(4) == 2
    assert outline.epoch_before(7) == 5
    assert outline.end_offset_for_epoch(1) == at(2, 4)


def test_pruning_everything_leaves_the_epoch_of_the_snapshot() -> None:
    outline = outline_of(1, 2, high_watermark=2)
    outline.snapshots = {at(2, 2): 10}

    outline.trim_before(at(2, 2))

    assert outline.epochs == []
    assert outline.end == at(2, 2)
    assert outline.end_offset_for_epoch(2) == at(2, 2)
    outline.append(2, 3, 4)
    assert outline.end_offset_for_epoch(3) == at(2, 2)


def test_a_snapshot_can_take_the_place_of_the_log() -> None:
    outline = outline_of(1, 1)

    outline.restart_at(at(3, 9), 30)

    assert outline.end == at(3, 9)
    assert (outline.start_offset, outline.flushed_offset, outline.high_watermark) == (9, 9, 9)


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, NeedsSnapshot(at(2, 4))),
        (3, 2, NeedsSnapshot(at(2, 4))),
        (4, 1, NeedsSnapshot(at(2, 4))),
        (4, 3, NeedsSnapshot(at(2, 4))),
        (5, 1, NeedsSnapshot(at(2, 4))),
        (4, 2, Fits()),
        (6, 2, Fits()),
        (7, 5, Fits()),
        (7, 2, Diverges(at(2, 6))),
        (7, 4, Diverges(at(2, 6))),
        (8, 5, Diverges(at(5, 7))),
        (9, 9, Diverges(at(5, 7))),
    ],
)
def test_rule_6_what_a_replica_may_fetch_from_a_pruned_log(
    offset: int, epoch: int, expected: FetchCheck
) -> None:
    assert pruned().check_fetch(offset, epoch) == expected


def test_rule_6_the_bootstrap_snapshot_is_never_offered() -> None:
    outline = outline_of(1, 1)
    outline.snapshots = {BOOTSTRAP_SNAPSHOT: 10}

    assert outline.check_fetch(0, 0) == Fits()
    assert outline.check_fetch(2, 1) == Fits()


@pytest.mark.parametrize(
    ("leader_end", "offset"),
    [((2, 3), 3), ((2, 9), 4), ((3, 9), 4), ((1, 1), 1), ((0, 0), 0), ((0, 99), 6)],
)
def test_rule_6_a_follower_cuts_where_both_logs_can_agree(
    leader_end: tuple[int, int], offset: int
) -> None:
    assert outline_of(1, 1, 2, 2, 5, 5).truncation_offset(at(*leader_end)) == offset


def test_a_snapshot_is_named_after_its_last_record() -> None:
    assert pruned().snapshot_id(6) == at(2, 6)
    assert pruned().snapshot_id(7) == at(5, 7)


@pytest.mark.parametrize("offset", [3, 8])
def test_there_is_no_snapshot_of_what_is_gone_or_not_committed(offset: int) -> None:
    with pytest.raises(InvalidArgument):
        pruned().snapshot_id(offset)
