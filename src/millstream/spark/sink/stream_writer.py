"""`.writeStream.format("millstream")`: one micro-batch after the other to topics.

Spark makes a writer for each run of a micro-batch, on the driver, and calls `write` on executors.
Everything is as for a batch, but that the query and its micro-batches have names of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from millstream.spark.sink.routing import Routing, types_of
from millstream.spark.sink.sink_options import SinkOptions
from millstream.spark.sink.writer import TaskWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.spark.sink.writer import SinkMessage


class MillstreamStreamWriter(DataSourceStreamArrowWriter):
    """The writer of one run of one micro-batch.

    Output mode complete is append here too: a topic keeps what was written before.
    """

    def __init__(self, options: Mapping[str, Any], schema: Any) -> None:
        parsed = SinkOptions.parse(options, is_stream=True)
        self.tasks = TaskWriter(parsed, Routing.of(types_of(schema), parsed.topic))

    def write(self, iterator: Iterator[Any]) -> SinkMessage:
        """On an executor: write the rows of a task."""
        return self.tasks.write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        """On the driver: every task is done."""
        self.tasks.check(batchId, messages)

    def abort(self, messages: Any, batchId: int) -> None:
        """On the driver: nothing to undo. What a task has committed stays, and is not repeated."""
