"""`RetryingConsumer`: runs a handler over topics, with delayed retries and dead letters.

One thread: the one that calls `run`. Heartbeats go on meanwhile. A record's offset is committed
after its handler has returned, or after the record is safe in its next topic: a crash handles some
records again and loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.admin.admin import Admin
from millstream.client.consumer.consumer import Consumer
from millstream.client.consumer.steps import perform
from millstream.client.producer.producer import Producer
from millstream.client.retrying.loop import RetryingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from millstream.client.retrying.attempt import Attempt, K, V
    from millstream.client.retrying.core import RetryCounts
    from millstream.client.retrying.settings import RetryKeywords
    from millstream.client.serialization.base import DeserializerOf
    from millstream.types import TopicPartition


class RetryingConsumer(RetryingLoop):
    """Handles each record of topics: `RetryingConsumer(bootstrap, "orders", handle, ...).run()`.

    The handler gets an `Attempt`; what it raises decides about a retry. Give `group_id`, and if
    the defaults do not fit, `retry_delays` and the others of `RetrySettings`.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        topics: str | Sequence[str],
        handler: Callable[[Attempt[K, V]], object],
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

    def run(self, *, idle_timeout: float | None = None) -> RetryCounts:
        """Handle records until `stop`, or until nothing came and nothing waits for so long.

        Waits for topics that are not there yet and for brokers that are away.
        """
        self._is_stopping = False
        with (
            Admin(self._bootstrap, **self._settings.common) as admin,
            Producer(self._bootstrap, **self._settings.producer_settings()) as self._producer,
            Consumer(self._bootstrap, **self._settings.consumer_settings()) as self._consumer,
        ):
            perform(self._work(admin if self._settings.create_topics else None, idle_timeout))
        return self.counts

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what was done before others go on with the partitions; called within a poll."""
        perform(self._give_up(partitions))
