"""`AsyncConsumer`: reads topics in an event loop.

The same session as `Consumer` has, with its own I/O thread: the loop is woken once for what has
arrived, not for each record, and group membership does not depend on the loop being free.
"""

# A timeout says how long a broker is waited for; it does not cancel as asyncio.timeout does.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from millstream.client.arguments import as_mapping, as_partitions, to_timestamp
from millstream.client.consumer.consumer_api import ConsumerApi
from millstream.client.consumer.consuming import AsyncUse
from millstream.client.consumer.starting_point import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.types import K, V

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Unpack

    from millstream.client.consumer.arrow import ArrowBatch
    from millstream.client.consumer.config import ConsumerSettings
    from millstream.client.consumer.offset_lookup import FoundOffset
    from millstream.client.consumer.session import Offsets
    from millstream.client.groups import OffsetAndMetadata
    from millstream.client.serialization.base import DeserializerOf
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition

T = TypeVar("T")


class AsyncConsumer(AsyncUse, ConsumerApi[K, V]):
    """Reads records of topics; the asyncio version of `Consumer`.

    >>> async with AsyncConsumer("localhost:9092", "orders", group_id="billing") as consumer:
    ...     async for record in consumer:
    ...         print(record.value)

    What waits is a coroutine. Listeners may be coroutine functions.
    """

    @overload
    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *topics: str,
        key_deserializer: DeserializerOf[K] | None = None,
        value_deserializer: DeserializerOf[V] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncConsumer[Any, Any],
        bootstrap: str | Sequence[str],
        *topics: str,
        key_deserializer: DeserializerOf[Any] | str | None = None,
        value_deserializer: DeserializerOf[Any] | str | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    def __init__(self, bootstrap: str | Sequence[str], *topics: str, **settings: Any) -> None:
        """`topics` are subscribed to; see ConsumerSettings for the settings."""
        self._open(bootstrap, topics, settings)

    def _prepare(self) -> None:
        super()._prepare()
        self._unread: list[ConsumerRecord[K, V]] = []

    # ---- records ----

    async def poll(
        self, timeout: float | None = 1.0, *, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """The next records: at once what is here, else what arrives within `timeout` seconds."""
        count = self._session.record_count(max_records)
        if self._unread:
            self._give_back()
        return await self._perform(self._session.poll(timeout, count))

    async def poll_arrow(
        self, timeout: float | None = 1.0, *, columns: Sequence[str] | None = None
    ) -> ArrowBatch | None:
        """The next records of one topic, as Arrow columns; None when nothing came."""
        self._give_back()
        return await self._perform(self._session.poll_arrow(timeout, columns))

    async def batches(
        self, timeout: float | None = None, *, max_records: int | None = None
    ) -> AsyncIterator[list[ConsumerRecord[K, V]]]:
        """Lists of records, each of one partition; ends when nothing came for `timeout`."""
        count = self._session.record_count(max_records)
        self._give_back()
        while records := await self._perform(self._session.poll_one_partition(timeout, count)):
            yield records
            self._give_back()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Every record; what the loop has not got to counts as unread."""
        self._session.unread = lambda: reversed(self._unread)
        while True:
            # From the end, because taking the last of a list moves nothing.
            unread = self._unread
            while unread:
                yield unread.pop()
            records = await self.poll(None)
            records.reverse()
            self._unread = records

    def _take_unread(self) -> list[ConsumerRecord[K, V]]:
        unread = self._unread[::-1]
        self._unread.clear()
        return unread

    # ---- where ----

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record of a partition; waits until it is known."""
        timeout_s = self._session.timeout_s(timeout)
        return await self._perform(self._session.position(partition, timeout_s))

    async def lag(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """How many offsets the end of a partition is ahead of the position."""
        timeout_s = self._session.timeout_s(timeout)
        return await self._perform(self._session.lag(partition, timeout_s))

    async def partitions_for(
        self, topic: str, timeout: float | None = None
    ) -> list[TopicPartition]:
        """The partitions of a topic, as `assign` takes them; an error if there is no such topic."""
        timeout_s = self._session.timeout_s(timeout)
        return await self._perform(self._session.partitions_for(topic, timeout_s))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, datetime | int], timeout: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record of each partition that is not older; None where there is none."""
        given = as_mapping(times, "a time")
        wanted = {partition: to_timestamp(time) for partition, time in given.items()}
        timeout_s = self._session.timeout_s(timeout)
        return await self._perform(self._session.find_offsets(wanted, timeout_s))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition that is still there."""
        return await self._ends(partitions, EARLIEST_TIMESTAMP, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have."""
        return await self._ends(partitions, LATEST_TIMESTAMP, timeout)

    async def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        times = dict.fromkeys(as_partitions(partitions), which)
        timeout_s = self._session.timeout_s(timeout)
        found = await self._perform(self._session.find_offsets(times, timeout_s))
        return {each: 0 if at is None else at.offset for each, at in found.items()}

    # ---- the group ----

    async def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Commit offsets, or everything that was read, and wait until that is done."""
        timeout_s = self._session.timeout_s(timeout)
        await self._perform(self._session.commit(offsets, timeout_s))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has nothing."""
        timeout_s = self._session.timeout_s(timeout)
        return await self._perform(self._session.committed(partitions, timeout_s))

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Read nothing any more; a member leaves its group."""
        self._give_back()
        await self._perform(self._session.unsubscribe(self._session.timeout_s(timeout)))

    # ---- the end ----

    async def close(self, timeout: float | None = 30.0) -> None:
        """Commit what was read, if that is automatic, leave the group, end the thread."""
        await self._close(timeout, processed_only=False)

    async def _close(self, timeout: float | None, *, processed_only: bool) -> None:
        seconds = self._session.timeout_s(timeout)
        await self._perform_last(self._session.close(seconds, processed_only=processed_only))

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close(30.0, processed_only=exc is not None)
