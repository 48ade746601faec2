"""Data frames into topics and back, with the types of their columns."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from millstream import (
    AsyncProducer,
    Consumer,
    InvalidArgument,
    Producer,
    SerializationFailed,
    async_read_topic,
    read_topic,
)
from millstream.testing import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ROWS: dict[str, list[Any]] = {
    "user": [7, 8, 9],
    "name": ['quo"te', "back\\slash", "new\nline é"],
    "amount": [1.5, None, -0.25],
    "is_paid": [True, False, None],
    "tags": [["a"], [], ["b", "c"]],
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "user", "type": "long"}, {"name": "name", "type": "string"}],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_memory=True) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    broker.create_topic(name, partitions=1)
    return name


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_a_frame_is_the_same_after_its_way_as_json(
    broker: EmbeddedBroker, topic: str, make: Callable[[Any], Any]
) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        delivery = producer.send_batch(topic, make(ROWS), key="user", value_format="json")
        producer.flush(20)
    assert len(delivery) == 3

    read = read_topic(
        broker.bootstrap_servers,
        topic,
        columns=["key", "value", "offset"],
        key_format="int64",
        value_format="json",
    ).to_arrow()

    assert read.schema.field("key").type == pa.int64()
    assert read.schema.field("amount").type == pa.float64()
    assert read.schema.field("tags").type == pa.list_(pa.string())
    found = read.to_pydict()
    assert found.pop("key") == ROWS["user"]
    assert found.pop("offset") == [0, 1, 2]
    assert found == ROWS


def test_other_consumers_read_plain_json_with_java_s_numbers(
    broker: EmbeddedBroker, topic: str
) -> None:
    frame = pa.table({"id": pa.array([5, None], pa.int32()), "at": [NOON, NOON]})
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_batch(topic, frame, key="id", value_format="json")
    with Consumer(
        broker.bootstrap_servers, topic, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        records = consumer.poll(20)

    values = {each.key: json.loads(each.value or b"") for each in records}
    assert {key: each["id"] for key, each in values.items()} == {b"\0\0\0\5": 5, None: None}
    assert datetime.fromisoformat(values[None]["at"]) == NOON


def test_a_schema_says_the_types_and_which_fields(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for value in ('{"a": 1, "b": "x"}', None, '{\n "a": 2}'):
            producer.send(topic, value)

    read = read_topic(
        broker.bootstrap_servers,
        topic,
        columns=["value"],
        value_format="json",
        value_schema=[("a", pa.int16()), ("c", pa.string())],
    ).to_arrow()

    assert read.schema == pa.schema([("a", pa.int16()), ("c", pa.string())])
    assert read.to_pydict() == {"a": [1, None, 2], "c": [None, None, None]}


def test_an_empty_topic_has_the_columns_of_the_schema(broker: EmbeddedBroker, topic: str) -> None:
    settings: Any = {"value_format": "json", "value_schema": [("a", pa.int64())]}
    read = read_topic(broker.bootstrap_servers, topic, columns=["value"], **settings)

    assert read.to_arrow().schema == pa.schema([("a", pa.int64())])


def test_avro_goes_both_ways(broker: EmbeddedBroker, topic: str) -> None:
    frame = pl.DataFrame({"user": [1, 2], "name": ["a", "b"]})
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_batch(topic, frame, key="name", value_format="avro", value_schema=AVRO)

    read = read_topic(
        broker.bootstrap_servers,
        topic,
        columns=["key", "value"],
        key_format="str",
        value_format="avro",
        value_schema=AVRO,
    )

    assert read.to_polars().to_dict(as_series=False) == {
        "key": ["a", "b"],
        "user": [1, 2],
        "name": ["a", "b"],
    }


def test_a_value_that_is_no_object_is_named_by_its_place(
    broker: EmbeddedBroker, topic: str
) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, '{"a": 1}')
        producer.send(topic, "{oops")
    read = read_topic(broker.bootstrap_servers, topic, value_format="json")

    with pytest.raises(SerializationFailed, match=f"{topic}-0 at offset 1"):
        read.to_arrow()


def test_a_key_that_is_no_number_is_named_by_its_place(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, "v", key="seven")
    read = read_topic(broker.bootstrap_servers, topic, key_format="int64")

    with pytest.raises(SerializationFailed, match=r"offset 0.*5 bytes is no int64"):
        read.to_arrow()


def test_the_same_in_asyncio(broker: EmbeddedBroker, topic: str) -> None:
    async def main() -> Any:
        async with AsyncProducer(broker.bootstrap_servers) as producer:
            await producer.send_batch(topic, pd.DataFrame(ROWS), key="user", value_format="json")
            await producer.flush(20)
        read = await async_read_topic(
            broker.bootstrap_servers, topic, columns=["value"], value_format="json"
        )
        return await read.to_pandas()

    found = asyncio.run(main())

    assert list(found["name"]) == ROWS["name"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"key": "user"}, "go with value_format="),
        ({"key": "usr", "value_format": "json"}, "key='usr': the table has user"),
        ({"value_format": "avro"}, "needs value_schema="),
    ],
)
def test_what_cannot_be_meant_is_refused(
    broker: EmbeddedBroker, topic: str, given: Any, problem: str
) -> None:
    with (
        Producer(broker.bootstrap_servers) as producer,
        pytest.raises(InvalidArgument, match=problem),
    ):
        producer.send_batch(topic, pa.table(ROWS), **given)


def test_types_are_of_the_whole_not_of_parts(broker: EmbeddedBroker, topic: str) -> None:
    with (
        read_topic(broker.bootstrap_servers, topic, value_format="json") as read,
        pytest.raises(InvalidArgument, match="call to_arrow"),
    ):
        next(iter(read))
