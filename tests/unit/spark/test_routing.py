"""Which columns are written and where rows go, by the rules of Spark's own Kafka sink."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import InvalidArgument
from millstream.spark.sink.routing import Routing

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

HEADERS = "array<struct<key:string,value:binary>>"


def test_columns_of_a_record_are_taken_and_others_left_out() -> None:
    types = {"n": "bigint", "value": "binary", "key": "string", "headers": HEADERS}

    routing = Routing.of(types, "t")

    assert set(routing.columns) == {"key", "value", "headers"}


@pytest.mark.parametrize("text", ["string", "string collate UNICODE_CI", "varchar(3)", "char(3)"])
def test_every_kind_of_string_will_do(text: str) -> None:
    assert Routing.of({"topic": text, "key": text, "value": text}, None).topic is None


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"value": "string"}, "topic option required when no 'topic' attribute is present"),
        ({"topic": "int", "value": "string"}, "topic attribute unsupported type int. topic must"),
        ({"topic": "string", "key": "string"}, "Required attribute 'value' not found"),
        ({"topic": "string", "value": "bigint"}, r"value must be a\(n\) string or binary"),
        ({"topic": "string", "value": "string", "key": "int"}, "key attribute unsupported type"),
        ({"topic": "string", "value": "string", "partition": "bigint"}, r"partition must be a"),
        ({"topic": "string", "value": "string", "headers": "map<string,binary>"}, "headers must"),
        ({"topic": "string", "value": "string", "timestamp": "bigint"}, "timestamp must be a"),
    ],
)
def test_what_does_not_fit_is_refused_in_sparks_words(types: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Routing.of(types, None)


def test_the_topic_option_goes_before_a_column_of_any_type() -> None:
    assert Routing.of({"topic": "int", "value": "string"}, "t").topic == "t"


def test_rows_are_split_by_topic_in_their_order() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": ["1", "2", "3", "4"], "n": [0, 0, 0, 0], "topic": ["a", "b", "a", "b"]}
    )
    routing = Routing.of({"value": "string", "n": "int", "topic": "string"}, None)

    parts = [(topic, rows.to_pydict()) for topic, rows in routing.split(batch)]

    assert parts == [("a", {"value": ["1", "3"]}), ("b", {"value": ["2", "4"]})]


def test_rows_of_one_topic_are_not_copied() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["1", "2"], "topic": ["a", "a"]})
    routing = Routing.of({"value": "string", "topic": "string"}, None)

    ((topic, rows),) = routing.split(batch)

    assert topic == "a"
    assert rows.column(0).buffers()[2].address == batch.column(0).buffers()[2].address


def test_no_rows_go_nowhere_and_a_row_without_a_topic_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["1", "2"]), pa.array(["a", None])], names=["value", "topic"]
    )
    routing = Routing.of({"value": "string", "topic": "string"}, None)

    assert list(routing.split(batch.slice(0, 0))) == []
    with pytest.raises(InvalidArgument, match="null topic present in the data"):
        list(routing.split(batch))
