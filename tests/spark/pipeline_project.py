"""A pipeline of the tests: its files, its topics on a real broker, and its runs in Spark."""

from __future__ import annotations

import json
import textwrap
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import millstream
from millstream.client.admin.topics import NewTopic
from millstream.spark.pipelines import load
from millstream.spark.pipelines.runner import SilentWatcher, StopSwitch, run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.spark.pipelines.progress import BatchProgress
    from millstream.spark.pipelines.runner import RunResult
    from millstream.spark.pipelines.supervision import QuerySupervisor

    class Broker(Protocol):
        """Any Kafka, wherever it runs."""

        @property
        def bootstrap_servers(self) -> str: ...


class Project:
    """One pipeline. `@name@` in its texts is the name of a topic that nobody else has.

    It needs a session to `run` here; one that runs in a process of its own needs none.
    """

    def __init__(self, directory: Path, broker: Broker, spark: SparkSession | None = None) -> None:
        self.directory = directory
        self.brokers = broker.bootstrap_servers
        self.watcher = CountingWatcher()
        self.spark = spark
        self._tag = uuid.uuid4().hex[:8]

    def topic(self, name: str) -> str:
        """The name on the broker."""
        return f"{name}-{self._tag}"

    def define(self, definition: str, **libraries: str) -> None:
        """Write the definition and its libraries, whose dots are underscores."""
        head = f'name: p{self._tag}\ncluster: {{bootstrap_servers: "{self.brokers}"}}\n'
        # On a busy machine Spark gives up a Python process that takes ten seconds to start.
        head += "restart: {limit: 20, backoff: 0.1}\n"
        for name, text in {"pipeline_yaml": head + definition, **libraries}.items():
            text = textwrap.dedent(text)
            for part in text.split("@")[1::2]:
                text = text.replace(f"@{part}@", self.topic(part))
            (self.directory / name.replace("_", ".")).write_text(text)

    @property
    def group(self) -> str:
        """How groups of the pipeline begin."""
        return f"p{self._tag}"

    def create(self, *topics: str, partitions: int = 1) -> None:
        """Create topics."""
        with millstream.Admin(self.brokers) as admin:
            admin.create_topics(
                [NewTopic(self.topic(name), partitions) for name in topics]
            ).raise_first()

    def send(self, topic: str, rows: Iterable[Any]) -> None:
        """Produce rows as JSON; texts and bytes go as they are."""
        with millstream.Producer(self.brokers) as producer:
            for row in rows:
                value = row if isinstance(row, str | bytes) else json.dumps(row)
                producer.send(self.topic(topic), value)

    def run(
        self,
        *,
        available_now: bool = True,
        stop: StopSwitch | None = None,
        from_ms: int | None = None,
    ) -> RunResult:
        """Run it in this process, the first time from a time on if one is given."""
        assert self.spark is not None
        pipeline = load(self.directory)
        return run(
            pipeline if from_ms is None else pipeline.starting_at(from_ms),
            self.spark,
            available_now=available_now,
            watcher=self.watcher,
            stop=stop,
        )

    def records(self, topic: str) -> list[dict[str, Any]]:
        """What readers of committed records see."""
        read = millstream.read_topic(
            self.brokers, self.topic(topic), isolation_level="read_committed"
        )
        rows: list[dict[str, Any]] = read.to_arrow().to_pylist()
        return rows

    def rows(self, topic: str) -> list[Any]:
        """The same as rows of JSON, sorted."""
        values = [json.loads(each["value"]) for each in self.records(topic)]
        return sorted(values, key=json.dumps)


class CountingWatcher(SilentWatcher):
    """Remembers what happened, and may act on a batch."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []
        self.batches: list[tuple[str, BatchProgress]] = []
        self.stop_after_batch: StopSwitch | None = None

    def changed(self, query: QuerySupervisor) -> None:
        """A query started, failed or ended."""
        self.states.append((query.name, query.state.value))

    def progressed(self, query: QuerySupervisor, batch: BatchProgress) -> None:
        """A batch is done."""
        self.batches.append((query.name, batch))
        if self.stop_after_batch is not None:
            self.stop_after_batch.request()
