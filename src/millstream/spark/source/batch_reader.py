"""`spark.read.format("millstream")`: plans the ranges of a batch and reads them.

Spark makes the reader on the driver, asks it for partitions there, and calls `read` on executors.
Every offset is settled when partitions are planned: what is written later is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from millstream.spark.decoding.options import OPTION_NAMES
from millstream.spark.source.columns import wanted_columns
from millstream.spark.source.data_loss import check_starts
from millstream.spark.source.filters import RowFilter, push
from millstream.spark.source.lookup import TopicOffsets
from millstream.spark.source.options import SourceOptions
from millstream.spark.source.partition_reader import ReadPlan, read_range
from millstream.spark.source.planning import ranges_between, split_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from millstream.spark.source.columns import Columns
    from millstream.spark.source.offsets import Offsets


class TopicBatchReader(DataSourceReader):
    """Reads topics from where the options say to where they say."""

    def __init__(self, options: Mapping[str, Any], schema: StructType) -> None:
        self._options = SourceOptions.parse(options, is_stream=False, decoding_names=OPTION_NAMES)
        self._columns = wanted_columns(self._options, schema)
        self._rows = RowFilter()

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task."""
        options = self._options
        with TopicOffsets(options) as topics:
            partitions = [
                each for each in topics.partitions() if self._rows.wants(each.topic, each.partition)
            ]
            starts = topics.start(partitions)
            ends = topics.end(partitions)
            starts = check_starts(
                starts, ends, topics.earliest(partitions), is_fatal=options.fail_on_data_loss
            )
            starts = self._skip_older(topics, starts)
        ranges = split_ranges(
            self._rows.narrow(ranges_between(starts, ends)),
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
        )
        return [InputPartition(each) for each in ranges]

    def _skip_older(self, topics: TopicOffsets, starts: Offsets) -> Offsets:
        """Begin where the first record is that may be new enough for the query's filter.

        There is no such thing for the other end: times need not be in order.
        """
        earliest_ms = self._rows.earliest_ms
        if earliest_ms is None or not starts:
            return starts
        found = topics.not_before(starts, earliest_ms)
        return {each: max(start, found[each]) for each, start in starts.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the records of one range."""
        # Without any range Spark makes a task that has none.
        if partition.value is None:
            return iter(())
        return read_range(partition.value, plan_of(self._options, self._columns, self._rows))


class FilteringBatchReader(TopicBatchReader):
    """The same when Spark hands over the query's conditions."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what can be met here; the rest is Spark's."""
        self._rows, left = push(filters)
        return left


def plan_of(options: SourceOptions, columns: Columns, rows: RowFilter) -> ReadPlan:
    """What tasks need to know of the options."""
    return ReadPlan(
        client=dict(options.client),
        columns=columns,
        rows=rows,
        poll_timeout_s=options.poll_timeout_ms / 1000,
        fail_on_data_loss=options.fail_on_data_loss,
    )
