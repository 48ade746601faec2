"""Rows into PostgreSQL: by key, whole batches, each once. The target is driven without Spark."""

from __future__ import annotations

import datetime as dt
import threading
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.batches import Batch
from millstream.spark.pipelines.connectors.postgres.connection import TableName
from millstream.spark.pipelines.connectors.postgres.upsert import PostgresTable, UpsertPlan

CUSTOMERS = {"id": "bigint", "name": "string", "place": "bigint", "gone": "boolean"}


def table(address: str, types: dict[str, str] | None = None, **changes: Any) -> PostgresTable:
    plan: dict[str, Any] = {
        "table": TableName.parse("customers"),
        "types": types or CUSTOMERS,
        "key": ("id",),
        "order_by": "place",
        "deleted": "gone",
    }
    return PostgresTable(address, UpsertPlan(**(plan | changes)))


def rows(*values: tuple[object, ...]) -> pa.Table:
    columns = list(zip(*values, strict=True))
    types = [pa.int64(), pa.string(), pa.int64(), pa.bool_()]
    return pa.table(
        [pa.array(each, kind) for each, kind in zip(columns, types, strict=True)],
        names=list(CUSTOMERS),
    )


def stored(address: str, query: str = "SELECT * FROM customers ORDER BY id") -> list[Any]:
    with psycopg.connect(address) as connection:
        return connection.execute(query).fetchall()


def test_rows_are_inserted_updated_and_deleted_by_key(postgres: str) -> None:
    target = table(postgres)
    target.write(
        rows((1, "Ada", 0, False), (2, "Bob", 1, False), (3, "Cy", 2, False)), Batch("q", 0)
    )

    target.write(rows((2, "Bert", 3, False), (3, None, 4, True), (4, "Di", 5, None)), Batch("q", 1))

    assert stored(postgres) == [(1, "Ada"), (2, "Bert"), (4, "Di")]


def test_the_last_row_of_a_key_wins_within_a_batch(postgres: str) -> None:
    target = table(postgres)

    target.write(
        rows(
            (1, "third", 3, False),
            (1, "first", 1, False),
            (2, None, 9, True),
            (2, "before its end", 2, False),
            (3, None, 4, True),
            (3, "born again", 5, False),
        ),
        Batch("q", 0),
    )

    assert stored(postgres) == [(1, "third"), (3, "born again")]


def test_a_batch_that_comes_again_changes_nothing(postgres: str) -> None:
    target = table(postgres)
    assert target.write(rows((1, "Ada", 0, False)), Batch("q", 7))
    with psycopg.connect(postgres) as connection:
        connection.execute("UPDATE customers SET name = 'changed since'")

    assert not table(postgres).write(rows((1, "Ada", 0, False)), Batch("q", 7))
    assert not table(postgres).write(rows((1, "older", 0, False)), Batch("q", 6))

    assert stored(postgres) == [(1, "changed since")]


def test_queries_count_their_batches_apart(postgres: str) -> None:
    target = table(postgres)
    target.write(rows((1, "Ada", 0, False)), Batch("one", 5))

    assert target.write(rows((2, "Bob", 0, False)), Batch("other", 0))

    assert stored(postgres) == [(1, "Ada"), (2, "Bob")]


def test_a_batch_with_one_bad_row_leaves_the_table_and_the_progress_alone(postgres: str) -> None:
    target = table(postgres)
    target.write(rows((1, "Ada", 0, False)), Batch("q", 0))

    with pytest.raises(ConnectorFailed, match=r"1 rows have no id.*expectation"):
        target.write(rows((2, "Bob", 1, False), (None, "nobody", 2, False)), Batch("q", 1))

    assert stored(postgres) == [(1, "Ada")]
    assert target.write(rows((2, "Bob", 1, False)), Batch("q", 1))


def test_two_rows_of_which_none_is_the_last_are_refused(postgres: str) -> None:
    twice = rows((1, "Ada", 0, False), (1, "Eve", 0, False))

    with pytest.raises(ConnectorFailed, match=r"id = 1 and nothing says which is the last"):
        table(postgres).write(twice, Batch("q", 0))
    with pytest.raises(ConnectorFailed, match="name a column in `order_by`"):
        table(postgres, order_by=None, table=TableName.parse("public.others")).write(
            twice, Batch("q", 0)
        )


