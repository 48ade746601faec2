"""A task's work: one range of offsets to Arrow record batches, with the wanted columns only.

The readers call `read_range` in Spark's Python workers, which keep a `TopicReader` for the next
task (`worker_clients`). Rows are never Python objects here. It plans nothing and commits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.client.consumer.read_topic import TopicReader
from millstream.errors import LogTruncation, OffsetOutOfRangeWithoutReset, OperationTimeout
from millstream.spark.source.arrow_rows import ArrowRows
from millstream.spark.source.data_loss import deleted, report_loss, truncated
from millstream.spark.worker_clients import borrowed
from millstream.spark.worker_garbage import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from millstream.client.consumer.read_topic import RangeRead
    from millstream.spark.source.columns import Columns
    from millstream.spark.source.filters import RowFilter
    from millstream.spark.source.planning import OffsetRange

CHUNK_BYTES: Final = 1 << 20
"""How much of keys, values and headers one record batch has, about."""

_READING: Final = {"allow.auto.create.topics": "false"}
_READING_DEFAULTS: Final = {
    # A task reads one partition, so the limit of a partition is the limit of an answer.
    "max.partition.fetch.bytes": str(4 << 20),
    "millstream.prefetch.bytes": str(16 << 20),
}


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every task of a read needs to know; it travels to the executors."""

    client: Mapping[str, str]
    """Settings of the consumer, by Kafka's names."""
    columns: Columns
    rows: RowFilter
    poll_timeout_s: float
    fail_on_data_loss: bool


def read_range(wanted: OffsetRange, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order."""
    freeze_once()
    rows = ArrowRows(wanted.topic, plan.columns, plan.rows)
    with borrowed(TopicReader, {**_READING_DEFAULTS, **plan.client, **_READING}) as reader:
        read = reader.read_range(
            wanted.topic_partition,
            wanted.start,
            wanted.end,
            rows.builder,
            chunk_bytes=CHUNK_BYTES,
            timeout=plan.poll_timeout_s,
        )
        try:
            while _fill(reader, read, wanted, plan):
                batch = rows.finish() if rows.row_count else None
                if batch is not None and batch.num_rows:
                    yield batch
        finally:
            read.close()


def _fill(reader: TopicReader, read: RangeRead, wanted: OffsetRange, plan: ReadPlan) -> bool:
    try:
        return read.fill()
    except OperationTimeout as error:
        raise OperationTimeout(
            f"{wanted}: nothing arrived for {plan.poll_timeout_s:g} s, at offset {read.position}; "
            "kafkaConsumer.pollTimeoutMs sets how long to wait"
        ) from error
    except (OffsetOutOfRangeWithoutReset, LogTruncation):
        _skip_the_gap(reader, read, wanted, plan)
        return True


def _skip_the_gap(
    reader: TopicReader, read: RangeRead, wanted: OffsetRange, plan: ReadPlan
) -> None:
    """Records were deleted since the read was planned: fail, or leave them out."""
    where, position = wanted.topic_partition, read.position
    first, last = reader.bounds(where, plan.poll_timeout_s)
    if first <= position:
        problem, next_offset = truncated(where, position, last), wanted.end
    else:
        problem, next_offset = deleted(where, position, wanted.end, first), first
    report_loss(problem, is_fatal=plan.fail_on_data_loss)
    read.skip_to(next_offset)
