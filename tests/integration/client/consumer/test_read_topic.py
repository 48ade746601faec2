"""`read_topic` with a real broker: bounds, columns, results, and errors that say what to do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.consumer.read_topic import read_topic
from millstream.errors import (
    BootstrapFailed,
    InvalidArgument,
    OffsetOutOfRange,
    OperationTimeout,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from tests.integration.client.consumer.topics import Topics

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(topics: Topics) -> str:
    """Three partitions with 10 records each, a second apart."""
    name = topics.make(partitions=3)
    for second in range(10):
        values = [b"%d-%d" % (partition, second) for partition in range(3)]
        topics.write(name, values, partitions=3, timestamp=1_000_000 + 1000 * second)
    return name


def offsets(table: Any) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(each) for partition, each in sorted(found.items())}


def test_all_of_a_topic(topics: Topics, topic: str) -> None:
    table = read_topic(topics.bootstrap, topic).to_arrow()

    assert offsets(table) == {each: list(range(10)) for each in range(3)}
    assert table.column_names == ["key", "value", "headers", "timestamp", "offset", "partition"]


@pytest.mark.parametrize(
    ("bounds", "read"),
    [
        ({"start": 7}, [7, 8, 9]),
        ({"end": 2}, [0, 1]),
        ({"start": 4, "end": 6}, [4, 5]),
        ({"start": 5, "end": 5}, []),
        ({"start": "latest"}, []),
        ({"start_time": 1_007_500}, [8, 9]),
        ({"end_time": 1_002_000}, [0, 1]),
        ({"start": datetime.fromtimestamp(1_008, UTC)}, [8, 9]),
        ({"start_time": 9_000_000}, []),
    ],
)
def test_between_bounds(topics: Topics, topic: str, bounds: Any, read: list[int]) -> None:
    table = read_topic(topics.bootstrap, topic, **bounds).to_arrow()

    assert offsets(table) == (dict.fromkeys(range(3), read) if read else {})


def test_bounds_and_choice_of_partitions(topics: Topics, topic: str) -> None:
    read = read_topic(topics.bootstrap, topic, start={0: 8, 2: 9}, partitions=[0, 2])
    assert read.spans == {0: (8, 10), 2: (9, 10)}

    assert offsets(read.to_arrow()) == {0: [8, 9], 2: [9]}


def test_what_is_written_later_is_not_read(topics: Topics, topic: str) -> None:
    with read_topic(topics.bootstrap, topic) as read:
        topics.write(topic, [b"later"])

        assert sum(len(batch) for batch in read) == 30


def test_data_frames(topics: Topics, topic: str) -> None:
    pandas = read_topic(topics.bootstrap, topic, columns=["value", "offset"]).to_pandas()
    polars = read_topic(topics.bootstrap, topic, columns=["value", "offset"]).to_polars()

    assert list(pandas.columns) == polars.columns == ["value", "offset"]
    assert len(pandas) == len(polars) == 30


def test_it_is_read_once(topics: Topics, topic: str) -> None:
    read = read_topic(topics.bootstrap, topic)
    read.to_arrow()

    with pytest.raises(InvalidArgument, match="read already"):
        read.to_arrow()
    assert topic in repr(read)


def test_an_empty_topic_is_an_empty_table(topics: Topics) -> None:
    assert read_topic(topics.bootstrap, topics.make()).to_arrow().num_rows == 0


def test_another_namespace(topics: Topics) -> None:
    topic = topics.make(3, prefix="staging.orders")
    name = topic.removeprefix("staging.")

    read = read_topic(topics.bootstrap, name, namespace="staging")

    assert [batch.topic for batch in read] == [name]


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ({"start": 11}, OffsetOutOfRange, "start=11 is outside the log, .* from 0 .* without 10"),
        ({"end": 11}, OffsetOutOfRange, "end=11 is outside"),
        ({"start": -1}, InvalidArgument, "an offset is 0 or more"),
        ({"start": "erliest"}, InvalidArgument, "must be an offset, a time, earliest or latest"),
        ({"start": 1.5}, InvalidArgument, "must be an offset"),
        ({"start": 1, "start_time": 5}, InvalidArgument, "start or start_time, not both"),
        ({"start_time": -5}, InvalidArgument, "before 1970"),
        ({"partitions": [3]}, InvalidArgument, "has 3 partitions, from 0 on"),
        ({"columns": ["valeu"]}, InvalidArgument, "there is no column 'valeu'"),
        ({"group_id": "g"}, InvalidArgument, "read_topic has no group_id"),
        (
            {"value_deserializer": "json"},
            InvalidArgument,
            "no value_deserializer: it gives columns",
        ),
    ],
)
def test_what_cannot_be_read(
    topics: Topics, topic: str, given: Any, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        read_topic(topics.bootstrap, topic, **given)


def test_a_topic_or_a_broker_that_is_not_there(topics: Topics) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'nowhere'"):
        read_topic(topics.bootstrap, "nowhere")
    with pytest.raises(BootstrapFailed, match="no broker reachable"):
        read_topic("127.0.0.1:1", "nowhere", timeout=1.0)


def test_an_error_on_the_way_is_the_error_itself(topics: Topics) -> None:
    topic = topics.make(3)
    read = read_topic(
        topics.bootstrap, topic, timeout=0.5, fetch_min_bytes=1 << 20, fetch_max_wait=30
    )

    with pytest.raises(OperationTimeout, match=f"nothing arrived .* {topic}-0 up to 3"):
        read.to_arrow()
