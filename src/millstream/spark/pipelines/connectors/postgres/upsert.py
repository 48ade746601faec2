"""A batch of rows into a PostgreSQL table: inserted, updated or deleted by key, exactly once.

`sink` calls it on the driver. Rows are copied into a table of the transaction, merged from there,
and the batch's number is noted, all in one transaction: a batch is in the table as a whole or not
at all, and one that is given again is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.postgres.columns import (
    copyable,
    postgres_type,
    quoted,
    quoted_list,
)
from millstream.spark.pipelines.connectors.postgres.connection import (
    TableName,
    connect,
    find_relation,
    is_unique,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from millstream.spark.pipelines.connectors.batches import Batch
    from millstream.spark.pipelines.connectors.postgres.connection import Connection

PROGRESS: Final = "millstream_progress"
_INCOMING: Final = "millstream_incoming"
_ORDER: Final = "millstream_order"
_DELETED: Final = "millstream_deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertPlan:
    """The statements for rows of given columns. `types` are the columns' types in Spark."""

    table: TableName
    types: Mapping[str, str]
    key: tuple[str, ...]
    order_by: str | None
    deleted: str | None

    def __post_init__(self) -> None:
        for name in (*self.key, self.order_by, self.deleted):
            if name is not None and name not in self.types:
                raise InvalidArgument(
                    f"the rows have no column {name!r}; they have {', '.join(self.types)}"
                )

    @property
    def columns(self) -> list[str]:
        """The columns that are stored: all but those that only say how."""
        return [name for name in self.types if name not in (self.order_by, self.deleted)]

    @property
    def incoming_columns(self) -> list[str]:
        """The columns of the incoming rows, in their order of arrival."""
        renamed = {self.order_by: _ORDER, self.deleted: _DELETED}
        return [renamed.get(name, name) for name in self.types]

    @property
    def create(self) -> str:
        """Make the table, where there is none."""
        items = [f"{quoted(each)} {postgres_type(self.types[each])}" for each in self.columns]
        items.append(f"PRIMARY KEY ({quoted_list(self.key)})")
        return f"CREATE TABLE {self.table.sql} ({', '.join(items)})"

    @property
    def create_incoming(self) -> str:
        """Make the table of the transaction: the target's types, none of its constraints."""
        items = [f"t.{quoted(each)}" for each in self.columns]
        # In the order of the rows' columns, so that COPY needs no list.
        by_name = dict(zip(self.columns, items, strict=True))
        shown = [self._incoming_item(name, by_name) for name in self.types]
        return (
            f"CREATE TEMPORARY TABLE {quoted(_INCOMING)} ON COMMIT DROP AS "
            f"SELECT {', '.join(shown)} FROM {self.table.sql} t WITH NO DATA"
        )

    def _incoming_item(self, name: str, stored: Mapping[str, str]) -> str:
        if name in stored:
            return stored[name]
        alias = _ORDER if name == self.order_by else _DELETED
        return f"NULL::{postgres_type(self.types[name])} AS {quoted(alias)}"

    @property
    def copy(self) -> str:
        """Take the rows in."""
        return (
            f"COPY {quoted(_INCOMING)} ({quoted_list(self.incoming_columns)}) "
            "FROM STDIN (FORMAT csv)"
        )

    @property
    def keyless(self) -> str:
        """How many rows have no key."""
        absent = " OR ".join(f"{quoted(each)} IS NULL" for each in self.key)
        return f"SELECT count(*) FROM {quoted(_INCOMING)} WHERE {absent}"

    @property
    def ambiguous(self) -> str:
        """A key with several rows of which none is the last."""
        key = quoted_list(self.key)
        if self.order_by is None:
            return (
                f"SELECT {key} FROM {quoted(_INCOMING)} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
            )
        order = quoted(_ORDER)
        return (
            f"SELECT {key} FROM (SELECT {key}, rank() OVER (PARTITION BY {key} "
            f"ORDER BY {order} DESC NULLS LAST) AS place FROM {quoted(_INCOMING)}) ranked "
            f"WHERE place = 1 GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
        )

    @property
    def latest(self) -> str:
        """The last row of every key, as a subquery."""
        key = quoted_list(self.key)
        order = "" if self.order_by is None else f", {quoted(_ORDER)} DESC NULLS LAST"
        return f"(SELECT DISTINCT ON ({key}) * FROM {quoted(_INCOMING)} ORDER BY {key}{order})"

    @property
    def delete(self) -> str | None:
        """Delete the rows whose last row says so."""
        if self.deleted is None:
            return None
        same = " AND ".join(f"t.{quoted(each)} = latest.{quoted(each)}" for each in self.key)
        return (
            f"DELETE FROM {self.table.sql} t USING {self.latest} latest "
            f"WHERE {same} AND latest.{quoted(_DELETED)}"
        )

    @property
    def merge(self) -> str:
        """Insert the rest, or update what is there; rows that would stay as they are, stay."""
        columns = quoted_list(self.columns)
        values = [each for each in self.columns if each not in self.key]
        kept = "" if self.deleted is None else f" WHERE {quoted(_DELETED)} IS NOT TRUE"
        if values:
            changes = ", ".join(f"{quoted(each)} = EXCLUDED.{quoted(each)}" for each in values)
            old = ", ".join(f"t.{quoted(each)}" for each in values)
            new = ", ".join(f"EXCLUDED.{quoted(each)}" for each in values)
            action = f"DO UPDATE SET {changes} WHERE ({old}) IS DISTINCT FROM ({new})"
        else:
            action = "DO NOTHING"
        return (
            f"INSERT INTO {self.table.sql} AS t ({columns}) "
            f"SELECT {columns} FROM {self.latest} latest{kept} "
            f"ON CONFLICT ({quoted_list(self.key)}) {action}"
        )


