"""Tasks of the exactly-once sink, step by step against a broker, without Spark around them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import millstream
from millstream.client.producer.producer import Producer
from millstream.errors import (
    FatalProducerError,
    InvalidArgument,
    MillstreamError,
    ProducerFenced,
    SinkRefused,
)
from millstream.records.fingerprint import Fingerprint
from millstream.spark import worker_clients
from millstream.spark.sink.exactly_once import ExactlyOnceTask
from millstream.spark.sink.markers import TaskIdentity, TaskReport
from millstream.spark.sink.routing import Routing
from millstream.spark.sink.sink_options import SinkOptions
from tests.spark.test_sink_batch import committed_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytest.importorskip("pyspark", reason="PySpark is not installed")

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from millstream.spark.sink import stream_writer, writer

pytestmark = pytest.mark.integration


class Query:
    """A query with a topic of its own, whose tasks are made one by one."""

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "delivery": "exactly-once",
            "kafka.max.block.ms": "10000",
        }
        self.options = SinkOptions.parse(given, is_stream=True)
        self.routing = Routing.of({"value": "string"}, topic)

    def task(self, batch: int, task: int = 0, run: str = "run") -> ExactlyOnceTask:
        identity = TaskIdentity("prefix", self.topic, batch, task)
        return ExactlyOnceTask(identity, run, self.routing, self.options)

    def committed(self) -> list[bytes]:
        return committed_values(self.broker, self.topic)


@pytest.fixture
def query(millstream_broker: EmbeddedBroker, millstream_topic: TopicFactory) -> Query:
    return Query(millstream_broker, millstream_topic("tasks"))


def rows(*values: str) -> list[Any]:
    """Arrow batches, as Spark hands them over: a row in each."""
    return [pa.RecordBatch.from_pydict({"value": [value]}) for value in values]


def test_a_task_that_is_tried_again_after_its_commit_writes_nothing(query: Query) -> None:
    first = query.task(0).run(rows("a", "b"))
    again = query.task(0).run(rows("b", "a"))

    assert (first.is_repeated, again.is_repeated) == (False, True)
    assert first.fingerprint == again.fingerprint
    assert query.committed() == [b"a", b"b"]


def test_there_may_be_more_tasks_than_partitions_and_batches_follow_each_other(
    query: Query,
) -> None:
    reports = [query.task(batch, task).run(rows("v")) for batch in (0, 1) for task in (0, 1, 2)]

    assert [report.is_later for report in reports] == [False] * 3 + [True] * 3
    assert len(query.committed()) == 6


def test_a_task_that_lives_on_cannot_commit_after_its_successor_has_begun(query: Query) -> None:
    zombie = query.task(0)
    zombie.initialize()
    zombie.produce([(query.topic, batch) for batch in rows("a", "b")])
    zombie._open().flush()

    query.task(0).run(rows("a", "b"))

    with pytest.raises(ProducerFenced):
        zombie.write_marker()
    with pytest.raises(ProducerFenced):
        zombie.commit()
    zombie.close()
    assert query.committed() == [b"a", b"b"]


def test_a_task_that_is_shut_out_while_it_writes_says_why(query: Query) -> None:
    def interrupted() -> Iterator[Any]:
        yield from rows("a")
        query.task(0).run(rows("a", "b"))
        yield from rows("b")

    with pytest.raises(MillstreamError) as caught:
        query.task(0).run(interrupted())

    assert "another try of this task has begun since" in caught.value.__notes__[0]
    assert query.committed() == [b"a", b"b"]


def test_a_timeout_that_the_broker_does_not_allow_is_explained(query: Query) -> None:
    client = {**query.options.client, "transaction.timeout.ms": "86400000"}
    query.options = replace(query.options, client=client)

    with pytest.raises(FatalProducerError) as caught:
        query.task(0).run(rows("a"))

    assert "set the option to its transaction.max.timeout.ms" in caught.value.__notes__[0]


def test_a_task_that_begins_after_a_later_batch_is_refused(query: Query) -> None:
    query.task(4).run(rows("later"))

    with pytest.raises(SinkRefused, match="batch 4 is written already"):
        query.task(3).run(rows("early"))

    assert query.committed() == [b"later"]


def test_rows_that_fail_on_the_way_leave_nothing_that_readers_see_or_wait_for(
    query: Query,
) -> None:
    def failing() -> Iterator[Any]:
        yield from rows("a", "b")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        query.task(0).run(failing())
    with millstream.Producer(query.broker.bootstrap_servers) as producer:
        producer.send(query.topic, b"behind")

    assert query.committed() == [b"behind"]


def test_a_commit_that_is_in_doubt_is_found_by_the_next_try(query: Query) -> None:
    first = query.task(0)
    first.initialize()
    first.produce([(query.topic, batch) for batch in rows("a")])
    first.write_marker()
    first.commit()  # And its process dies before it could tell.
    first.close()

    assert query.task(0).run(rows("a")).is_repeated


def test_rows_of_several_topics_are_one_transaction(
    query: Query, millstream_topic: TopicFactory
) -> None:
    other = millstream_topic("other")
    query.routing = Routing.of({"value": "string", "topic": "string"}, None)
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": [query.topic, other]})

    query.task(0).run([batch])

    assert query.task(0).run([batch]).is_repeated
    assert (query.committed(), committed_values(query.broker, other)) == ([b"a"], [b"b"])


def test_no_rows_need_no_broker(query: Query) -> None:
    assert query.task(0).run([]) == TaskReport(0, f"prefix.{query.topic}.")


def test_the_driver_notices_tasks_that_are_gone(query: Query) -> None:
    done = query.task(0, task=5, run="before").run(rows("a"))
    written = query.task(0, task=0).run(rows("a"))
    tasks = writer.TaskWriter(query.options, query.routing)

    tasks.check(0, [writer.SinkMessage(done), writer.SinkMessage(written)])
    with pytest.raises(SinkRefused, match="task 5 had written 1 rows, and of its 1 tasks"):
        tasks.check(0, [writer.SinkMessage(written), None])


def test_the_driver_asks_no_broker_about_later_batches_or_no_rows(query: Query) -> None:
    options = SinkOptions(delivery="exactly-once", client={"bootstrap.servers": "localhost:1"})
    tasks = writer.TaskWriter(options, query.routing)
    later = TaskReport(0, "f", Fingerprint(1, 1, 1), is_later=True)

    tasks.check(3, [writer.SinkMessage(later), writer.SinkMessage(TaskReport(1, "f"))])
    tasks.check(3, [writer.SinkMessage(TaskReport(0, "f"))])


def test_without_a_task_of_spark_nothing_is_written(query: Query) -> None:
    with pytest.raises(InvalidArgument, match="by tasks of Spark only"):
        writer.TaskWriter(query.options, query.routing).write(rows("a"))


class Context:
    """What Spark tells a task of itself."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def partitionId(self) -> int:
        return 3

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)


