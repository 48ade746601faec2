"""The source `postgres` of pipelines: a table's rows as they come, or a table to join with."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.spark.pipelines.schema import not_negative, positive, setting
from millstream.spark.pipelines.sources import Source, source

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession

    from millstream.spark.pipelines.schema import Context


@source("postgres")
@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresSource(Source):
    """Rows of a PostgreSQL table: those that are new or changed, by a column that grows."""

    subject_keys = ("table", "column")

    connection: str = setting(
        "The database as libpq knows it: `postgresql://user@host/db` or `host=… dbname=…`. Better "
        "than a password in the file is `${PASSWORD}`, or libpq's own `PGPASSFILE`."
    )
    table: str = setting("The table, with its schema if need be: `public.orders`.")
    column: str | None = setting(
        "The column that grows with every row that is new or changed: an identity, or a time that "
        "a trigger sets with `clock_timestamp()`. A stream needs it, and an index on it.",
        None,
    )
    rows_per_batch: int = setting(
        "About so many rows in a batch; rows with equal values stay together.",
        50_000,
        check=positive,
    )
    delay_seconds: float = setting(
        "Leave rows alone that are younger than this, by the column, which must be a time: for "
        "times that are set before their transaction writes (`now()`), longer than any of these.",
        0.0,
        check=not_negative,
    )
    poll_seconds: float = setting("Look for new rows this often.", 0.5, check=positive)
    staging: str | None = setting(
        "The directory where rows rest until their batch is done; all machines of the cluster must "
        "see it. Else one beside the pipeline's checkpoints.",
        None,
    )

    @property
    def is_streaming(self) -> bool:
        """Without a column that grows, nobody can tell what is new."""
        return self.column is not None if self.stream is None else self.stream

    def faults(self) -> Iterable[str]:
        """A stream goes by a column."""
        if self.is_streaming and self.column is None:
            yield "a stream of a table needs `column`, one that grows with every new row"

    def within(self, context: Context) -> Self:
        """With the staging directory from the definition's directory on."""
        staging = context.path(self.staging or f"{context.kept}/staging/{self.name}")
        return dataclasses.replace(self, staging=staging)

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """The rows."""
        from millstream.spark.pipelines.connectors.postgres.data_source import (
            NAME,
            PostgresDataSource,
            ReadSettings,
        )

        settings = ReadSettings(
            connection=self.connection,
            table=self.table,
            column=(self.column or "") if streaming else "",
            staging=self.staging or "",
            rows_max=self.rows_per_batch,
            delay_seconds=self.delay_seconds,
            poll_seconds=self.poll_seconds,
        )
        spark.dataSource.register(PostgresDataSource)
        reader: Any = spark.readStream if streaming else spark.read
        frame: DataFrame = reader.format(NAME).options(**settings.as_options()).load()
        return frame