@dataclass(slots=True)
class PostgresTable:
    """The target of a sink: one table, and the batches that are in it."""

    connection: str
    plan: UpsertPlan
    creates: bool = True
    _is_prepared: bool = field(default=False, init=False)

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        """Take a batch, in one transaction."""
        data = copyable(rows)
        with connect(self.connection, application="millstream export") as connection:
            self._prepare(connection)
            if not batch.is_news_after(self._locked_progress(connection, batch.query)):
                return False
            with connection.cursor() as cursor:
                cursor.execute(self.plan.create_incoming)
                with cursor.copy(self.plan.copy) as copy:
                    copy.write(data)
                self._check(cursor)
                if self.plan.delete is not None:
                    cursor.execute(self.plan.delete)
                cursor.execute(self.plan.merge)
                cursor.execute(
                    f"UPDATE {self._progress.sql} SET batch = %s, at = now() WHERE query = %s",
                    [batch.number, batch.query],
                )
        return True

    @property
    def _progress(self) -> TableName:
        return TableName(self.plan.table.schema, PROGRESS)

    def _prepare(self, connection: Connection) -> None:
        """Make what is absent, once, and see that keys are unique."""
        if self._is_prepared:
            return
        # Two sinks that start together would both find it absent: one waits for the other.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [PROGRESS])
        # Looked for first: a role that may write to a table may not always create one.
        if find_relation(connection, self._progress) is None:
            connection.execute(
                f"CREATE TABLE {self._progress.sql} (query text PRIMARY KEY, "
                "batch bigint NOT NULL, at timestamptz NOT NULL)"
            )
        relation = find_relation(connection, self.plan.table)
        if relation is None and self.creates:
            connection.execute(self.plan.create)
            relation = find_relation(connection, self.plan.table)
        if relation is None:
            raise InvalidArgument(f"PostgreSQL has no table {self.plan.table.sql} in that database")
        for name in self.plan.columns:
            relation.column(name)
        if not is_unique(connection, relation, self.plan.key):
            raise InvalidArgument(
                f"{self.plan.table.sql} has no primary key or unique index on "
                f"({', '.join(self.plan.key)}), so rows cannot be found by it; create one"
            )
        connection.commit()
        self._is_prepared = True

    def _locked_progress(self, connection: Connection, query: str) -> int | None:
        """The last batch of the query; another process with the same query waits behind us."""
        connection.execute(
            f"INSERT INTO {self._progress.sql} VALUES (%s, -1, now()) ON CONFLICT DO NOTHING",
            [query],
        )
        found = connection.execute(
            f"SELECT batch FROM {self._progress.sql} WHERE query = %s FOR UPDATE", [query]
        ).fetchone()
        return None if found is None else int(found[0])

    def _check(self, cursor: Any) -> None:
        keyless = cursor.execute(self.plan.keyless).fetchone()[0]
        key = ", ".join(self.plan.key)
        if keyless:
            raise ConnectorFailed(
                f"{keyless} rows have no {key}, and so no place in {self.plan.table.sql}; "
                f"leave them out with `WHERE {self.plan.key[0]} IS NOT NULL` or an expectation"
            )
        found: Sequence[object] | None = cursor.execute(self.plan.ambiguous).fetchone()
        if found is not None:
            raise ConnectorFailed(
                f"a batch has several rows with {key} = {', '.join(map(str, found))} and nothing "
                "says which is the last; name a column in `order_by`, such as the record's offset"
            )
