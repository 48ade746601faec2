"""One task of an exactly-once write, step by step. The order of the steps is the guarantee.

1. `initialize`: take the task's transactional id over. Earlier tries of the same task, dead or
   alive, can commit nothing from here on; what they had open is aborted, or committed to the end.
2. `read_marker`: so the marker cannot change any more behind our back. `decide` says what to do.
3. `produce`: the rows, in a transaction; or `verify`, if they are written.
4. `write_marker`: in the same transaction.
5. `commit`.

`TaskWriter` calls it on executors. It never decides anything: that is in `markers`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from millstream.client.producer.producer import Producer
from millstream.errors import (
    InvalidProducerEpoch,
    InvalidTransactionTimeout,
    InvalidTxnState,
    MillstreamError,
    ProducerFenced,
    TransactionAbortable,
)
from millstream.records.fingerprint import Fingerprint, fingerprint_of
from millstream.spark.sink.marker_reading import read_stable_offsets
from millstream.spark.sink.markers import (
    Decision,
    Marker,
    TaskIdentity,
    TaskReport,
    decide,
    latest_marker,
    verify,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.spark.sink.routing import Routing
    from millstream.spark.sink.sink_options import SinkOptions

ABORT_SECONDS_MAX: Final = 5.0
"""How long a task that has failed tries to abort, so that readers need not wait for a timeout."""

_SHUT_OUT: Final = (ProducerFenced, InvalidProducerEpoch, InvalidTxnState, TransactionAbortable)
"""What a producer hears whose transactional id was taken over, by step and version."""


class ExactlyOnceTask:
    """Writes one task's rows once, whatever happened before."""

    def __init__(
        self, task: TaskIdentity, run: str, routing: Routing, options: SinkOptions
    ) -> None:
        self.task = task
        self._run_id = run
        self._routing = routing
        self._options = options
        self._producer: Producer | None = None
        self._written = Fingerprint()
        self._marker_topic: str | None = None

    def run(self, batches: Iterable[Any]) -> TaskReport:
        """Write the rows of some Arrow batches, or see that they are written."""
        tables = self._tables(batches)
        first = next(tables, None)
        if first is None:
            return TaskReport(self.task.partition, self.task.family)
        try:
            return self._run(_chain(first, tables))
        except BaseException as error:
            self._explain(error)
            raise
        finally:
            self.close()

    def _run(self, tables: Iterator[tuple[str, Any]]) -> TaskReport:
        self.initialize()
        marker = self.read_marker()
        is_repeated = decide(self.task, marker) is Decision.VERIFY
        if is_repeated:
            assert marker is not None
            rows = self.weigh(tables)
            verify(self.task, marker, rows, self._options.fingerprint)
        else:
            rows = self.produce(tables)
            self.write_marker()
            self.commit()
        is_later = not is_repeated and marker is not None and marker.run == self._run_id
        return TaskReport(self.task.partition, self.task.family, rows, is_repeated, is_later)

    # ---- the steps ----

    def initialize(self) -> None:
        """Shut out every earlier try of this task."""
        settings = {**self._options.client, "transactional.id": self.task.transactional_id}
        self._producer = Producer.from_config(settings)
        self._producer.init_transactions()

    def read_marker(self) -> Marker | None:
        """What this task has written last."""
        group = self.task.transactional_id
        return latest_marker(group, read_stable_offsets(self._open(), group))

    def produce(self, tables: Iterable[tuple[str, Any]]) -> Fingerprint:
        """Send the rows in a transaction, which is begun here."""
        producer = self._open()
        producer.begin_transaction()
        for topic, table in tables:
            producer.send_batch(topic, table)
            self._written += fingerprint_of(table, topic)
            self._marker_topic = self._marker_topic or topic
        return self._written

    def weigh(self, tables: Iterable[tuple[str, Any]]) -> Fingerprint:
        """The fingerprint of rows that are not sent."""
        return sum((fingerprint_of(table, topic) for topic, table in tables), Fingerprint())

    def write_marker(self) -> None:
        """Tell later tries, if the transaction is committed."""
        assert self._marker_topic is not None
        marker = Marker(self.task.batch_id, self._written, self._run_id)
        place = TopicPartition(self._marker_topic, 0)
        group = self.task.transactional_id
        self._open().send_offsets_to_transaction({place: marker.to_offset()}, group)

    def commit(self) -> None:
        """Rows and marker are there from now on, or the next try finds neither."""
        self._open().commit_transaction()

    def close(self) -> None:
        """Hang up, and abort what is open."""
        # After a commit nothing may fail any more, and after a failure nothing may cover it.
        if self._producer is not None:
            with contextlib.suppress(MillstreamError):
                self._producer.close(ABORT_SECONDS_MAX)

    # ---- inside ----

    def _tables(self, batches: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        for batch in batches:
            yield from self._routing.split(batch)

    def _open(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def _explain(self, error: BaseException) -> None:
        """Say what an error of the producer means here."""
        timeout = f"kafka.transaction.timeout.ms={self._options.client['transaction.timeout.ms']}"
        # The producer tells that it, or its transaction, has ended, because of ...
        cause = error.__cause__ or error
        if isinstance(cause, _SHUT_OUT):
            error.add_note(
                f"{self.task}: another try of this task has begun since, and this one is void; or "
                f"its transaction was open for longer than {timeout}"
            )
        elif isinstance(cause, InvalidTransactionTimeout):
            error.add_note(
                f"{self.task}: the broker allows no {timeout}; set the option to its "
                "transaction.max.timeout.ms, which must be longer than a task takes"
            )


def _chain(first: tuple[str, Any], rest: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    yield first
    yield from rest
