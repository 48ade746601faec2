"""Batches of a query, written by the driver to something that can tell which it has.

Spark gives a batch again when it stopped before it noted that the batch was done. A `BatchTarget`
therefore keeps the number of its last batch with the data, changed by the same act, and leaves out
what it has. The sinks of this package start their queries with `start_batches`.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.spark.pipelines.sinks import Sink, Trigger

_START_SECONDS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Batch:
    """Which batch of which query. The query's id outlives restarts: it is in the checkpoint."""

    query: str
    number: int

    def is_news_after(self, last: int | None) -> bool:
        """Whether a target that has batches of this query up to `last` is still to get it."""
        return last is None or self.number > last


class BatchTarget(Protocol):
    """Something that takes whole batches, each once."""

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        """Take the rows and note the batch, both or neither; False if it was there already."""
        ...


def start_batches(
    sink: Sink,
    df: DataFrame,
    target: BatchTarget,
    *,
    name: str,
    checkpoint: str,
    trigger: Trigger,
) -> StreamingQuery:
    """Start the query that hands every batch to the target, as Arrow."""
    # The query's id is known when it has started, which may be after its first batch has.
    started: Future[str] = Future()

    def write(rows: DataFrame, number: int) -> None:
        arrived = in_utc(rows.toArrow())
        if arrived.num_rows:
            target.write(arrived, Batch(started.result(timeout=_START_SECONDS_MAX), number))

    writer = df.writeStream.foreachBatch(write).queryName(name).outputMode(sink.output_mode)
    query = trigger.applied_to(writer.option("checkpointLocation", checkpoint)).start()
    started.set_result(str(query.id))
    return query


def in_utc(rows: pa.Table) -> pa.Table:
    """The rows with their moments in UTC, whatever the session's time zone is called."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp(field.type.unit, tz="UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
