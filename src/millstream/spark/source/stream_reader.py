"""`spark.readStream.format("millstream")`: where each micro-batch begins and ends.

Spark keeps one on the driver for as long as the query runs, in a process of its own, and sends a
copy to executors for `read`. Offsets are Spark's to keep; nothing is committed to a group here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from millstream.clock import SystemClock
from millstream.spark.decoding.options import OPTION_NAMES
from millstream.spark.source.batch_reader import plan_of
from millstream.spark.source.columns import wanted_columns
from millstream.spark.source.filters import RowFilter
from millstream.spark.source.lookup import TopicOffsets
from millstream.spark.source.offsets import from_json, to_json
from millstream.spark.source.options import SourceOptions
from millstream.spark.source.partition_reader import read_range
from millstream.spark.source.planning import split_ranges
from millstream.spark.source.stream_offsets import StreamOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from millstream.spark.source.offsets import JsonOffsets

NOT_OF_EXECUTORS: Final = "_offsets"


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow."""

    def __init__(self, options: Mapping[str, Any], schema: StructType) -> None:
        self._options = SourceOptions.parse(options, is_stream=True, decoding_names=OPTION_NAMES)
        self._columns = wanted_columns(self._options, schema)
        self._offsets: StreamOffsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For executors: without connections."""
        return {**self.__dict__, NOT_OF_EXECUTORS: None}

    def _on_driver(self) -> StreamOffsets:
        if self._offsets is None:
            topics = TopicOffsets(self._options)
            self._offsets = StreamOffsets(self._options, topics, SystemClock())
        return self._offsets

    # ---- what Spark asks on the driver ----

    def initialOffset(self) -> JsonOffsets:
        """Where a query without a checkpoint begins."""
        return to_json(self._on_driver().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say about the size of micro-batches."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Where the next micro-batch ends; `start` itself if there is nothing for one."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        found = self._on_driver().next_end(from_json(start), is_limited=is_limited)
        return to_json(found)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and then no more."""
        self._on_driver().stop_at_present_ends()

    def reportLatestOffset(self) -> JsonOffsets | None:
        """The ends as they were last seen, for the lag in the query's progress."""
        ends = self._on_driver().last_seen
        return to_json(ends) if ends else None

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """One for each task of a micro-batch."""
        ranges = split_ranges(
            self._on_driver().plan(from_json(start), from_json(end)),
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        return [InputPartition(each) for each in ranges]

    def commit(self, end: JsonOffsets) -> None:
        """Spark is done with everything before; its checkpoint says so."""
        self._on_driver().note_activity()

    def stop(self) -> None:
        """The query has ended."""
        if self._offsets is not None:
            self._offsets.close()

    # ---- on executors ----

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one range."""
        return read_range(partition.value, plan_of(self._options, self._columns, RowFilter()))