STREAM = {
    "sql.streaming.queryId": "the-query",
    "streaming.sql.batchId": "7",
    "spark.jobGroup.id": "the-run",
}


def test_a_stream_is_known_by_its_checkpoint_and_its_run(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: Context(**STREAM))
    tasks = writer.TaskWriter(query.options, query.routing)

    tasks.write(rows("a"))
    monkeypatch.setattr(
        TaskContext, "get", lambda: Context(**STREAM | {"streaming.sql.batchId": "8"})
    )
    report = writer.TaskWriter(query.options, query.routing).write(rows("b")).report

    assert (report.partition, report.family) == (3, "millstream-spark.the-query.")
    assert report.is_later
    assert query.committed() == [b"a", b"b"]


def test_a_batch_is_known_by_the_users_name_and_is_a_run_of_its_own(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(**{"spark.jobGroup.id": "whatever the user calls it"})
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    options = replace(query.options, write_id=query.topic)

    writer.TaskWriter(options, query.routing).write(rows("a"))
    later = replace(options, batch_id=1)
    report = writer.TaskWriter(later, query.routing).write(rows("b")).report

    assert report.family == f"millstream-spark.{query.topic}."
    assert not report.is_later


def test_without_names_from_spark_nothing_is_written_exactly_once(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: Context())

    with pytest.raises(InvalidArgument, match="Use delivery=at-least-once here"):
        writer.TaskWriter(query.options, query.routing).write(rows("a"))


def test_at_least_once_rows_are_safe_when_a_task_ends(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: Context())
    options = SinkOptions(client={"bootstrap.servers": query.broker.bootstrap_servers})
    tasks = writer.TaskWriter(options, query.routing)

    report = tasks.write(rows("a", "b")).report

    assert (report.partition, report.fingerprint.rows, report.family) == (3, 2, "")
    assert query.committed() == [b"a", b"b"]
    tasks.check(0, [writer.SinkMessage(report)])
    worker_clients.close_all()


def test_writers_check_schema_and_options_on_the_driver(query: Query) -> None:
    schema = StructType([StructField("value", StringType())])
    given = {"kafka.bootstrap.servers": query.broker.bootstrap_servers, "topic": query.topic}

    batch = writer.MillstreamWriter(given, schema, overwrite=False)
    stream = stream_writer.MillstreamStreamWriter(given, schema)

    for each in (batch, stream):
        with pytest.raises(InvalidArgument, match="by tasks of Spark only"):
            each.write(iter(rows("a")))
    batch.commit([None])
    batch.abort([None])
    stream.commit([None], 0)
    stream.abort([None], 0)


def test_producers_without_transactions_live_on_unless_they_failed(query: Query) -> None:
    settings = {"bootstrap.servers": query.broker.bootstrap_servers}
    with worker_clients.borrowed(Producer, settings) as first:
        first.send(query.topic, b"a")
        first.flush()
    with pytest.raises(ZeroDivisionError), worker_clients.borrowed(Producer, settings) as second:
        raise ZeroDivisionError
    with worker_clients.borrowed(Producer, settings) as third:
        pass

    assert (first is second, second is third) == (True, False)
    worker_clients.close_all()


def test_only_so_many_clients_are_kept(query: Query) -> None:
    for number in range(worker_clients.KEPT_MAX + 1):
        settings = {
            "bootstrap.servers": query.broker.bootstrap_servers,
            "client.id": str(number),
        }
        with worker_clients.borrowed(Producer, settings):
            pass

    assert len(worker_clients._kept) == worker_clients.KEPT_MAX
    worker_clients.close_all()


def test_a_topic_is_never_overwritten() -> None:
    with pytest.raises(InvalidArgument, match="a topic cannot be overwritten"):
        writer.MillstreamWriter({}, None, overwrite=True)
