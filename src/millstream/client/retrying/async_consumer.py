"""`AsyncRetryingConsumer`: the retrying consumer for handlers that are coroutines.

The same core and the same promises as `RetryingConsumer`; one task, the one that awaits `run`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.client.admin.async_admin import AsyncAdmin
from millstream.client.consumer.async_consumer import AsyncConsumer
from millstream.client.producer.async_producer import AsyncProducer
from millstream.client.retrying.core import Handle, Hold, Reroute, Skip
from millstream.client.retrying.face import RetryingFace
from millstream.errors import Wakeup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Unpack

    from millstream.client.retrying.attempt import Attempt
    from millstream.client.retrying.core import RetryCounts
    from millstream.client.retrying.settings import RetryKeywords
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition

_log = logging.getLogger(__name__)


class AsyncRetryingConsumer(RetryingFace):
    """Awaits a handler for each record of topics; settings as those of `RetryingConsumer`."""

    _consumer: AsyncConsumer
    _producer: AsyncProducer

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        topics: str | Sequence[str],
        handler: Callable[[Attempt], Awaitable[object]],
        **settings: Unpack[RetryKeywords],
    ) -> None:
        super().__init__(bootstrap, topics, **settings)
        self._handler = handler
        self._is_running = False

    def stop(self) -> None:
        """Have `run` end after the record at hand."""
        self._is_stopping = True
        if self._is_running:
            self._consumer.wakeup()

    async def run(self, *, idle_timeout: float | None = None) -> RetryCounts:
        """Handle records until `stop`, or until nothing came and nothing waits for so long."""
        self._is_stopping = False
        if self._settings.create_topics:
            await self._create_topics()
        async with (
            AsyncProducer(self._bootstrap, **self._settings.producer_settings()) as self._producer,
            AsyncConsumer(self._bootstrap, **self._settings.consumer_settings()) as self._consumer,
        ):
            self._is_running = True
            try:
                self._consumer.subscribe(self._topics.consumed, listener=self)
                await self._loop(idle_timeout)
            finally:
                self._is_running = False
                await self._settle()
        return self.counts

    async def _loop(self, idle_timeout: float | None) -> None:
        quiet_since_ms = self._clock.monotonic_ms()
        while not self._is_stopping:
            records = await self._poll()
            for record in records:
                if self._is_stopping:
                    break
                await self._handle(record)
            await self._settle()
            if records:
                quiet_since_ms = self._clock.monotonic_ms()
            elif self._is_idle(quiet_since_ms, idle_timeout):
                break

    async def _poll(self) -> list[ConsumerRecord]:
        due = set(self._core.take_due(self._clock.wall_ms())) & self._consumer.assignment()
        if due:
            self._consumer.resume(due)
        try:
            return await self._consumer.poll(self._poll_seconds())
        except Wakeup:
            return []

    async def _handle(self, record: ConsumerRecord) -> None:
        decision = self._core.admit(record, self._clock.wall_ms())
        match decision:
            case Handle(attempt):
                await self._attempt(record, attempt)
            case Reroute():
                await self._reroute(record, decision)
            case Hold(partition, offset, _):
                self._consumer.pause([partition])
                self._consumer.seek(partition, offset)
            case Skip():
                self._core.skip(record)
            case None:
                pass  # Its partition waits, and is read again from there.

    async def _attempt(self, record: ConsumerRecord, attempt: Attempt) -> None:
        try:
            await self._handler(attempt)
        except Exception as error:
            _log.warning("attempt %d of %s failed: %r", attempt.number, attempt.id, error)
            await self._reroute(record, self._core.fail(record, error, self._clock.wall_ms()))
        else:
            self._core.succeed(record, attempt, self._clock.wall_ms())

    async def _reroute(self, record: ConsumerRecord, route: Reroute) -> None:
        if self._begins_transaction():
            await self._producer.begin_transaction()
        await self._producer.send(route.topic, route.value, key=route.key, headers=route.headers)
        self._core.rerouted(record, route)

    async def _settle(self) -> None:
        """Make what was done last: first the records that were sent on, then the offsets."""
        finished = self._core.take_finished()
        if not finished:
            return
        if self._has_transaction:
            self._has_transaction = False
            group = self._consumer.group_metadata()
            await self._producer.send_offsets_to_transaction(finished, group)
            await self._producer.commit_transaction()
        else:
            await self._producer.flush()
            await self._consumer.commit(finished)

    # Rebalances: called within poll.

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what was done before others go on with the partitions."""
        await self._settle()
        self._core.forget(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Others have the partitions already."""
        self._core.forget(partitions)

    async def _create_topics(self) -> None:
        async with AsyncAdmin(self._bootstrap, **self._settings.common) as admin:
            described = (await admin.describe_topics(self._topics.sources)).raise_first()
            self._check_created(await admin.create_topics(self._wanted_topics(described)))
