"""The source's readers without a JVM: what Spark would do with them, done by the test.

Spark makes a reader, asks it for partitions, pickles it and reads the partitions elsewhere; so does
this. Tests that need Spark itself use the fixture `spark`.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream import Producer, TopicPartition
from millstream.spark.source.batch_reader import FilteringBatchReader
from millstream.spark.source.columns import source_schema
from millstream.spark.source.stream_reader import TopicStreamReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from millstream.testing.embedded import EmbeddedBroker

HOUR_AGO_MS = 3_600_000


@dataclass
class SourceWorld:
    """A broker, and reads of it."""

    broker: EmbeddedBroker

    def options(self, **options: Any) -> dict[str, Any]:
        given = {name.replace("__", "."): value for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.broker.bootstrap_servers, **given}

    def batch(
        self, schema: StructType | None = None, filters: Sequence[Filter] = (), **options: Any
    ) -> FilteringBatchReader:
        given = self.options(**options)
        reader = FilteringBatchReader(given, schema or source_schema(given))
        self.unmet = list(reader.pushFilters(list(filters)))
        return reader

    def rows(
        self, schema: StructType | None = None, filters: Sequence[Filter] = (), **options: Any
    ) -> list[dict[str, Any]]:
        """Every row of a batch, in order of partition and offset."""
        reader = self.batch(schema, filters, **options)
        return read_all(reader, reader.partitions())

    def values(self, **options: Any) -> list[bytes]:
        """The values of a batch."""
        return [row["value"] for row in self.rows(**options)]

    def stream(self, **options: Any) -> TopicStreamReader:
        given = self.options(**options)
        return TopicStreamReader(given, source_schema(given))

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, timestamps: Sequence[int] = ()
    ) -> None:
        """Write values, one batch each if they have timestamps."""
        with Producer(self.broker.bootstrap_servers) as producer:
            for index, value in enumerate(values):
                at = timestamps[index] if timestamps else None
                producer.send(topic, value, partition=partition, timestamp=at)
                if timestamps:
                    producer.flush()


def read_all(reader: Any, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    """What Spark gets of partitions; the reader and they have travelled."""
    rows = []
    for partition in partitions:
        reader_there, partition_there = pickle.loads(pickle.dumps((reader, partition)))
        for batch in reader_there.read(partition_there):
            rows += batch.to_pylist()
    return rows


def partition_of(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)
