"""`AsyncRetryingConsumer`: the retrying consumer for handlers that are coroutines.

The same core and the same promises as `RetryingConsumer`; one task, the one that awaits `run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.admin.async_admin import AsyncAdmin
from millstream.client.consumer.async_consumer import AsyncConsumer
from millstream.client.consumer.steps import perform_async
from millstream.client.producer.async_producer import AsyncProducer
from millstream.client.retrying.loop import RetryingLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Unpack

    from millstream.client.retrying.attempt import Attempt, K, V
    from millstream.client.retrying.core import RetryCounts
    from millstream.client.retrying.settings import RetryKeywords
    from millstream.client.serialization.base import DeserializerOf
    from millstream.types import TopicPartition


class AsyncRetryingConsumer(RetryingLoop):
    """Awaits a handler for each record of topics; settings as those of `RetryingConsumer`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        topics: str | Sequence[str],
        handler: Callable[[Attempt[K, V]], Awaitable[object]],
        *,
        key_deserializer: DeserializerOf[K] | str | None = None,
        value_deserializer: DeserializerOf[V] | str | None = None,
        **settings: Unpack[RetryKeywords],
    ) -> None:
        deserializers = {
            "key_deserializer": key_deserializer,
            "value_deserializer": value_deserializer,
        }
        super().__init__(bootstrap, topics, **settings, **deserializers)
        self._handler = handler

    async def run(self, *, idle_timeout: float | None = None) -> RetryCounts:
        """Handle records until `stop`, or until nothing came and nothing waits for so long.

        Waits for topics that are not there yet and for brokers that are away.
        """
        self._is_stopping = False
        async with (
            AsyncAdmin(self._bootstrap, **self._settings.common) as admin,
            AsyncProducer(self._bootstrap, **self._settings.producer_settings()) as self._producer,
            AsyncConsumer(self._bootstrap, **self._settings.consumer_settings()) as self._consumer,
        ):
            creating = admin if self._settings.create_topics else None
            await perform_async(self._work(creating, idle_timeout))
        return self.counts

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what was done before others go on with the partitions; called within a poll."""
        await perform_async(self._give_up(partitions))
