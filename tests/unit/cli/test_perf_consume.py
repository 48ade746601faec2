"""The reading side of `millstream perf`, on a cluster in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.perf_consume import ConsumeLoad, Position, ReadPlan
from millstream.errors import OffsetOutOfRangeWithoutReset
from millstream.types import TopicPartition
from tests.unit.cli.fake_cluster import TOPIC, FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECOND = 1_000_000_000
FIRST, SECOND_PLACE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
def cluster() -> FakeCluster:
    """Three batches of ten records in the first partition, nothing in the second."""
    cluster = FakeCluster(partitions=2)
    for _ in range(3):
        cluster.append(0, *[b"value"] * 10, timestamp=1000)
    return cluster


@pytest.fixture
def load_of(cluster: FakeCluster) -> Iterator[Callable[..., ConsumeLoad]]:
    """Makes a load for positions and a plan; time stands still at three seconds."""
    with cluster.session() as session, session.consumer(auto_offset_reset="none") as consumer:

        def load_of(positions: dict[TopicPartition, Position], plan: ReadPlan) -> ConsumeLoad:
            return ConsumeLoad(
                {consumer: positions}, plan, ticks=lambda: 3 * SECOND, wall_ms=lambda: 3000
            )

        yield load_of


def run(load: ConsumeLoad) -> None:
    for _ in range(100):
        if not load.turn():
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("is_columnar", [False, True])
def test_it_reads_to_the_end_from_where_it_was_told(
    load_of: Callable[..., ConsumeLoad], is_columnar: bool
) -> None:
    load = load_of({FIRST: Position(7, 30)}, ReadPlan(is_columnar=is_columnar))

    run(load)

    assert load.meter.records == 23
    assert load.meter.byte_count == (0 if is_columnar else 23 * 5)
    assert load.progress() == 1


def test_it_takes_no_more_records_than_wanted(load_of: Callable[..., ConsumeLoad]) -> None:
    load = load_of({FIRST: Position(0, 30)}, ReadPlan(records_max=12))
    assert load.progress() == 0

    run(load)

    assert (load.meter.records, load.progress()) == (12, 1)


def test_progress_is_that_of_the_limit_which_is_nearest(
    load_of: Callable[..., ConsumeLoad],
) -> None:
    assert load_of({FIRST: Position(0)}, ReadPlan()).progress() is None
    assert load_of({FIRST: Position(0)}, ReadPlan(duration_ns=SECOND)).progress() == 0


def test_the_age_of_records_is_measured_where_that_makes_sense(
    load_of: Callable[..., ConsumeLoad],
) -> None:
    load = load_of({FIRST: Position(0), SECOND_PLACE: Position(0)}, ReadPlan(is_timed=True))
    while load.meter.records < 30:
        assert load.turn()
    load.end()

    assert not load.turn()
    assert load.meter.latencies.count == 30
    assert load.meter.latencies.max_ns == 2 * SECOND


def test_a_position_that_is_gone_is_an_error(
    load_of: Callable[..., ConsumeLoad], cluster: FakeCluster
) -> None:
    cluster.starts[0] = 20

    with pytest.raises(OffsetOutOfRangeWithoutReset):
        run(load_of({FIRST: Position(0, 30)}, ReadPlan()))
