"""Where a pipeline's rows go: the registry of sinks, how each starts, and the console.

`loading` makes a sink from a mapping of the definition, `runner` starts it: one sink is one query.
A connector is a frozen dataclass whose fields are its keys; it registers with `@sink` and can
`start`, or is a `WriterSink` and gives a writer of Spark's.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.spark.pipelines.connector import Connector, Formats
from millstream.spark.pipelines.schema import an_interval, one_of, positive, setting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a query looks for new rows."""

    interval: str | None = None
    """None: as soon as the batch before is done."""
    is_available_now: bool = False
    """Everything that is there now, in as many batches as the limits ask for; then the end."""

    def applied_to(self, writer: DataStreamWriter) -> DataStreamWriter:
        """The writer with this trigger."""
        if self.is_available_now:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=self.interval or "0 seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Connector):
    """Where the rows of one dataset go."""

    output_modes: ClassVar[tuple[str, ...]] = ("append", "update", "complete")

    from_: str = setting("The source or view whose rows go here.")
    trigger: str | None = setting(
        "Look for new rows this often; else as soon as the batch before is done.",
        None,
        check=an_interval,
    )
    output_mode: str = setting(
        "Of an aggregation: `append` writes a row when it is final, `update` whenever it "
        "changed, `complete` all of them every time.",
        "append",
        check=one_of("append", "update", "complete"),
    )

    def faults(self) -> Iterable[str]:
        """Not every sink can take back what it wrote."""
        if self.output_mode not in self.output_modes:
            yield (
                f"{self.format} cannot write with output_mode {self.output_mode}; "
                f"it can {' or '.join(self.output_modes)}"
            )

    @property
    def batch_log(self) -> str | None:
        """Where numbers of batches are kept without the query's id; None if nowhere."""
        return None

    @abstractmethod
    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start the query that writes the rows; its progress is kept under `checkpoint`."""


class WriterSink(Sink):
    """A sink that is one of Spark's writers."""

    __slots__ = ()

    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start the writer."""
        writer = self.writer(df).queryName(name).outputMode(self.output_mode)
        return trigger.applied_to(writer.option("checkpointLocation", checkpoint)).start()

    @abstractmethod
    def writer(self, df: DataFrame) -> DataStreamWriter:
        """How the rows are written; name, mode, checkpoint and trigger are added to it."""


SINKS: Final[Formats[Sink]] = Formats()
"""Every sink by its name in definitions."""
sink = SINKS.register


@sink("console")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink(WriterSink):
    """Rows on the terminal, a table for each batch."""

    rows: int = setting("Show at most so many rows of a batch.", 20, check=positive)
    truncate: bool = setting("Cut long cells.", True)

    def writer(self, df: DataFrame) -> DataStreamWriter:
        """Spark's own sink of that name."""
        options: dict[str, Any] = {"numRows": self.rows, "truncate": self.truncate}
        return df.writeStream.format("console").options(**options)
