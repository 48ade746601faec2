"""`RetryingConsumer`: runs a handler over topics, with delayed retries and dead letters.

One thread: the one that calls `run`. Heartbeats go on meanwhile. A record's offset is committed
after its handler has returned, or after the record is safe in its next topic: a crash handles some
records again and loses none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.client.admin.admin import Admin
from millstream.client.consumer.consumer import Consumer
from millstream.client.producer.producer import Producer
from millstream.client.retrying.core import Handle, Hold, Reroute, Skip
from millstream.client.retrying.face import RetryingFace
from millstream.errors import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from millstream.client.retrying.attempt import Attempt
    from millstream.client.retrying.core import RetryCounts
    from millstream.client.retrying.settings import RetryKeywords
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition

_log = logging.getLogger(__name__)


class RetryingConsumer(RetryingFace):
    """Handles each record of topics: `RetryingConsumer(bootstrap, "orders", handle, ...).run()`.

    The handler gets an `Attempt`; what it raises decides about a retry. Give `group_id`, and if
    the defaults do not fit, `retry_delays` and the others of `RetrySettings`.
    """

    _consumer: Consumer
    _producer: Producer

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        topics: str | Sequence[str],
        handler: Callable[[Attempt], object],
        **settings: Unpack[RetryKeywords],
    ) -> None:
        super().__init__(bootstrap, topics, **settings)
        self._handler = handler
        self._is_running = False

    def stop(self) -> None:
        """Have `run` end after the record at hand. From any thread, or a signal's handler."""
        self._is_stopping = True
        if self._is_running:
            self._consumer.wakeup()

    def run(self, *, idle_timeout: float | None = None) -> RetryCounts:
        """Handle records until `stop`, or until nothing came and nothing waits for so long."""
        self._is_stopping = False
        if self._settings.create_topics:
            self._create_topics()
        with (
            Producer(self._bootstrap, **self._settings.producer_settings()) as self._producer,
            Consumer(self._bootstrap, **self._settings.consumer_settings()) as self._consumer,
        ):
            self._is_running = True
            try:
                self._consumer.subscribe(self._topics.consumed, listener=self)
                self._loop(idle_timeout)
            finally:
                self._is_running = False
                self._settle()
        return self.counts

    def _loop(self, idle_timeout: float | None) -> None:
        quiet_since_ms = self._clock.monotonic_ms()
        while not self._is_stopping:
            records = self._poll()
            for record in records:
                if self._is_stopping:
                    break
                self._handle(record)
            self._settle()
            if records:
                quiet_since_ms = self._clock.monotonic_ms()
            elif self._is_idle(quiet_since_ms, idle_timeout):
                break

    def _poll(self) -> list[ConsumerRecord]:
        due = set(self._core.take_due(self._clock.wall_ms())) & self._consumer.assignment()
        if due:
            self._consumer.resume(due)
        try:
            return self._consumer.poll(self._poll_seconds())
        except Wakeup:
            return []

    def _handle(self, record: ConsumerRecord) -> None:
        decision = self._core.admit(record, self._clock.wall_ms())
        match decision:
            case Handle(attempt):
                self._attempt(record, attempt)
            case Reroute():
                self._reroute(record, decision)
            case Hold(partition, offset, _):
                self._consumer.pause([partition])
                self._consumer.seek(partition, offset)
            case Skip():
                self._core.skip(record)
            case None:
                pass  # Its partition waits, and is read again from there.

    def _attempt(self, record: ConsumerRecord, attempt: Attempt) -> None:
        try:
            self._handler(attempt)
        except Exception as error:
            _log.warning("attempt %d of %s failed: %r", attempt.number, attempt.id, error)
            self._reroute(record, self._core.fail(record, error, self._clock.wall_ms()))
        else:
            self._core.succeed(record, attempt, self._clock.wall_ms())

    def _reroute(self, record: ConsumerRecord, route: Reroute) -> None:
        if self._begins_transaction():
            self._producer.begin_transaction()
        self._producer.send(route.topic, route.value, key=route.key, headers=route.headers)
        self._core.rerouted(record, route)

    def _settle(self) -> None:
        """Make what was done last: first the records that were sent on, then the offsets."""
        finished = self._core.take_finished()
        if not finished:
            return
        if self._has_transaction:
            self._has_transaction = False
            group = self._consumer.group_metadata()
            self._producer.send_offsets_to_transaction(finished, group)
            self._producer.commit_transaction()
        else:
            self._producer.flush()
            self._consumer.commit(finished)

    # Rebalances: called within poll.

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what was done before others go on with the partitions."""
        self._settle()
        self._core.forget(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Others have the partitions already."""
        self._core.forget(partitions)

    def _create_topics(self) -> None:
        with Admin(self._bootstrap, **self._settings.common) as admin:
            described = admin.describe_topics(self._topics.sources).raise_first()
            self._check_created(admin.create_topics(self._wanted_topics(described)))
