"""`AsyncShareConsumer`: takes records of a share group one by one, in an event loop.

The same session as `ShareConsumer` has, with its own I/O thread: locks and membership do not depend
on the loop being free.
"""

# A timeout says how long a broker is waited for; it does not cancel as asyncio.timeout does.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from millstream.client.consumer.consuming import AsyncUse
from millstream.client.share_consumer.share_consumer_api import ShareConsumerApi
from millstream.types import K, V

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType
    from typing import Unpack

    from millstream.client.serialization.base import DeserializerOf
    from millstream.client.share_consumer.config import ShareConsumerSettings
    from millstream.client.share_consumer.share_record import ShareRecord
    from millstream.errors import MillstreamError
    from millstream.types import TopicPartition

T = TypeVar("T")


class AsyncShareConsumer(AsyncUse, ShareConsumerApi[K, V]):
    """Takes records that nobody else of its group has: the asyncio version of `ShareConsumer`.

    >>> async with AsyncShareConsumer("localhost:9092", "jobs", group_id="workers") as consumer:
    ...     async for record in consumer:
    ...         await work(record.value)

    What waits is a coroutine. The acknowledgement callback may be a coroutine function.
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
        self: AsyncShareConsumer[Any, Any],
        bootstrap: str | Sequence[str],
        *topics: str,
        key_deserializer: DeserializerOf[Any] | str | None = None,
        value_deserializer: DeserializerOf[Any] | str | None = None,
        **settings: Unpack[ShareConsumerSettings],
    ) -> None: ...
    def __init__(self, bootstrap: str | Sequence[str], *topics: str, **settings: Any) -> None:
        """`topics` are subscribed to; see ShareConsumerSettings for the settings."""
        self._open(bootstrap, topics, settings)

    async def poll(
        self, timeout: float | None = 1.0, *, max_records: int | None = None
    ) -> list[ShareRecord[K, V]]:
        """The next records: at once what is here, else what arrives within `timeout` seconds."""
        count = max_records or self._session.config.max_poll_records
        return await self._perform(self._session.poll(timeout, count))

    async def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        """Every record, waiting for the next for ever."""
        session = self._session
        while True:
            while session.unread:
                yield session.unread.pop()
            session.unread = (await self.poll(None))[::-1]

    async def commit(
        self, timeout: float | None = None
    ) -> dict[TopicPartition, MillstreamError | None]:
        """Tell the brokers what was acknowledged, and wait; an error for partitions that failed."""
        return await self._perform(self._session.commit(self._session.timeout_s(timeout)))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Leave the group; what was not acknowledged goes back to it."""
        await self._perform(self._session.unsubscribe(self._session.timeout_s(timeout)))

    async def close(self, timeout: float | None = 30.0) -> None:
        """Acknowledge what is left to, leave the group, end the thread. Again is fine."""
        await self._close(timeout, accepts_rest=True)

    async def _close(self, timeout: float | None, *, accepts_rest: bool) -> None:
        seconds = self._session.timeout_s(timeout)
        await self._perform_last(self._session.close(seconds, accepts_rest=accepts_rest))

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(30.0, accepts_rest=exc is None)
