"""A growing PostgreSQL table, read without loss and without repetition. Spark is played here."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.postgres.data_source import (
    PostgresDataSource,
    ReadSettings,
    TableStreamReader,
)
from tests.spark.postgres_query import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Connection = psycopg.Connection[tuple[Any, ...]]
    Begin = Callable[..., Query]

TABLE = "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text)"


@pytest.fixture
def database(postgres: str) -> Iterator[Connection]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(TABLE)
        yield connection


@pytest.fixture
def begin(postgres: str, tmp_path: Path) -> Iterator[Begin]:
    """Begins queries, and stops them at the end."""
    begun: list[Query] = []

    def begin(**changes: Any) -> Query:
        begun.append(Query(postgres, tmp_path, **changes))
        return begun[-1]

    yield begin
    for each in begun:
        each.stop()


def order(database: Connection, *items: str) -> None:
    for item in items:
        database.execute("INSERT INTO orders (item) VALUES (%s)", [item])


def test_new_rows_come_once_and_in_order(database: Connection, begin: Begin) -> None:
    query = begin()
    order(database, "a", "b")
    assert query.items() == ["a", "b"]

    order(database, "c")
    query.restart()

    assert query.items() == ["c"]
    assert query.items() == []


def test_a_batch_that_is_done_again_has_the_rows_it_had(database: Connection, begin: Begin) -> None:
    order(database, "a", "b")
    query = begin()
    assert query.plan()
    before = query.rows()

    # Spark stops before the batch is done; meanwhile its rows change.
    database.execute("UPDATE orders SET item = 'changed' WHERE item = 'a'")
    database.execute("DELETE FROM orders WHERE item = 'b'")
    query.restart()

    assert query.rows() == before == [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]


def test_a_batch_that_spark_never_noted_is_planned_anew(database: Connection, begin: Begin) -> None:
    order(database, "a")
    query = begin()
    query.items()
    order(database, "b")
    query.reader.latestOffset(query.start, ReadMaxRows(100))

    order(database, "c")
    query.restart()

    assert query.items() == ["b", "c"]


def test_a_row_that_is_committed_late_is_not_missed(
    database: Connection, postgres: str, begin: Begin
) -> None:
    query = begin()
    order(database, "first")
    assert query.items() == ["first"]
    with psycopg.connect(postgres) as slow:
        slow.execute("INSERT INTO orders (item) VALUES ('late')")
        order(database, "early")  # a higher value, visible before the lower one

        assert query.items() == []

    assert query.items() == ["late", "early"]


def test_writers_that_came_later_do_not_hold_a_bound_up(
    database: Connection, postgres: str, begin: Begin
) -> None:
    query = begin()
    with psycopg.connect(postgres) as first, psycopg.connect(postgres) as second:
        first.execute("INSERT INTO orders (item) VALUES ('one')")
        order(database, "two")
        assert query.items() == []
        second.execute("INSERT INTO orders (item) VALUES ('three')")

        first.commit()

        assert query.items() == ["one", "two"]
    assert query.items() == ["three"]


def test_rolled_back_rows_are_no_rows(database: Connection, postgres: str, begin: Begin) -> None:
    query = begin()
    with psycopg.connect(postgres) as unsure:
        unsure.execute("INSERT INTO orders (item) VALUES ('never')")
        order(database, "a")
        query.items()
        unsure.rollback()

    assert query.items() == ["a"]


def test_equal_values_stay_in_one_batch(postgres: str, begin: Begin) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE orders (id int, item text)")
        connection.execute("INSERT INTO orders SELECT n / 3, n::text FROM generate_series(0, 9) n")
    query = begin(rows_max=2)

    batches = []
    while query.plan():
        batches.append([row["item"] for row in query.rows()])

    assert batches == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"], ["9"]]


def test_a_limit_cuts_batches_and_no_limit_takes_all(database: Connection, begin: Begin) -> None:
    order(database, *"abcdefghijkl")  # more than nine: numbers are not ordered as texts are
    query = begin(rows_max=4)

    assert query.plan()
    assert [row["item"] for row in query.rows()] == ["a", "b", "c", "d"]
    assert query.plan(ReadAllAvailable())
    assert [row["item"] for row in query.rows()] == list("efghijkl")


def test_changed_rows_come_again_by_a_time_that_a_trigger_sets(postgres: str, begin: Begin) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (item text, n int, changed timestamptz)")
        connection.execute(
            "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.changed = clock_timestamp(); RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON orders "
            "FOR EACH ROW EXECUTE FUNCTION touch()"
        )
        connection.execute("INSERT INTO orders VALUES ('a', 1), ('b', 1)")
        query = begin(column="changed")
        assert query.items() == ["a", "b"]

        connection.execute("UPDATE orders SET n = 2 WHERE item = 'a'")

        assert query.plan()
        assert [(row["item"], row["n"]) for row in query.rows()] == [("a", 2)]


def test_young_rows_wait_where_a_delay_is_set(postgres: str, begin: Begin) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (item text, at timestamptz)")
        connection.execute(
            "INSERT INTO orders VALUES ('old', now() - interval '1 hour'), ('young', now())"
        )
    query = begin(column="at", delay_seconds=60.0)

    assert query.items() == ["old"]


def test_all_that_is_there_now_ends_there(database: Connection, begin: Begin) -> None:
    order(database, *"abc")
    query = begin(rows_max=2)
    query.reader.prepareForTriggerAvailableNow()

    order(database, "later")

    assert query.items() == ["a", "b", "c"]


def test_all_that_is_there_now_never_goes_back(database: Connection, begin: Begin) -> None:
    order(database, *"abc")
    query = begin()
    query.items()
    database.execute("DELETE FROM orders WHERE id = 3")

    query.restart()
    query.reader.prepareForTriggerAvailableNow()

    assert query.items() == []


def test_a_writer_that_does_not_end_is_not_waited_for_without_end(
    database: Connection, postgres: str, begin: Begin
) -> None:
    order(database, "a")
    query = begin(settle_seconds=0.1)
    with psycopg.connect(postgres) as slow:
        slow.execute("INSERT INTO orders (item) VALUES ('late')")

        with pytest.raises(ConnectorFailed, match="transaction that did not end"):
            query.reader.prepareForTriggerAvailableNow()
        slow.rollback()


def test_a_staged_batch_may_lack_a_column_that_was_added_since(
    database: Connection, begin: Begin
) -> None:
    order(database, "a")
    query = begin()
    query.plan()
    database.execute("ALTER TABLE orders ADD COLUMN price numeric(8, 2)")

    query.restart()

    assert query.rows() == [{"id": 1, "item": "a", "price": None}]


def test_rows_whose_file_is_gone_are_an_error_that_says_what_to_do(
    database: Connection, begin: Begin
) -> None:
    order(database, "a")
    query = begin()
    query.plan()
    query.reader.commit(query.offsets[-1])

    with pytest.raises(ConnectorFailed, match=r"are gone.*new checkpoint"):
        query.rows()


def test_types_come_as_spark_has_them(postgres: str, begin: Begin) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE orders (id int, flag bool, ratio float8, price numeric(8,2),"
            " free numeric, name varchar(9), raw bytea, tags text[], tree jsonb, day date,"
            " at timestamptz, plain timestamp)"
        )
        connection.execute(
            "INSERT INTO orders VALUES (1, true, 0.1, 1.50, 1e30, 'é \"x\",\n', '\\x00ff', "
            "'{a,\"b c\"}', '{\"k\": [1]}', '2026-11-16', '2026-11-16 09:00:00.5+01', "
            "'2026-11-16 09:00:00.5'), (2, null, null, null, null, '', null, null, null, null, "
            "null, null)"
        )
    query = begin()
    query.plan()

    first, second = query.rows()

    assert first == {
        "id": 1,
        "flag": True,
        "ratio": 0.1,
        "price": first["price"],
        "free": "1" + "0" * 30,
        "name": 'é "x",\n',
        "raw": b"\x00\xff",
        "tags": '["a","b c"]',
        "tree": '{"k": [1]}',
        "day": dt.date(2026, 11, 16),
        "at": dt.datetime(2026, 11, 16, 8, 0, 0, 500_000, tzinfo=dt.UTC),
        "plain": dt.datetime(2026, 11, 16, 9, 0, 0, 500_000),  # noqa: DTZ001  # It has no zone.
    }
    assert str(first["price"]) == "1.50"
    assert second == dict.fromkeys(first) | {"id": 2, "name": ""}


def test_a_table_is_read_whole_where_no_column_grows(database: Connection, postgres: str) -> None:
    order(database, "a", "b")
    settings = ReadSettings(connection=postgres, table="public.orders")
    source = PostgresDataSource(settings.as_options())
    reader: Any = source.reader(source.schema())

    rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]

    assert rows == [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]


def test_partitions_written_by_themselves_are_watched_too(postgres: str, begin: Begin) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int, item text) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (9)")
        query = begin()
        with psycopg.connect(postgres) as slow:
            slow.execute("INSERT INTO low VALUES (1, 'late')")
            connection.execute("INSERT INTO orders VALUES (2, 'early')")
            assert query.items() == []

        assert query.items() == ["late", "early"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"table": "odrers"}, "no table 'odrers'"),
        ({"table": "a.b.c"}, "write `table` or `schema.table`"),
        ({"table": "seen"}, "is no table but a view"),
    ],
)
def test_what_cannot_be_read_is_said_before_the_query_starts(
    database: Connection, begin: Begin, changes: dict[str, Any], problem: str
) -> None:
    database.execute("CREATE VIEW seen AS SELECT * FROM orders")

    with pytest.raises(InvalidArgument, match=problem):
        begin(**changes)


def test_a_column_that_is_not_there_is_named_with_those_that_are(
    database: Connection, begin: Begin
) -> None:
    query = begin(column="ident")

    with pytest.raises(InvalidArgument, match="no column 'ident'; it has id, item"):
        query.items()


def test_a_reader_lets_go_of_the_server(database: Connection, begin: Begin) -> None:
    query = begin()
    query.items()
    assert isinstance(query.reader, TableStreamReader)
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'millstream import'"
    assert database.execute(ours).fetchone() == (1,)

    query.reader.stop()

    # The server hears of it when it reads the connection's end.
    while database.execute(ours).fetchone() != (0,):
        pass
