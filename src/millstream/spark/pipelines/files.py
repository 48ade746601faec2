"""Files as sources and sinks of pipelines: parquet, ORC, JSON, CSV and text, as Spark reads them.

A stream of files takes every file that is new in the directory; files must appear at once, by a
rename. A sink writes files of a batch and then a log that names them, so a reader with Spark sees
each row once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.spark.pipelines.learned_schema import INFERRED, learned_schema
from millstream.spark.pipelines.schema import positive, setting, unset
from millstream.spark.pipelines.sinks import WriterSink, sink
from millstream.spark.pipelines.sources import Source, source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from millstream.spark.pipelines.schema import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource(Source):
    """Rows of files in a directory."""

    needs_schema: ClassVar[bool] = True
    subject_keys = ("path",)

    path: str = setting("The directory, or a pattern of files such as `in/*.json`.")
    schema: str | None = setting(
        "The columns, as in `id bigint, amount double`; or `inferred`: those of the files that are "
        "there at the first run, kept from then on. A stream needs it.",
        None,
    )
    max_files_per_trigger: int | None = setting(
        "At most so many files in a batch.", None, check=positive
    )
    options: Mapping[str, str] = setting("More options of Spark's, such as `header` of CSV.", {})
    learned: str = unset("")
    """Where columns are kept that were inferred."""
    keeps_learned: bool = unset(True)
    """Whether they are, or only read there if they were kept before."""

    def within(self, context: Context) -> Self:
        """With its path from the definition's directory on."""
        learned = context.path(f"{context.kept}/schemas/{self.name}.json")
        return dataclasses.replace(self, path=context.path(self.path), learned=learned)

    def looked_at(self) -> Self:
        """Columns that are inferred are not kept."""
        return dataclasses.replace(self, keeps_learned=False)

    def faults(self) -> Iterable[str]:
        """Nobody can guess the columns of files that are yet to come."""
        if self.is_streaming and self.needs_schema and self.schema is None:
            yield (
                "a stream of files needs `schema`, as in `id bigint, amount double`; "
                "`inferred` learns it from the files that are there"
            )

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """The rows."""
        reader: Any = (spark.readStream if streaming else spark.read).format(self.format)
        if self.schema == INFERRED:
            learned = learned_schema(
                self.learned, lambda: self._inferring(spark), keeps=self.keeps_learned
            )
            reader = reader.schema(learned)
        elif self.schema is not None:
            reader = reader.schema(self.schema)
        if streaming and self.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files_per_trigger)
        frame: DataFrame = reader.options(**self.options).load(self.path)
        return frame

    def _inferring(self, spark: SparkSession) -> DataFrame:
        """The files that are there; CSV has types only if it is asked for them."""
        options = {"inferSchema": "true"} | dict(self.options)
        return spark.read.format(self.format).options(**options).load(self.path)


@source("parquet")
@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource(FileSource):
    """Parquet files."""


@source("orc")
@dataclass(frozen=True, slots=True, kw_only=True)
class OrcSource(FileSource):
    """ORC files."""


@source("json")
@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSource(FileSource):
    """Files with a JSON object on each line."""


@source("csv")
@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSource(FileSource):
    """CSV files."""


@source("text")
@dataclass(frozen=True, slots=True, kw_only=True)
class TextSource(FileSource):
    """Files of text; each line is a row with the column `value`."""

    needs_schema: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSink(WriterSink):
    """Files in a directory."""

    output_modes: ClassVar[tuple[str, ...]] = ("append",)
    subject_keys = ("path",)

    path: str = setting("The directory.")
    partition_by: tuple[str, ...] = setting("Columns that make subdirectories.", ())
    options: Mapping[str, str] = setting("More options of Spark's, such as `compression`.", {})

    def within(self, context: Context) -> Self:
        """With its path from the definition's directory on."""
        return dataclasses.replace(self, path=context.path(self.path))

    @property
    def batch_log(self) -> str:
        """Spark's log of batches and their files."""
        return f"{self.path.rstrip('/')}/_spark_metadata"

    def writer(self, df: DataFrame) -> DataStreamWriter:
        """Spark's own sink of that name."""
        writer = df.writeStream.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return writer.option("path", self.path)


@sink("parquet")
@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSink(FileSink):
    """Parquet files."""


@sink("orc")
@dataclass(frozen=True, slots=True, kw_only=True)
class OrcSink(FileSink):
    """ORC files."""


@sink("json")
@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSink(FileSink):
    """Files with a JSON object on each line."""


@sink("csv")
@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSink(FileSink):
    """CSV files."""
