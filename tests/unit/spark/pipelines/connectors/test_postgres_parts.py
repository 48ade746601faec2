"""The parts of the PostgreSQL connectors that need no server: types, bounds, statements, files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.jdbc import JdbcSource
from millstream.spark.pipelines.connectors.lake.iceberg import IcebergSink
from millstream.spark.pipelines.connectors.lake.parquet import CompactParquetSink
from millstream.spark.pipelines.connectors.postgres.chunks import ChunkQueries, Settlement
from millstream.spark.pipelines.connectors.postgres.columns import (
    Column,
    copyable,
    parse_copied,
    postgres_type,
    quoted,
    whole_rows,
)
from millstream.spark.pipelines.connectors.postgres.connection import TableName, connect
from millstream.spark.pipelines.connectors.postgres.sink import PostgresSink
from millstream.spark.pipelines.connectors.postgres.source import PostgresSource
from millstream.spark.pipelines.connectors.postgres.staging import StagingArea
from millstream.spark.pipelines.connectors.postgres.upsert import UpsertPlan

if TYPE_CHECKING:
    from pathlib import Path

# How far a table may be read.


def test_a_bound_without_writers_is_settled_at_once() -> None:
    settlement = Settlement()

    settlement.propose("7", frozenset())

    assert settlement.settled == "7"
    assert not settlement.is_waiting


def test_a_bound_waits_for_the_writers_of_its_time_and_no_others() -> None:
    settlement = Settlement()
    settlement.propose("7", frozenset({"3/1", "4/9"}))
    assert settlement.is_waiting

    settlement.observe(frozenset({"4/9", "5/5"}))
    assert settlement.settled is None
    settlement.observe(frozenset({"3/2", "5/5"}))  # the backend of 3/1 is at its next transaction

    assert settlement.settled == "7"


def test_a_settled_bound_stays_while_the_next_one_waits() -> None:
    settlement = Settlement(settled="7")

    settlement.propose("9", frozenset({"3/1"}))

    assert (settlement.settled, settlement.is_waiting) == ("7", True)


def queries(delay: float = 0.0) -> ChunkQueries:
    columns = [Column("id", "bigint"), Column("raw", "bytea")]
    return ChunkQueries(TableName.parse("public.orders"), columns, columns[0], delay)


def test_the_first_look_has_no_lower_bound() -> None:
    assert queries().highest(None) == ('SELECT max(t."id")::text FROM "public"."orders" t', [])


def test_later_looks_go_by_the_index_of_the_column() -> None:
    statement, arguments = queries(delay=5.0).highest("7")

    assert statement.endswith(
        """WHERE t."id" > %s::bigint AND t."id" <= now() - %s * interval '1 second'"""
    )
    assert arguments == ["7", 5.0]


def test_a_chunk_lies_between_two_values() -> None:
    statement, arguments = queries().copy("7", "9")

    assert statement == (
        """COPY (SELECT "id", encode("raw", 'hex') AS "raw" FROM "public"."orders" t """
        """WHERE t."id" > %s::bigint AND t."id" <= %s::bigint ORDER BY t."id") """
        "TO STDOUT (FORMAT csv)"
    )
    assert arguments == ["7", "9"]


# Types.


@pytest.mark.parametrize(
    ("postgres", "spark"),
    [
        ("integer", "int"),
        ("character varying(9)", "string"),
        ("numeric(12,2)", "decimal(12,2)"),
        ("numeric(50,2)", "string"),
        ("numeric(3,-2)", "string"),
        ("numeric", "string"),
        ("timestamp(3) with time zone", "timestamp"),
        ("timestamp without time zone", "timestamp_ntz"),
        ("integer[]", "string"),
        ("mood", "string"),
    ],
)
def test_types_in_spark_lose_nothing(postgres: str, spark: str) -> None:
    assert Column("c", postgres).spark_type == spark


@pytest.mark.parametrize(
    ("spark", "postgres"),
    [
        ("decimal(12,2)", "numeric(12,2)"),
        ("timestamp", "timestamptz"),
        ("array<string>", "jsonb"),
        ("struct<a:int>", "jsonb"),
    ],
)
def test_types_of_a_new_table_are_the_rows_own(spark: str, postgres: str) -> None:
    assert postgres_type(spark) == postgres


def test_a_type_without_counterpart_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"interval has no counterpart.*cast it"):
        postgres_type("interval")


def test_names_are_quoted_whatever_they_have() -> None:
    assert quoted('a"b') == '"a""b"'
    with pytest.raises(InvalidArgument, match="null character"):
        quoted("a\0b")


def test_nothing_and_an_empty_text_are_kept_apart_both_ways() -> None:
    column = [Column("name", "text")]
    table = pa.table({"name": ["", None, 'x"\n,']})

    assert copyable(table) == b'""\n\n"x""\n,"\n'
    assert parse_copied(b'""\n""\n', column).column("name").to_pylist() == ["", ""]
    pair = [Column("id", "bigint"), *column]
    assert parse_copied(b'1,""\n2,\n', pair).column("name").to_pylist() == ["", None]


def test_a_column_of_nothing_but_nulls_has_as_many_rows() -> None:
    # PostgreSQL writes a null in the only column as an empty line.
    assert parse_copied(b"\n7\n\n", [Column("id", "bigint")]).to_pylist() == [
        {"id": None},
        {"id": 7},
        {"id": None},
    ]


def test_a_table_is_read_in_parts_that_end_with_a_row() -> None:
    blocks = [b'1,"a\n', b'b"\n', b"2,c\n", b"3,", b"d\n", b"4,e\n"]

    parts = list(whole_rows(blocks, part_bytes=1))

    assert parts == [b'1,"a\nb"\n', b"2,c\n", b"3,d\n", b"4,e\n"]
    assert list(whole_rows(blocks, part_bytes=8)) == [b'1,"a\nb"\n', b"2,c\n3,d\n", b"4,e\n"]
    assert list(whole_rows([], part_bytes=9)) == []


def test_no_rows_have_columns_too() -> None:
    table = parse_copied(b"", [Column("id", "bigint")])

    assert table.schema == pa.schema([("id", pa.int64())])
    assert table.num_rows == 0


# Upserts.


def plan(**changes: Any) -> UpsertPlan:
    given: dict[str, Any] = {
        "table": TableName.parse("orders"),
        "types": {"id": "bigint", "item": "string", "place": "bigint", "gone": "boolean"},
        "key": ("id",),
        "order_by": "place",
        "deleted": "gone",
    }
    return UpsertPlan(**(given | changes))


def test_columns_that_only_say_how_are_not_stored() -> None:
    assert plan().columns == ["id", "item"]
    assert plan().create == 'CREATE TABLE "orders" ("id" bigint, "item" text, PRIMARY KEY ("id"))'


def test_a_column_that_the_rows_lack_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="no column 'ident'; they have id, item, place"):
        plan(key=("ident",))


def test_without_a_column_for_it_nothing_is_deleted() -> None:
    assert plan(deleted=None).delete is None
    assert "WHERE" not in plan(deleted=None).merge.partition("ON CONFLICT")[0]


@pytest.mark.parametrize("name", ["", "a.b.c", ".b", "a."])
def test_names_of_tables_have_one_dot_at_most(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"write `table` or `schema\.table`"):
        TableName.parse(name)


# Staging.


def test_a_chunk_is_replaced_until_it_is_done_and_then_removed(tmp_path: Path) -> None:
    area = StagingArea(str(tmp_path), "q")
    area.write(1, pa.table({"n": [1]}))
    area.write(1, pa.table({"n": [2]}))
    area.write(2, pa.table({"n": [3]}))
    assert [batch.to_pydict() for batch in area.read(1)] == [{"n": [2]}]

    area.discard_through(1)

    assert [each.name for each in (tmp_path / "q").iterdir()] == ["000000000002.arrow"]


def test_a_staging_area_may_be_an_address(tmp_path: Path) -> None:
    area = StagingArea(f"file://{tmp_path}", "q")

    area.write(1, pa.table({"n": [1]}))

    assert [batch.to_pydict() for batch in area.read(1)] == [{"n": [1]}]


# What definitions may not say.


def test_what_does_not_fit_together_is_a_fault() -> None:
    database: dict[str, Any] = {"connection": "dbname=x", "table": "orders"}
    assert list(PostgresSource(**database, stream=True).faults()) == [
        "a stream of a table needs `column`, one that grows with every new row"
    ]
    assert list(PostgresSource(**database).faults()) == []
    assert not PostgresSource(**database).is_streaming
    assert PostgresSource(**database, column="id").is_streaming
    assert list(PostgresSink(from_="r", **database, key=()).faults()) == ["`key` has no column"]
    assert list(IcebergSink(from_="r", catalog={}, table="orders").faults()) == [
        "`table` needs a namespace: not 'orders' but `sales.orders`"
    ]
    assert list(CompactParquetSink(from_="r", path="s3://b/t").faults()) == [
        "compact-parquet writes to a file system; for an object store take delta"
    ]
    assert list(JdbcSource(url="jdbc:x:y").faults()) == ["give `table` or `query`"]


def test_psycopg_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(ConnectorFailed, match=r"pip install 'millstream\[postgres\]'"):
        connect("dbname=x", application="test")
