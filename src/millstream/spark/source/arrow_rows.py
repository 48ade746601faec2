"""Fetched batches to Arrow record batches with the columns that Spark asks for.

`partition_reader` fills one and takes record batches out of it. The compiled kernel decodes; what
it does not know (the topic, the type of timestamps) is added here, once per chunk and not once per
record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.records.kernel import ArrowRecordsBuilder

if TYPE_CHECKING:
    from millstream.spark.source.columns import Columns
    from millstream.spark.source.filters import RowFilter
    from millstream.types import ReadableBuffer

_OF_KERNEL = ("key", "value", "headers", "timestamp", "offset", "partition")


class StampedBuilder:
    """An `ArrowRecordsBuilder` that remembers which rows have the broker's time."""

    __slots__ = ("_builder", "_runs")

    def __init__(self) -> None:
        self._builder = ArrowRecordsBuilder()
        self._runs: list[tuple[int, bool]] = []

    def append(
        self,
        body: ReadableBuffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None,
        partition: int,
        from_offset: int,
        to_offset: int,
    ) -> int:
        """As that of the kernel's builder; called once for each batch that was fetched."""
        rows = self._builder.append(
            body,
            count,
            base_offset,
            base_timestamp,
            append_timestamp,
            partition,
            from_offset,
            to_offset,
        )
        is_stamped = append_timestamp is not None
        if self._runs and self._runs[-1][1] == is_stamped:
            self._runs[-1] = (self._runs[-1][0] + rows, is_stamped)
        else:
            self._runs.append((rows, is_stamped))
        return rows

    def expect(self, size: int) -> None:
        """About so many bytes will come."""
        self._builder.expect(size)

    @property
    def row_count(self) -> int:
        """Rows so far."""
        return self._builder.row_count

    @property
    def byte_count(self) -> int:
        """Bytes of keys, values and headers so far."""
        return self._builder.byte_count

    def finish(self) -> tuple[Any, list[tuple[int, bool]]]:
        """The rows, and for how many of them each the time is the broker's; empty again."""
        runs, self._runs = self._runs, []
        return self._builder.finish(), runs


class ArrowRows:
    """Collects rows of one topic and gives them as record batches."""

    def __init__(self, topic: str, columns: Columns, rows: RowFilter) -> None:
        self._topic = topic
        self._columns = columns
        self._times = rows.timestamp
        self.builder = StampedBuilder()
        """What `take_arrow` of fetched batches appends to."""
        self._topics: pa.Array | None = None
        names = [each for each in _OF_KERNEL if each in columns.read.names]
        if not self._times.is_all and "timestamp" not in names:
            names.append("timestamp")
        # A table without columns would have no rows; the number of a row's partition is cheapest.
        self._from_kernel = names or ["partition"]

    @property
    def row_count(self) -> int:
        """Rows so far."""
        return self.builder.row_count

    def finish(self) -> pa.RecordBatch | None:
        """The rows so far, None if none of them is wanted; empty again."""
        records, runs = self.builder.finish()
        batch = pa.record_batch(records.select(self._from_kernel))
        arrays = [self._column(field, batch, runs) for field in self._columns.read]
        read = pa.RecordBatch.from_arrays(arrays, schema=self._columns.read)
        if not self._times.is_all:
            read = read.filter(self._mask(batch))
        return self._handed_over(read) if read.num_rows else None

    def _handed_over(self, read: pa.RecordBatch) -> pa.RecordBatch:
        """What Spark gets of the rows, in the order and the types it wants."""
        wanted, decoder = self._columns.wanted, self._columns.decoder
        if decoder is not None:
            read = decoder.decode(read)
        if read.schema.equals(wanted):
            return read
        return pa.RecordBatch.from_arrays(
            [read.column(name) for name in wanted.names], schema=wanted
        )

    def _column(
        self, field: pa.Field, batch: pa.RecordBatch, runs: list[tuple[int, bool]]
    ) -> pa.Array:
        count = batch.num_rows
        match field.name:
            case "topic":
                return self._topic_column(count)
            case "timestampType":
                return _timestamp_types(runs)
            case "timestamp":
                return batch.column("timestamp").cast(field.type)
            case "headers":
                return _headers(batch.column("headers"), field.type)
            case name:
                return batch.column(name)

    def _topic_column(self, count: int) -> pa.Array:
        """Chunks are of about the same size: a slice of an earlier column will often do."""
        if self._topics is None or len(self._topics) < count:
            self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), count)
        return self._topics if len(self._topics) == count else self._topics.slice(0, count)

    def _mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows are of the wanted time; bounds are in microseconds, times in milliseconds."""
        times = batch.column("timestamp").cast(pa.int64())
        low, high = -(-self._times.low // 1000), self._times.high // 1000
        return pc.and_(pc.greater_equal(times, low), pc.less_equal(times, high))


def _timestamp_types(runs: list[tuple[int, bool]]) -> pa.Array:
    """0 where the producer set the time, 1 where the broker did, as Kafka numbers them."""
    parts = [pa.repeat(pa.scalar(int(is_stamped), pa.int32()), rows) for rows, is_stamped in runs]
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.int32())


def _headers(lists: pa.ListArray, wanted: pa.DataType) -> pa.Array:
    """Headers in the types that Spark names; null where a record has none, as in its connector."""
    found = lists.cast(wanted)
    has_some = pc.greater(pc.list_value_length(found), 0)
    return pc.if_else(has_some, found, pa.scalar(None, wanted))
