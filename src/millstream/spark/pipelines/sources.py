"""What a pipeline reads: the registry of sources, and those that need nothing but Spark.

`loading` makes a source from a mapping of the definition, `assembly` opens it. A connector is a
frozen dataclass whose fields are its keys (`schema.setting`) and which can `open` itself; it
registers with `@source` and imports pyspark only when it is opened.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from millstream.spark.pipelines.connector import Connector, Formats
from millstream.spark.pipelines.expectations import Expectation
from millstream.spark.pipelines.schema import an_interval, positive, setting

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late a row may be before it is left out."""

    column: str = setting("The column with the time of the event, a timestamp.")
    delay: str = setting(
        "Rows that are this much older than the newest one are too late.", check=an_interval
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Connector):
    """A dataset that comes from outside."""

    can_stream: ClassVar[bool] = True

    watermark: Watermark | None = setting(
        "How late rows may be; aggregations and joins of streams need it.", None
    )
    expectations: tuple[Expectation, ...] = setting("What every row must fulfil.", ())
    stream: bool | None = setting(
        "`false` reads it as a table to join with, anew for every batch: the files, or the "
        "offsets of a topic, that were there when the run began, and a database as it is then. "
        "`true` reads on as it grows. What can be streamed is, unless said otherwise.",
        None,
    )

    @property
    def is_streaming(self) -> bool:
        """Whether it is read on as it grows."""
        return self.can_stream if self.stream is None else self.stream

    def faults(self) -> Iterable[str]:
        """A table cannot be streamed."""
        if self.stream and not self.can_stream:
            yield f"{self.format} cannot be streamed; leave out `stream: true`"

    def looked_at(self) -> Self:
        """The same for a look only: opened, it leaves nothing behind that a run would find."""
        return self

    def starting_at(self, time_ms: int) -> Self:
        """The same, whose first run begins at a time, if it is a stream that knows times."""
        return self

    @abstractmethod
    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """The rows, as a stream or as they are now."""


SOURCES: Final[Formats[Source]] = Formats()
"""Every source by its name in definitions."""
source = SOURCES.register


@source("rate")
@dataclass(frozen=True, slots=True, kw_only=True)
class RateSource(Source):
    """Rows that Spark makes up, for trials: `timestamp`, and `value` that counts from 0."""

    rows_per_second: int = setting("How many rows.", 1, check=positive)
    partitions: int = setting("Over how many partitions of Spark.", 1, check=positive)

    def faults(self) -> Iterable[str]:
        """There is no end of it, so it is no table."""
        if self.stream is False:
            yield "rate never ends, so it cannot be read with `stream: false`"

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """Spark's own source of that name."""
        reader = spark.readStream.format("rate").option("numPartitions", self.partitions)
        return reader.option("rowsPerSecond", self.rows_per_second).load()
