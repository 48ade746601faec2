"""`ShareConsumer`: takes records of a share group one by one, blocking.

It performs the steps of `ShareSession` on the thread that calls; everything that asks brokers
happens on the session's I/O thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from millstream.client.consumer.consuming import BlockingUse
from millstream.client.share_consumer.share_consumer_api import ShareConsumerApi
from millstream.types import K, V

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType
    from typing import Unpack

    from millstream.client.serialization.base import DeserializerOf
    from millstream.client.share_consumer.config import ShareConsumerSettings
    from millstream.client.share_consumer.share_record import ShareRecord
    from millstream.errors import MillstreamError
    from millstream.types import TopicPartition

T = TypeVar("T")


class ShareConsumer(BlockingUse, ShareConsumerApi[K, V]):
    """Takes records that nobody else of its group has, and says what became of each.

    >>> with ShareConsumer("localhost:9092", "jobs", group_id="workers") as consumer:
    ...     for record in consumer:
    ...         work(record.value)

    A record is accepted with the next poll, unless something else was said of it before. Closing
    accepts what was read; a `with` block that ends with an exception gives it back instead.
    """

    @overload
    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *topics: str,
        key_deserializer: DeserializerOf[K] | None = None,
        value_deserializer: DeserializerOf[V] | None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: ShareConsumer[Any, Any],
        bootstrap: str | Sequence[str],
        *topics: str,
        key_deserializer: DeserializerOf[Any] | str | None = None,
        value_deserializer: DeserializerOf[Any] | str | None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...
    def __init__(self, bootstrap: str | Sequence[str], *topics: str, **settings: Any) -> None:
        """`topics` are subscribed to; see ShareConsumerSettings for the settings."""
        self._open(bootstrap, topics, settings)

    def poll(
        self, timeout: float | None = 1.0, *, max_records: int | None = None
    ) -> list[ShareRecord[K, V]]:
        """The next records: at once what is here, else what arrives within `timeout` seconds.

        An empty list when nothing came; None waits for ever. Records of the poll before count as
        accepted, or must have been acknowledged, by `share_acknowledgement_mode`. What a loop was
        given and has not got to comes first.
        """
        count = max_records or self._session.config.max_poll_records
        return self._perform(self._session.poll(timeout, count))

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        """Every record, waiting for the next for ever; a loop can be left and taken up again."""
        session = self._session
        while True:
            # From the end, because taking the last of a list moves nothing.
            while session.unread:
                yield session.unread.pop()
            session.unread = self.poll(None)[::-1]

    def commit(self, timeout: float | None = None) -> dict[TopicPartition, MillstreamError | None]:
        """Tell the brokers what was acknowledged, and wait; an error for partitions that failed."""
        return self._perform(self._session.commit(self._session.timeout_s(timeout)))

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Leave the group; what was not acknowledged goes back to it."""
        self._perform(self._session.unsubscribe(self._session.timeout_s(timeout)))

    def close(self, timeout: float | None = 30.0) -> None:
        """Acknowledge what is left to, leave the group, end the thread. Again is fine."""
        self._close(timeout, accepts_rest=True)

    def _close(self, timeout: float | None, *, accepts_rest: bool) -> None:
        seconds = self._session.timeout_s(timeout)
        self._perform_last(self._session.close(seconds, accepts_rest=accepts_rest))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(30.0, accepts_rest=exc is None)
