"""`.write.format("millstream")`: rows of a batch to topics; and what streams share with it.

`MillstreamDataSource` makes a writer on the driver, Spark sends it to executors and calls `write`
there once for each task. Rows come and go as Arrow data. With `delivery=at-least-once` a task that
is tried again writes its rows again; `exactly_once` is the other way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from millstream.client.admin.admin import Admin
from millstream.client.admin.config import AdminConfig
from millstream.client.config import shared_settings
from millstream.client.producer.producer import Producer
from millstream.errors import InvalidArgument
from millstream.records.fingerprint import Fingerprint
from millstream.spark.sink.exactly_once import ExactlyOnceTask
from millstream.spark.sink.markers import Marker, TaskIdentity, TaskReport, audit, latest_marker
from millstream.spark.sink.routing import Routing, types_of
from millstream.spark.sink.sink_options import SinkOptions
from millstream.spark.worker_clients import borrowed
from millstream.spark.worker_garbage import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_RUN_ID: Final = "spark.jobGroup.id"


@dataclass
class SinkMessage(WriterCommitMessage):
    """What a task tells the driver."""

    report: TaskReport


class TaskWriter:
    """Writes the rows of one task. It is made on the driver, and used on executors."""

    task_class: type[ExactlyOnceTask] = ExactlyOnceTask

    def __init__(self, options: SinkOptions, routing: Routing) -> None:
        self._options = options
        self._routing = routing
        # Spark names the runs of a stream, by its group of jobs; a batch is a run of its own.
        self._run = uuid4().hex

    def write(self, batches: Iterable[Any]) -> SinkMessage:
        """Write all rows, and return when they are safe."""
        context = TaskContext.get()
        if context is None:
            raise InvalidArgument("rows are written by tasks of Spark only")
        freeze_once()
        if self._options.is_exactly_once:
            task = self._identity(context)
            steps = self.task_class(task, self._run_of(context), self._routing, self._options)
            return SinkMessage(steps.run(batches))
        rows = self._write_at_least_once(batches)
        return SinkMessage(TaskReport(context.partitionId(), fingerprint=Fingerprint(rows)))

    def check(self, batch_id: int, messages: Sequence[SinkMessage | None]) -> None:
        """On the driver: see that a batch which may have been begun before is what it was then.

        That can only be the first one of a run. It is the one place that sees all tasks at once.
        """
        reports = [message.report for message in messages if message is not None]
        is_known = all(not each.fingerprint.rows for each in reports) or any(
            each.is_later for each in reports
        )
        if self._options.is_exactly_once and not is_known:
            with Admin.from_config(shared_settings(AdminConfig, self._options.client)) as admin:
                markers = _markers(admin, reports[0].family)
            audit(batch_id, reports, markers, self._options.fingerprint)

    def _identity(self, context: Any) -> TaskIdentity:
        query_id = self._options.write_id or context.getLocalProperty(_QUERY_ID)
        batch_id: int | str | None = self._options.batch_id
        if self._options.write_id is None:
            batch_id = context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise InvalidArgument(
                "Spark does not tell this task which query and batch it writes; "
                "delivery=exactly-once needs that. Use delivery=at-least-once here"
            )
        return TaskIdentity(
            self._options.transactional_id_prefix, query_id, int(batch_id), context.partitionId()
        )

    def _run_of(self, context: Any) -> str:
        is_stream = context.getLocalProperty(_QUERY_ID) is not None
        return (context.getLocalProperty(_RUN_ID) if is_stream else None) or self._run

    def _write_at_least_once(self, batches: Iterable[Any]) -> int:
        rows = 0
        with borrowed(Producer, self._options.client) as producer:
            for batch in batches:
                for topic, table in self._routing.split(batch):
                    producer.send_batch(topic, table)
                    rows += table.num_rows
            producer.flush()
        return rows


class MillstreamWriter(DataSourceArrowWriter):
    """The writer of one batch."""

    def __init__(self, options: Mapping[str, Any], schema: Any, overwrite: bool) -> None:
        refuse_overwriting(overwrite)
        parsed = SinkOptions.parse(options, is_stream=False)
        self._batch_id = parsed.batch_id
        self.tasks = TaskWriter(parsed, Routing.of(types_of(schema), parsed.topic))

    def write(self, iterator: Iterator[Any]) -> SinkMessage:
        """On an executor: write the rows of a task."""
        return self.tasks.write(iterator)

    def commit(self, messages: Any) -> None:
        """On the driver: every task is done."""
        self.tasks.check(self._batch_id, messages)

    def abort(self, messages: Any) -> None:
        """On the driver: nothing to undo. What a task has committed stays, and is not repeated."""


def _markers(admin: Any, family: str) -> dict[int, Marker]:
    """The markers of all tasks that a query has ever had."""
    groups = [
        each.group_id
        for each in admin.list_groups()
        if each.group_id.startswith(family) and each.group_id[len(family) :].isdecimal()
    ]
    offsets = admin.list_group_offsets(groups).raise_first() if groups else {}
    found = {group: latest_marker(group, offsets[group]) for group in groups}
    return {
        int(group[len(family) :]): marker for group, marker in found.items() if marker is not None
    }


def refuse_overwriting(overwrite: bool) -> None:
    """A topic is only ever appended to."""
    if overwrite:
        raise InvalidArgument(
            "mode overwrite: a topic cannot be overwritten; use mode append, after deleting its "
            "records with `millstream topics` if they are to go"
        )
