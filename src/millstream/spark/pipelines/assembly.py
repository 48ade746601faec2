"""A definition as data frames of one Spark session: every dataset, and every query to start.

`runner` starts what is assembled here; `validate --deep` assembles only. A fault that Spark finds
is told with the place of the view in the definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError
from millstream.spark.pipelines.expectations import DEAD_LETTER, dead_letters, kept_rows
from millstream.spark.pipelines.graph import DEAD_SUFFIX, dead_letter_topics
from millstream.spark.pipelines.modules import import_libraries
from millstream.spark.pipelines.schema import Context, Fault, raise_for
from millstream.spark.pipelines.topics import EXACTLY_ONCE, TopicSink
from millstream.spark.pipelines.transforms import transform, watermark_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from millstream.spark.pipelines.definition import Dataset, Pipeline
    from millstream.spark.pipelines.sinks import Sink


@dataclass(frozen=True, slots=True)
class Flow:
    """One query: rows, and where they go."""

    name: str
    """That of its sink, or of the dataset whose dead letters they are."""
    sink: Sink
    frame: DataFrame


class Assembly:
    """The data frames of a pipeline, made when they are asked for."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._library: Mapping[str, Any] = import_libraries(pipeline.library_paths)
        self._opened: dict[str, DataFrame] = {}
        self._frames: dict[str, DataFrame] = {}

    def frame(self, name: str) -> DataFrame:
        """The rows of a dataset that fulfil its expectations, with its watermark."""
        if name not in self._frames:
            dataset = self._pipeline.datasets[name]
            frame = kept_rows(self.opened(name), name, dataset.expectations)
            if dataset.watermark is not None and frame.isStreaming:
                frame = frame.withWatermark(dataset.watermark.column, dataset.watermark.delay)
            self._frames[name] = frame
        return self._frames[name]

    def opened(self, name: str) -> DataFrame:
        """All rows of a dataset, whatever is expected of them."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def _open(self, name: str) -> DataFrame:
        source = self._pipeline.sources.get(name)
        if source is not None:
            return source.open(self._spark, source.is_streaming)
        view = self._pipeline.views[name]
        inputs = {each: self.frame(each) for each in view.inputs}
        event_times = {each: self._event_time(each) for each in view.inputs}
        return transform(view, inputs, event_times, self._library, self._spark)

    def _event_time(self, name: str) -> str | None:
        """The column of a dataset's watermark: its own, or that of what it is made from."""
        watermark = self._pipeline.datasets[name].watermark
        return watermark_column(self.frame(name)) if watermark is None else watermark.column

    def flows(self) -> dict[str, Flow]:
        """Every query, by name; raises `InvalidPipeline` with all that Spark finds wrong."""
        faults = self.faults()
        raise_for(faults)
        flows = {
            name: Flow(name, sink, self.frame(sink.from_))
            for name, sink in self._pipeline.sinks.items()
        }
        for name in dead_letter_topics(self._pipeline):
            flows[name + DEAD_SUFFIX] = self._dead_flow(name)
        return flows

    def _dead_flow(self, name: str) -> Flow:
        pipeline = self._pipeline
        expectations = pipeline.datasets[name].expectations
        topics = {
            each.name: pipeline.dead_letter_topic(name, each)
            for each in expectations
            if each.on_violation == DEAD_LETTER
        }
        query = name + DEAD_SUFFIX
        group = f"{pipeline.name}.{query}"
        frame = dead_letters(self.opened(name), name, expectations, topics, group)
        sink = TopicSink(
            name=query,
            from_=name,
            delivery=self._dead_delivery(name),
            rows_topics=tuple(dict.fromkeys(topics.values())),
        )
        cluster = pipeline.cluster
        assert pipeline.file is not None
        context = Context(
            pipeline.name, pipeline.file.parent, cluster.bootstrap_servers, cluster.client
        )
        return Flow(query, sink.within(context), frame)

    def _dead_delivery(self, name: str) -> str:
        """As the topics that the rows would have gone to."""
        deliveries = {
            sink.delivery
            for sink in self._pipeline.sinks.values()
            if isinstance(sink, TopicSink) and name in self._pipeline.upstream_of(sink.from_)
        }
        return deliveries.pop() if len(deliveries) == 1 else EXACTLY_ONCE

    # What is wrong.

    def faults(self) -> list[Fault]:
        """All that Spark finds wrong; a dataset made from one with a fault is not asked for."""
        found: dict[str, Fault] = {}
        for name in self._in_order():
            if not any(each in found for each in self._pipeline.inputs_of(name)):
                dataset = self._pipeline.datasets[name]
                fault = self._fault_of(name, dataset)
                if fault is not None:
                    found[name] = fault
        for name, sink in self._pipeline.sinks.items():
            if not any(each in found for each in self._pipeline.upstream_of(sink.from_)):
                problem = self._stream_problem(sink)
                if problem is not None:
                    found[f"sink {name}"] = Fault(sink.place, f"sink {name!r}: {problem}")
        return list(found.values())

    def _stream_problem(self, sink: Sink) -> str | None:
        """What is wrong with a dataset as a stream that a sink writes in its mode."""
        frame = self.frame(sink.from_)
        if not frame.isStreaming:
            return f"it reads {sink.from_!r}, which is no stream"
        jvm: Any = getattr(self._spark, "_jvm", None)
        if jvm is None:
            return None  # A session of Spark Connect: the server says so when the query starts.
        spark_sql = jvm.org.apache.spark.sql
        mode = getattr(spark_sql.streaming.OutputMode, sink.output_mode.capitalize())()
        plan = frame._jdf.queryExecution().analyzed()
        try:
            spark_sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        except Exception as error:  # Whatever Spark has against it.
            return _first_sentence(error)
        return None

    def _in_order(self) -> list[str]:
        """Datasets, each behind what it is made from."""
        ordered: dict[str, None] = {}

        def visit(name: str) -> None:
            if name not in ordered:
                for each in self._pipeline.inputs_of(name):
                    visit(each)
                ordered[name] = None

        for name in self._pipeline.datasets:
            visit(name)
        return list(ordered)

    def _fault_of(self, name: str, dataset: Dataset) -> Fault | None:
        kind = "source" if name in self._pipeline.sources else "view"
        try:
            self.frame(name)
        except MillstreamError as error:
            return Fault(dataset.place, f"{kind} {name!r}: {error}")
        except Exception as error:  # Spark's own errors, and whatever a user's function raises.
            return Fault(dataset.place, f"{kind} {name!r}: {_first_sentence(error)}")
        return None


def _first_sentence(error: Exception) -> str:
    """Spark's errors have the whole plan below the first lines."""
    text = str(error).split("JVM stacktrace:", 1)[0].split(";\n'", 1)[0].strip()
    shown = " ".join(text.splitlines()[:6]).strip() or type(error).__name__
    return (
        shown
        if type(error).__module__.startswith("pyspark")
        else f"{type(error).__name__}: {shown}"
    )
