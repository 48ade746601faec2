"""Topics as sources and sinks of pipelines, through `format("millstream")`.

A topic is read from its beginning and only what is committed; it is written exactly once. Topics
that are absent are created when the sink starts.
"""

from __future__ import annotations

import dataclasses
import re
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.clock import SystemClock
from millstream.config.times import parse_time
from millstream.errors import InvalidArgument, TopicAlreadyExists
from millstream.spark.pipelines.record_columns import ERROR, as_bytes, record_value
from millstream.spark.pipelines.schema import a_topic, one_of, positive, setting, unset
from millstream.spark.pipelines.sinks import WriterSink, sink
from millstream.spark.pipelines.sources import Source, source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from millstream.spark.pipelines.schema import Context
    from millstream.spark.pipelines.sinks import Trigger

FORMAT: Final = "millstream"
EXACTLY_ONCE: Final = "exactly-once"
_START_SECONDS_MAX: Final = 300
_RECORD_COLUMNS: Final = frozenset(
    (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
        ERROR,
    )
)
"""A row that has no other columns is a record, and goes on as it is."""
_SOMEWHERE: Final = "broker:9092"
"""Stands for brokers that the definition names elsewhere, while options are checked."""


@source("topic")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource(Source):
    """Records of topics: `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `headers`."""

    subject_keys = ("topic", "pattern")

    topic: tuple[str, ...] = setting("The topic, or a list of topics.", ())
    pattern: str | None = setting(
        "A regular expression instead: every topic whose whole name matches.", None
    )
    starting: str = setting(
        "Where the first run begins: `earliest`, `latest`, a time such as `2h` (ago) or "
        "`2026-01-01T12:00:00Z`, or offsets as JSON as Spark's Kafka connector has them. Later "
        "runs go on from the checkpoint; a table is read from there in every run.",
        "earliest",
    )
    max_offsets_per_trigger: int | None = setting(
        "At most so many records in a batch.", None, check=positive
    )
    value_format: str | None = setting(
        "Decode values: the column `value` becomes a struct, and `_error` says why one could not "
        "be read. An expectation `_error IS NULL` makes dead letters of those.",
        None,
        check=one_of("json", "avro", "protobuf"),
    )
    value_schema: str | None = setting(
        "The columns of values, for JSON as in `id BIGINT, at TIMESTAMP`; `options` may name a "
        "schema registry instead.",
        None,
    )
    headers: bool = setting("Whether to read headers.", True)
    bootstrap_servers: str | None = setting("Other brokers than those of `cluster`.", None)
    options: Mapping[str, str] = setting(
        "More options of the format, such as `failOnDataLoss` or `kafka.fetch.max.bytes`.", {}
    )

    def within(self, context: Context) -> Self:
        """With the brokers of the pipeline."""
        from millstream.client.consumer.config import ConsumerConfig

        placed: Self = _with_cluster(self, context, ConsumerConfig)
        return placed

    def faults(self) -> Iterable[str]:
        """What the format says about the options."""
        if bool(self.topic) == (self.pattern is not None):
            yield "give `topic` or `pattern`"
            return
        try:
            options = self.reader_options(self.is_streaming, SystemClock().wall_ms())
            _parse_source(options, self.is_streaming)
        except InvalidArgument as error:
            yield str(error)

    def reads(self, topic: str) -> bool:
        """Whether a topic is among those it reads."""
        if self.pattern is None:
            return topic in self.topic
        return re.fullmatch(self.pattern, topic) is not None

    def starting_at(self, time_ms: int) -> Self:
        """The same, whose first run begins at a time."""
        return dataclasses.replace(self, starting=str(time_ms)) if self.is_streaming else self

    def _start_options(self, now_ms: int) -> dict[str, str]:
        if self.starting.lower() in ("earliest", "latest") or self.starting.startswith("{"):
            return {"startingOffsets": self.starting}
        # A partition without a record since then begins at its end.
        return {
            "startingTimestamp": str(parse_time(self.starting, now_ms)),
            "startingOffsetsByTimestampStrategy": "latest",
        }

    def reader_options(self, streaming: bool, now_ms: int) -> dict[str, str]:
        """The options as the format has them; times that are relative count from `now_ms`."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers or _SOMEWHERE,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": str(self.headers).lower(),
        }
        options |= self._start_options(now_ms)
        if self.pattern is None:
            options["subscribe"] = ",".join(self.topic)
        else:
            options["subscribePattern"] = self.pattern
        if self.max_offsets_per_trigger is not None and streaming:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        if self.value_format is not None:
            options["valueFormat"] = self.value_format
        if self.value_schema is not None:
            options["valueSchema"] = self.value_schema
        return options | dict(self.options)

    def open(self, spark: SparkSession, streaming: bool) -> DataFrame:
        """The records."""
        reader: Any = spark.readStream if streaming else spark.read
        options = self.reader_options(streaming, SystemClock().wall_ms())
        frame: DataFrame = reader.format(FORMAT).options(**options).load()
        return frame


@sink("topic")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink(WriterSink):
    """Records of a topic, each exactly once."""

    output_modes: ClassVar[tuple[str, ...]] = ("append", "update")
    subject_keys = ("topic",)

    topic: str | None = setting(
        "The topic; without it, rows say so in a column `topic`.", None, check=a_topic
    )
    key: str | None = setting(
        "The record's key: an expression of SQL, as text unless it is binary. Else the column "
        "`key` if there is one.",
        None,
    )
    value: str | None = setting(
        "The record's value: an expression. Else the column `value`, if all columns are a "
        "record's; else the whole row as JSON.",
        None,
    )
    delivery: str = setting(
        "`exactly-once` writes each batch in transactions; `at-least-once` may write rows of a "
        "batch again that failed.",
        EXACTLY_ONCE,
        check=one_of(EXACTLY_ONCE, "at-least-once"),
    )
    partitions: int | None = setting(
        "Create the topic with so many partitions if it is absent; else the brokers' default.",
        None,
        check=positive,
    )
    bootstrap_servers: str | None = setting("Other brokers than those of `cluster`.", None)
    options: Mapping[str, str] = setting(
        "More options of the format, such as `kafka.compression.type`.", {}
    )
    rows_topics: tuple[str, ...] = unset(())
    """Topics that rows name themselves, as far as they are known."""

    def within(self, context: Context) -> Self:
        """With the brokers of the pipeline."""
        from millstream.client.producer.config import ProducerConfig

        placed: Self = _with_cluster(self, context, ProducerConfig)
        return placed

    def faults(self) -> Iterable[str]:
        """What the format says about the options."""
        from millstream.spark.sink.sink_options import SinkOptions

        yield from WriterSink.faults(self)
        try:
            SinkOptions.parse(self.writer_options(), is_stream=True)
        except InvalidArgument as error:
            yield str(error)

    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Create the topic if it is absent, and start."""
        for topic in self.rows_topics if self.topic is None else (self.topic,):
            ensure_topic(self.writer_options(), topic, self.partitions)
        if self.output_mode == "append":
            return WriterSink.start(self, df, name, checkpoint, trigger)
        return self._start_batches(df, name, checkpoint, trigger)

    def _start_batches(
        self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger
    ) -> StreamingQuery:
        """Write batch by batch: Spark lets sinks in Python append only, never update.

        A batch is known by the query's id, which is in the checkpoint, and its number.
        """
        # The id is known when the query has started, which may be after its first batch has.
        started: Future[str] = Future()

        def write(rows: DataFrame, number: int) -> None:
            options = self.writer_options()
            if self.delivery == EXACTLY_ONCE:
                write_id = started.result(timeout=_START_SECONDS_MAX)
                options |= {"writeId": write_id, "batchId": str(number)}
            rows.write.format(FORMAT).options(**options).mode("append").save()

        writer = df.select(*self._columns(df)).writeStream.foreachBatch(write)
        writer = writer.queryName(name).outputMode(self.output_mode)
        query = trigger.applied_to(writer.option("checkpointLocation", checkpoint)).start()
        started.set_result(str(query.id))
        return query

    def writer(self, df: DataFrame) -> DataStreamWriter:
        """The rows as records."""
        records = df.select(*self._columns(df))
        return records.writeStream.format(FORMAT).options(**self.writer_options())

    def writer_options(self) -> dict[str, str]:
        """The options as the format has them."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers or _SOMEWHERE,
            "delivery": self.delivery,
        }
        if self.topic is not None:
            options["topic"] = self.topic
        return options | dict(self.options)

    def _columns(self, df: DataFrame) -> list[Column]:
        from pyspark.sql import functions as F

        is_record = "value" in df.columns and set(df.columns) <= _RECORD_COLUMNS
        columns = []
        if self.key is not None:
            columns.append(as_bytes(df, F.expr(self.key)).alias("key"))
        elif "key" in df.columns:
            columns.append(F.col("key"))
        if self.value is not None:
            columns.append(as_bytes(df, F.expr(self.value)).alias("value"))
        elif is_record:
            columns.append(record_value(df).alias("value"))
        else:
            columns.append(F.to_json(F.struct("*")).alias("value"))
        kept = {"headers", "timestamp"} if is_record else set()
        if self.topic is None:
            kept.add("topic")
        return columns + [F.col(each) for each in df.columns if each in kept]


def ensure_topic(options: Mapping[str, str], topic: str, partitions: int | None) -> None:
    """Create a topic if it is absent; `options` say where."""
    from millstream.client.admin.admin import Admin
    from millstream.client.admin.topics import NewTopic

    with Admin.from_config(admin_settings(options)) as admin:
        error = admin.create_topics([NewTopic(topic, partitions)]).errors.get(topic)
        if error is not None and not isinstance(error, TopicAlreadyExists):
            raise error


def admin_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a format's options that an `Admin` has too, by Kafka's names."""
    from millstream.client.admin.config import AdminConfig
    from millstream.client.config import shared_settings

    given = {name.removeprefix("kafka."): value for name, value in options.items()}
    return shared_settings(AdminConfig, given)


def _with_cluster(each: Any, context: Context, client: type) -> Any:
    """With the brokers and settings of the cluster, unless it has others."""
    if each.bootstrap_servers not in (None, context.bootstrap_servers):
        return each
    from millstream.client.config import shared_settings

    known = shared_settings(client, context.client)
    shared = {f"kafka.{name}": value for name, value in known.items()}
    return dataclasses.replace(
        each,
        bootstrap_servers=context.bootstrap_servers,
        options=shared | dict(each.options),
    )


def _parse_source(options: Mapping[str, str], is_stream: bool) -> None:
    from millstream.spark.decoding.options import OPTION_NAMES, DecodingOptions
    from millstream.spark.source.options import SourceOptions

    parsed = SourceOptions.parse(options, is_stream=is_stream, decoding_names=OPTION_NAMES)
    DecodingOptions.parse(parsed.decoding)
