"""Topics as tables: columns of a poll, and bounded reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from millstream import read_topic
from millstream.errors import OffsetOutOfRange, UnknownTopicOrPartition
from tests.behaviours.polling import PATIENCE, reader

if TYPE_CHECKING:
    from tests.behaviours.clusters import Cluster


def test_columns_instead_of_records(cluster: Cluster) -> None:
    topic = cluster.filled(50, partitions=2)

    with reader(cluster, topic, 0, 1) as consumer:
        rows: list[tuple[int, bytes]] = []
        while len(rows) < 50:
            batch = consumer.poll_arrow(PATIENCE, columns=["partition", "value"])
            assert batch is not None
            table = batch.to_arrow()
            assert table.schema.names == ["partition", "value"]
            rows += zip(*(table[name].to_pylist() for name in table.schema.names), strict=True)
        assert consumer.poll_arrow(0.1) is None

    assert sorted(rows) == sorted((n % 2, b"v%d" % n) for n in range(50))


def test_a_whole_topic_or_a_part_of_it_as_a_table(cluster: Cluster) -> None:
    topic = cluster.timed()

    whole = read_topic(cluster.address, topic).to_arrow()
    by_offset = read_topic(cluster.address, topic, start=5, end=8, columns=["offset"]).to_arrow()
    by_time = read_topic(
        cluster.address, topic, start=datetime.fromtimestamp(7.5, UTC), columns=["value"]
    ).to_arrow()

    assert whole["value"].to_pylist() == [b"v%d" % number for number in range(10)]
    assert by_offset["offset"].to_pylist() == [5, 6, 7]
    assert by_time["value"].to_pylist() == [b"v8", b"v9"]
    with pytest.raises(OffsetOutOfRange):
        read_topic(cluster.address, topic, start=11)
    with pytest.raises(UnknownTopicOrPartition):
        read_topic(cluster.address, "nowhere")
