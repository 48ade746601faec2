"""How far a growing table may be read without missing a row, and the statements that ask.

Rows are read in the order of one column that grows. A value is drawn before its row is visible, so
a row with a lower value may appear after one with a higher value: its transaction committed later.
Reading up to the highest visible value would lose it. `Settlement` decides how far is safe; the
reader in `data_source` asks the server and is told. No connection lives here.

The argument: a transaction that may still commit a value at or below the highest visible one drew
it inside a statement that writes the table, and that statement holds a lock on the table until its
transaction is visible to all. So a bound is settled when every transaction that held such a lock
after the bound was seen has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.spark.pipelines.connectors.postgres.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.spark.pipelines.connectors.postgres.columns import Column
    from millstream.spark.pipelines.connectors.postgres.connection import TableName

WRITERS = """
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND granted
  AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation IN (
    SELECT %(table)s::oid UNION SELECT relid::oid FROM pg_partition_tree(%(table)s::oid::regclass)
  )
"""
"""The transactions that write the table or one of its partitions, and are not over."""


@dataclass(slots=True)
class Settlement:
    """Decides how far the column may be read. Told of bounds and writers, it never asks."""

    settled: str | None = None
    """The highest value known to be complete: no row at or below it can appear any more."""
    _candidate: str | None = field(default=None, init=False)
    _awaited: frozenset[str] = field(default=frozenset(), init=False)

    @property
    def is_waiting(self) -> bool:
        """Whether a bound waits for writers; until it is settled no other is wanted."""
        return self._candidate is not None

    def propose(self, bound: str, writers: frozenset[str]) -> None:
        """A bound that was visible before these writers were seen."""
        self._candidate, self._awaited = bound, writers
        self._settle()

    def observe(self, writers: frozenset[str]) -> None:
        """The writers of this moment: those that are gone need not be waited for any longer."""
        self._awaited &= writers
        self._settle()

    def _settle(self) -> None:
        if self._candidate is not None and not self._awaited:
            self.settled, self._candidate = self._candidate, None


@dataclass(frozen=True, slots=True)
class ChunkQueries:
    """The statements of one table. Values of the column travel as text, so any type will do."""

    table: TableName
    columns: Sequence[Column]
    column: Column
    delay_seconds: float = 0.0

    @property
    def _value(self) -> str:
        # With the table's name: ORDER BY alone would mean the text that is selected, not the value.
        return f"t.{quoted(self.column.name)}"

    def highest(self, after: str | None) -> tuple[str, list[object]]:
        """The highest value that may be read now, were all transactions over."""
        conditions, arguments = self._after(after)
        if self.delay_seconds:
            # The server's clock decides, the same that most such columns are filled from.
            conditions.append(f"{self._value} <= now() - %s * interval '1 second'")
            arguments.append(self.delay_seconds)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT max({self._value})::text FROM {self.table.sql} t{where}", arguments

    def last_of(self, after: str | None, upto: str, rows_max: int) -> tuple[str, list[object]]:
        """The value of the last row of a chunk, if there are more rows than it may have."""
        conditions, arguments = self._between(after, upto)
        return (
            f"SELECT {self._value}::text FROM {self.table.sql} t WHERE {' AND '.join(conditions)} "
            f"ORDER BY {self._value} OFFSET %s LIMIT 1",
            [*arguments, rows_max - 1],
        )

    def copy(self, after: str | None, upto: str) -> tuple[str, list[object]]:
        """The rows of a chunk: equal values are never parted, for both its bounds are values."""
        conditions, arguments = self._between(after, upto)
        items = ", ".join(each.selected for each in self.columns)
        return (
            f"COPY (SELECT {items} FROM {self.table.sql} t WHERE {' AND '.join(conditions)} "
            f"ORDER BY {self._value}) TO STDOUT (FORMAT csv)",
            arguments,
        )

    @property
    def is_at_or_above(self) -> str:
        """Whether the first of two values is as high as the second."""
        return f"SELECT %s::{self.column.type} >= %s::{self.column.type}"

    def _after(self, after: str | None) -> tuple[list[str], list[object]]:
        if after is None:
            return [], []
        return [f"{self._value} > %s::{self.column.type}"], [after]

    def _between(self, after: str | None, upto: str) -> tuple[list[str], list[object]]:
        conditions, arguments = self._after(after)
        return [*conditions, f"{self._value} <= %s::{self.column.type}"], [*arguments, upto]


def copy_all(table: TableName, columns: Sequence[Column]) -> str:
    """Every row as it is now."""
    items = ", ".join(each.selected for each in columns)
    return f"COPY (SELECT {items} FROM {table.sql}) TO STDOUT (FORMAT csv)"