def test_two_processes_with_one_query_write_a_batch_once(postgres: str) -> None:
    types = {"id": "bigint", "n": "bigint"}
    target = table(postgres, types, order_by=None, deleted=None)
    target.write(pa.table({"id": [1], "n": [0]}), Batch("q", 0))
    written: list[bool] = []

    def write() -> None:
        for number in range(1, 9):
            rows = pa.table({"id": [number], "n": [number]})
            written.append(
                table(postgres, types, order_by=None, deleted=None).write(rows, Batch("q", number))
            )

    threads = [threading.Thread(target=write) for _each in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(written) == 8
    assert stored(postgres, "SELECT count(*), sum(n) FROM customers") == [(8, 36)]


def test_every_type_arrives_as_it_was(postgres: str) -> None:
    moment = dt.datetime(2026, 11, 16, 8, 30, 0, 123456, tzinfo=dt.UTC)
    values = {
        "id": ("bigint", pa.array([1, 2])),
        "text": (
            "string",
            pa.array(["", 'a "quoted"\n, line\\']),
        ),
        "nothing": ("string", pa.array([None, None], pa.string())),
        "bytes": ("binary", pa.array([b"\x00\xff\\", None])),
        "moment": ("timestamp", pa.array([moment, None], pa.timestamp("us", "UTC"))),
        "day": ("date", pa.array([moment.date(), None])),
        "amount": ("decimal(12,2)", pa.array([Decimal("12.30"), None])),
        "ratio": ("double", pa.array([0.1, None])),
        "tree": ("struct<a:int>", pa.array(['{"a":1}', None])),
    }
    target = table(
        postgres, {name: kind for name, (kind, _v) in values.items()}, order_by=None, deleted=None
    )

    target.write(pa.table({name: each for name, (_k, each) in values.items()}), Batch("q", 0))

    assert stored(postgres) == [
        (1, "", None, b"\x00\xff\\", moment, moment.date(), Decimal("12.30"), 0.1, {"a": 1}),
        (2, 'a "quoted"\n, line\\', None, None, None, None, None, None, None),
    ]


def test_a_table_of_keys_alone_ignores_what_it_has(postgres: str) -> None:
    target = table(postgres, {"id": "bigint"}, order_by=None, deleted=None)

    target.write(pa.table({"id": [1, 2]}), Batch("q", 0))
    target.write(pa.table({"id": [2, 3]}), Batch("q", 1))

    assert stored(postgres) == [(1,), (2,), (3,)]


def test_a_table_without_a_unique_key_is_refused(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE customers (id bigint, name text)")

    with pytest.raises(InvalidArgument, match=r"no primary key or unique index on \(id\)"):
        table(postgres).write(rows((1, "Ada", 0, False)), Batch("q", 0))


def test_a_column_that_the_table_lacks_is_named_with_those_it_has(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE customers (id bigint PRIMARY KEY, nom text)")

    with pytest.raises(InvalidArgument, match="no column 'name'; it has id, nom"):
        table(postgres).write(rows((1, "Ada", 0, False)), Batch("q", 0))


def test_a_table_that_is_not_to_be_created_must_be_there(postgres: str) -> None:
    target = table(postgres)
    target.creates = False

    with pytest.raises(InvalidArgument, match='no table "customers"'):
        target.write(rows((1, "Ada", 0, False)), Batch("q", 0))


def test_an_address_nobody_listens_at_is_said_so() -> None:
    target = table("host=127.0.0.1 port=1 connect_timeout=2")

    with pytest.raises(ConnectorFailed, match="PostgreSQL cannot be reached"):
        target.write(rows((1, "Ada", 0, False)), Batch("q", 0))


def test_an_address_that_libpq_does_not_understand_is_said_so() -> None:
    with pytest.raises(InvalidArgument, match="not understood"):
        table("hots=nowhere").write(rows((1, "Ada", 0, False)), Batch("q", 0))
