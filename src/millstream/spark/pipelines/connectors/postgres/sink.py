"""The sink `postgres` of pipelines: rows into a table, by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.spark.pipelines.connectors.batches import start_batches
from millstream.spark.pipelines.connectors.postgres.connection import TableName
from millstream.spark.pipelines.connectors.postgres.upsert import PostgresTable, UpsertPlan
from millstream.spark.pipelines.schema import setting
from millstream.spark.pipelines.sinks import Sink, sink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.spark.pipelines.sinks import Trigger

_NESTED = ("struct", "array", "map")


@sink("postgres")
@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSink(Sink):
    """Rows of a PostgreSQL table: inserted, updated or deleted by key, each batch exactly once."""

    output_modes: ClassVar[tuple[str, ...]] = ("append", "update")
    subject_keys = ("table",)

    connection: str = setting(
        "The database as libpq knows it: `postgresql://user@host/db` or `host=… dbname=…`. Better "
        "than a password in the file is `${PASSWORD}`, or libpq's own `PGPASSFILE`."
    )
    table: str = setting("The table, with its schema if need be: `public.orders`.")
    key: tuple[str, ...] = setting("The columns that a row is found by; unique in the table.")
    order_by: str | None = setting(
        "The column that says which of several rows with one key is the last, such as the "
        "record's offset. It is not stored.",
        None,
    )
    deleted: str | None = setting(
        "A column that is true where the row is to be deleted, such as `value IS NULL AS deleted`. "
        "It is not stored.",
        None,
    )
    create: bool = setting("Create the table if it is absent, with the columns of the rows.", True)

    def faults(self) -> Iterable[str]:
        """Rows are found by something."""
        yield from Sink.faults(self)
        if not self.key:
            yield "`key` has no column"

    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start the query; the columns are checked first."""
        from pyspark.sql import functions as F

        types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
        target = PostgresTable(
            self.connection,
            UpsertPlan(
                table=TableName.parse(self.table),
                types=types,
                key=self.key,
                order_by=self.order_by,
                deleted=self.deleted,
            ),
            creates=self.create,
        )
        flat = df.select(
            *(
                F.to_json(F.col(f"`{each}`")).alias(each)
                if kind.startswith(_NESTED)
                else f"`{each}`"
                for each, kind in types.items()
            )
        )
        return start_batches(self, flat, target, name=name, checkpoint=checkpoint, trigger=trigger)
