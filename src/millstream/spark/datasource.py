"""`format("millstream")`: what Spark asks for a schema, readers and writers.

Spark makes one in a process of its own for each query and sends it on to others, so it holds
options only. The parts are imported where they are used: every Spark session imports this module.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.spark.versions import require_pyspark
from millstream.spark.worker_garbage import freeze_once

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

RECORD_FIELDS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
"""The columns of a record, as Spark's own Kafka connector has them."""
HEADERS_FIELD: Final = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class MillstreamDataSource(DataSource):
    """Topics as tables and streams."""

    def __init__(self, options: dict[str, str]) -> None:
        """Refuse a PySpark that is too old, before it lacks something.

        Not when it is imported: every session does that, and one that has another source in
        Python could not use it then.
        """
        require_pyspark('format("millstream")')
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "millstream"

    def schema(self) -> StructType:
        """The columns, unless the user asks for fewer with `schema(...)`."""
        from millstream.spark.source.columns import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        from millstream.spark.source.batch_reader import FilteringBatchReader, TopicBatchReader

        # Spark refuses a reader that can filter while its setting for that is off, which it is by
        # default. Only the worker that hands filters over, and never one without the setting,
        # has this module.
        takes_filters = _PUSHDOWN_WORKER in sys.modules or _is_main(_PUSHDOWN_WORKER)
        kind = FilteringBatchReader if takes_filters else TopicBatchReader
        freeze_once()
        return kind(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        from millstream.spark.source.stream_reader import TopicStreamReader

        return TopicStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from millstream.spark.sink.writer import MillstreamWriter

        freeze_once()
        return MillstreamWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        from millstream.spark.sink.stream_writer import MillstreamStreamWriter

        # Two workers of every micro-batch come by here: one plans the writing, one ends it.
        freeze_once()
        return MillstreamStreamWriter(self.options, schema)


def _is_main(module: str) -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == module
