"""The source and sink `jdbc` of pipelines: any database whose driver jar Spark has.

The jar comes from the system: `configuration: {spark.jars: /path/to/driver.jar}`. JDBC knows no
batch numbers, so a batch that failed half-way may be written again: at least once. Where there is
a format of its own (`postgres`), that one is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import ConnectorFailed
from millstream.spark.pipelines.schema import setting
from millstream.spark.pipelines.sinks import WriterSink, sink
from millstream.spark.pipelines.sources import Source, source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from millstream.spark.pipelines.sinks import Trigger


@source("jdbc")
@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSource(Source):
    """Rows of a table or query, read whole: a table to join a stream with."""

    can_stream: ClassVar[bool] = False
    subject_keys = ("table", "query")

    url: str = setting("The database, as in `jdbc:mysql://host/db`.")
    table: str | None = setting("The table.", None)
    query: str | None = setting("A SELECT instead.", None)
    options: Mapping[str, str] = setting(
        "More options of Spark's, such as `user`, `driver` or `numPartitions`.", {}
    )

    def faults(self) -> Iterable[str]:
        """Something must be read."""
        yield from Source.faults(self)
        if (self.table is None) == (self.query is None):
            yield "give `table` or `query`"

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """The rows as they are now."""
        require_driver(spark, self.url, self.options)
        what = {"dbtable": self.table} if self.query is None else {"query": self.query}
        reader: Any = spark.read.format("jdbc").option("url", self.url)
        frame: DataFrame = reader.options(**what, **self.options).load()
        return frame


@sink("jdbc")
@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSink(WriterSink):
    """Rows appended to a table, at least once."""

    output_modes: ClassVar[tuple[str, ...]] = ("append", "update")
    subject_keys = ("table",)

    url: str = setting("The database, as in `jdbc:mysql://host/db`.")
    table: str = setting("The table; created if it is absent.")
    options: Mapping[str, str] = setting(
        "More options of Spark's, such as `user`, `driver` or `batchsize`.", {}
    )

    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start the query, if there is a driver."""
        require_driver(df.sparkSession, self.url, self.options)
        return WriterSink.start(self, df, name, checkpoint, trigger)

    def writer(self, df: DataFrame) -> DataStreamWriter:
        """Every batch by Spark's own JDBC."""
        url, table, options = self.url, self.table, dict(self.options)

        def write(rows: DataFrame, _batch: int) -> None:
            writer = rows.write.format("jdbc").mode("append").options(**options)
            writer.option("url", url).option("dbtable", table).save()

        return df.writeStream.foreachBatch(write)


def require_driver(spark: SparkSession, url: str, options: Mapping[str, str]) -> None:
    """Say now that there is no driver, and what to do; Spark says it late and in Java's words."""
    if "driver" in options:
        return
    # Only drivers on Java's own path are asked; Spark finds those of `spark.jars` itself.
    if spark.conf.get("spark.jars", None):
        return
    jvm: Any = spark._jvm
    try:
        jvm.java.sql.DriverManager.getDriver(url)
    except Exception as missing:
        raise ConnectorFailed(
            f"Spark has no JDBC driver for {url.partition('?')[0]}; give its jar in the pipeline's "
            "`configuration` as `spark.jars`, and its class in `options` as `driver`"
        ) from missing
