"""Values decoded while they are read: columns, pruning, filters and dead letters together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import LessThan
from pyspark.sql.types import LongType, StructType

from millstream.clock import SystemClock
from millstream.errors import InvalidArgument
from millstream.spark.worker_clients import close_all
from tests.spark.source_world import HOUR_AGO_MS, SourceWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration

JSON: dict[str, Any] = {"valueFormat": "json", "valueSchema": "id BIGINT"}


@pytest.fixture
def world(millstream_broker: EmbeddedBroker) -> Iterator[SourceWorld]:
    yield SourceWorld(millstream_broker)
    close_all()


@pytest.fixture
def topic(world: SourceWorld, millstream_topic: TopicFactory) -> str:
    name = millstream_topic("values")
    world.produce(name, b'{"id": 1}', b"nonsense", b'{"id": 3}')
    return name


def test_the_value_is_a_struct_and_what_is_wrong_has_a_column(
    world: SourceWorld, topic: str
) -> None:
    good, bad, other = world.rows(subscribe=topic, includeHeaders="true", **JSON)

    assert (good["value"], good["_error"]) == ({"id": 1}, None)
    assert other["value"] == {"id": 3}
    assert bad["value"] is None
    assert bad["_error"]["value"] == b"nonsense"
    assert list(good)[-2:] == ["headers", "_error"]


def test_a_narrow_schema_still_leaves_out_what_is_to_be_dropped(
    world: SourceWorld, topic: str
) -> None:
    narrow = StructType().add("offset", LongType())

    assert world.rows(narrow, subscribe=topic, onDecodeError="drop", **JSON) == [
        {"offset": 0},
        {"offset": 2},
    ]


def test_dead_letters_are_written_although_their_columns_are_not_wanted(
    world: SourceWorld, topic: str, millstream_topic: TopicFactory
) -> None:
    graves = millstream_topic("graves")
    narrow = StructType().add("offset", LongType())
    buried: dict[str, Any] = {"onDecodeError": "deadLetter", "deadLetterTopic": graves}

    assert len(world.rows(narrow, subscribe=topic, **buried, **JSON)) == 2
    assert world.values(subscribe=graves) == [b"nonsense"]


def test_rows_that_a_condition_excludes_are_not_decoded(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("filtered")
    start_ms = SystemClock().wall_ms() - HOUR_AGO_MS
    times = [start_ms, start_ms + 1000]
    world.produce(topic, b'{"id": 1}', b"nonsense", timestamps=times)
    first, second = (datetime.fromtimestamp(each / 1000, UTC) for each in times)

    strict: dict[str, Any] = {"onDecodeError": "fail", **JSON}
    rows = world.rows(filters=[LessThan(("timestamp",), second)], subscribe=topic, **strict)
    nothing = world.rows(filters=[LessThan(("timestamp",), first)], subscribe=topic, **strict)

    assert [row["value"] for row in rows] == [{"id": 1}]
    assert nothing == []


def test_options_of_decoding_need_a_format(world: SourceWorld, topic: str) -> None:
    with pytest.raises(InvalidArgument, match="without valueFormat nothing is decoded"):
        world.rows(subscribe=topic, valueSchema="id BIGINT")
