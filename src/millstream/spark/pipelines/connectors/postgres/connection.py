"""Connections to PostgreSQL, and what a table is: its columns, its kind, its keys.

`data_source` and `upsert` open their connections here, so that what is wrong is said the same way
everywhere: the package, the address, the table. It never writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.postgres.columns import Column, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

_UNIQUE_KEYS = """
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN pg_attribute a
  ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s::oid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name, with its schema unless the server is to search for it."""

    schema: str | None
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """From `table` or `schema.table`."""
        parts = text.split(".")
        if len(parts) > 2 or not all(parts):
            raise InvalidArgument(f"{text!r} is no table; write `table` or `schema.table`")
        return cls(parts[0] if len(parts) == 2 else None, parts[-1])

    @property
    def sql(self) -> str:
        """The name as SQL."""
        table = quoted(self.table)
        return table if self.schema is None else f"{quoted(self.schema)}.{table}"


@dataclass(frozen=True, slots=True)
class Relation:
    """What the server knows of a table."""

    oid: int
    kind: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column of a name, or an error that lists them all."""
        for each in self.columns:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in self.columns)
        raise InvalidArgument(f"the table has no column {name!r}; it has {known}")


def connect(conninfo: str, *, application: str, autocommit: bool = False) -> Connection:
    """Open a connection whose texts are those that `columns` reads and writes."""
    try:
        import psycopg
    except ImportError as missing:
        raise ConnectorFailed(
            "PostgreSQL needs the package psycopg: pip install 'millstream[postgres]'"
        ) from missing
    try:
        connection = psycopg.connect(conninfo, autocommit=True, application_name=application)
    except psycopg.OperationalError as refused:
        raise ConnectorFailed(f"PostgreSQL cannot be reached: {refused}") from refused
    except psycopg.ProgrammingError as wrong:
        raise InvalidArgument(f"the connection of PostgreSQL is not understood: {wrong}") from wrong
    connection.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET bytea_output = 'hex'")
    connection.autocommit = autocommit
    return connection


def find_relation(connection: Connection, name: TableName) -> Relation | None:
    """What the server knows of a table, or None if there is none of that name."""
    found = connection.execute(
        "SELECT oid::bigint, relkind::text FROM pg_class WHERE oid = to_regclass(%s)", [name.sql]
    ).fetchone()
    if found is None:
        return None
    columns = connection.execute(_COLUMNS, [found[0]]).fetchall()
    return Relation(found[0], found[1], tuple(Column(*each) for each in columns))


def is_unique(connection: Connection, relation: Relation, key: Sequence[str]) -> bool:
    """Whether an index makes sure that no two rows have the same key."""
    indexes = connection.execute(_UNIQUE_KEYS, [relation.oid]).fetchall()
    return any(set(each) == set(key) for (each,) in indexes)
