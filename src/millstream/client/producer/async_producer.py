"""`AsyncProducer`: the asyncio API. It may be used by several event loops at once.

The same core as the blocking API has, on its own thread. `await producer.send(...)` gives the
handle once the record is in a batch, which is at once unless memory or metadata is missing;
`await delivery` gives its place. A loop is woken once per batch, not per record.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, overload

from millstream.client.config import shown
from millstream.client.producer.core import ProducerCore, closed_error
from millstream.client.producer.deadline import Deadline
from millstream.client.producer.loop_waits import Until, event_for_threads
from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.client.producer.record_sender import K, V
from millstream.client.producer.settings import config_from_dotted, config_from_kwargs
from millstream.client.producer.table_sending import (
    PACE_SECONDS_MAX,
    TableSender,
    TooFarAhead,
)
from millstream.client.producer.transactions.state import State, timed_out
from millstream.client.serialization.columns import encode_table
from millstream.client.serialization.lookups import LOOKUPS_MAX, LookupNeeded, without_lookups
from millstream.errors import ClientClosed, MillstreamError, OperationTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self, TypeVar, Unpack

    from millstream.client.futures import Waiter
    from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
    from millstream.client.metrics import ProducerMetrics
    from millstream.client.producer.buffer_pool import Reservation
    from millstream.client.producer.config import ProducerConfig, ProducerSettings
    from millstream.client.producer.core import Prepared
    from millstream.client.producer.delivery import BatchDelivery, Delivery
    from millstream.client.producer.record import HeadersLike, ProducerRecord, Timestamp
    from millstream.client.producer.transactions.manager import TransactionManager
    from millstream.client.serialization.base import AnySerializer, SerializerOf
    from millstream.client.serialization.columns import TableFormats
    from millstream.client.snapshot import Partition
    from millstream.types import TopicPartition

    T = TypeVar("T")


class AsyncProducer(Generic[K, V]):
    """Sends records: `async with AsyncProducer("localhost:9092") as producer: ...`.

    Keys and values are bytes, str or None unless there are serializers.
    """

    @overload
    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        key_serializer: SerializerOf[K] | None = None,
        value_serializer: SerializerOf[V] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncProducer[Any, Any],
        bootstrap: str | Iterable[str],
        *,
        key_serializer: AnySerializer | str | None = None,
        value_serializer: AnySerializer | str | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None: ...
    def __init__(self, bootstrap: str | Iterable[str], **settings: Any) -> None:
        self._begin(config_from_kwargs(bootstrap, settings))

    @classmethod
    def from_config(cls, properties: Mapping[str, Any]) -> Self:
        """A producer by Kafka's names: `{"bootstrap.servers": ..., "linger.ms": 5}`."""
        producer = cls.__new__(cls)
        producer._begin(config_from_dotted(properties))
        return producer

    def _begin(self, config: ProducerConfig) -> None:
        self._core = ProducerCore(config)
        self._max_block_ms = config.max_block_ms
        self._append: Callable[..., Delivery] = self._core.accumulator.append
        self._is_simple = self._core.is_plain and self._core.transactions is None
        self._is_closed = False
        self._core.io.start()

    def __repr__(self) -> str:
        config = self._core.config
        return shown(self, config.bootstrap_servers, transactional_id=config.transactional_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None:
            await self.close()
        else:
            # What has gone wrong already is not to be covered by what follows from it.
            with contextlib.suppress(MillstreamError):
                await self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1, source=self)
            self._core.io.stop(0)

    # ---- records ----

    async def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        timestamp: Timestamp = None,
        headers: HeadersLike = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Send one record; `await` the handle to learn what became of it.

        Waits up to `max_block` seconds for metadata or memory. `on_delivery(delivery)` is called
        on another thread when it is known.
        """
        if self._is_simple and partition is None and timestamp is None and headers is None:
            try:
                delivery = self._append(topic, -1, key, value)
            except (TopicNotKnown, MemoryNotFree):
                delivery = await self._send_waiting(topic, value, key, None, None, None)
        else:
            delivery = await self._send_waiting(topic, value, key, partition, timestamp, headers)
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

    async def send_batch(
        self,
        topic: str,
        table: object,
        *,
        key: str | None = None,
        **formats: Unpack[TableFormats],
    ) -> BatchDelivery:
        """Send every row of a table: anything with `__arrow_c_stream__`.

        Columns are key, value, partition, timestamp and headers; only value must be there. Rows
        with a key go where that key goes in `send`.

        With `value_format` ("json", "avro" with an Avro schema as `value_schema`, or a
        serializer) each row becomes the value, and `key` names the column that is the key too:
        numbers as Java writes them, the rest as text, or as `key_format` says.
        """
        self._require_open_transaction()
        if key is not None or formats:
            table = await asyncio.to_thread(encode_table, topic, table, key, **formats)
        sender = TableSender(self._core, topic, table)
        return await self._when_possible(topic, -1, sender.send, is_table=True)

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now and wait until it is acknowledged, for `timeout` seconds at most.

        Callbacks have run then, so none of them may wait for a flush. Raises DeliveryFailed if
        records were lost since the last flush and nobody has looked at their handles.
        """
        self._core.io.check_usable()
        deadline = self._deadline_s(timeout)
        if not await self._wait_for_all(deadline):
            raise OperationTimeout(
                f"flush: {self._core.accumulator.incomplete_count} batches are not acknowledged "
                f"after {timeout} s; they are still being sent"
            )
        await self._wait_for_callbacks(deadline)
        self._core.raise_unseen()

    async def close(self, timeout: float | None = None) -> None:
        """Send what is left, abort an open transaction, and end; again is fine.

        What is not acknowledged after `timeout` seconds is given up. Raises DeliveryFailed as
        `flush` does.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if not self._core.io.is_of_this_process():
            return  # What is left is the parent's to send.
        deadline = self._deadline_s(timeout)
        try:
            if self._core.is_usable():
                await self._end_open_transaction(deadline)
                self._core.accumulator.close(closed_error())
                await self._drain(deadline)
        finally:
            self._core.accumulator.close(closed_error())
            await asyncio.to_thread(self._core.stop, deadline.left_s(at_least=1.0))
        self._core.raise_unseen()

    async def partitions_for(self, topic: str) -> tuple[Partition, ...]:
        """The partitions of a topic and their leaders."""
        self._core.io.check_usable()
        await self._wait_for_topic(topic, -1, self._deadline())
        wire = self._core.config.names.to_wire(topic)
        return self._core.runtime.metadata.snapshot.topics[wire].partitions

    def metrics(self) -> ProducerMetrics:
        """What was sent so far, how fast, and what waits; from any thread, at any time."""
        return self._core.metrics()

    # ---- transactions ----

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Send all records of the block, and its offsets, or none.

        Commits at the end. If the block, or the commit, raises, the transaction is aborted. The
        first one shuts out older producers with the same transactional id.
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            with contextlib.suppress(MillstreamError):
                await self.abort_transaction()
            raise

    async def init_transactions(self) -> None:
        """Take the transactional id over from older producers; the first transaction does it."""
        manager = self._core.require_transactions()
        await self._finish(self._core.call(manager.initialize, "init_transactions"))

    async def begin_transaction(self) -> None:
        """Begin a transaction: until its end every record sent is part of it."""
        manager = self._core.require_transactions()
        if manager.state in (State.UNINITIALIZED, State.INITIALIZING):
            await self.init_transactions()
        await self._finish(self._core.call(lambda _: manager.begin(), "begin_transaction"))

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit a group's offsets with the transaction, or not at all."""
        manager = self._core.require_transactions()
        on_wire, group = self._core.offsets_on_wire(offsets, group_metadata)
        await self._finish(
            self._core.call(
                lambda now_ms: manager.send_offsets(on_wire, group, now_ms),
                "send_offsets_to_transaction",
            )
        )

    async def commit_transaction(self) -> None:
        """Wait for every record and commit; raises if one was lost: then abort.

        After an OperationTimeout the commit goes on: call this again to learn how it ends.
        """
        manager = self._core.require_transactions()
        await self._finish_end(manager, manager.commit, "commit_transaction")

    async def abort_transaction(self) -> None:
        """Undo the transaction: nobody who reads committed records sees any of it."""
        manager = self._core.require_transactions()
        await self._finish_end(manager, manager.abort, "abort_transaction")
        self._core.forgive_losses()

    # ---- inside ----

    async def _send_waiting(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: Timestamp,
        headers: HeadersLike,
    ) -> Delivery:
        self._require_open_transaction()
        record = self._core.record(topic, value, key, partition, timestamp, headers)
        try:
            prepared = await self._prepare(record)
            delivery = await self._when_possible(
                prepared.topic,
                prepared.partition,
                lambda reservation: self._append(*prepared, reservation),
            )
        except Exception as error:
            self._core.interceptors.acknowledge(None, error)
            raise
        self._core.follow(delivery)
        return delivery

    async def _prepare(self, record: ProducerRecord) -> Prepared:
        if self._core.needs_partitions and record.partition is None:
            await self._wait_for_topic(record.topic, -1, self._deadline())
        for _ in range(LOOKUPS_MAX):
            try:
                return without_lookups(partial(self._core.prepare, record))
            except LookupNeeded as needed:
                look_up = needed.look_up
            if look_up is None:
                break
            await asyncio.to_thread(look_up)
        return await asyncio.to_thread(self._core.prepare, record)

    async def _when_possible(
        self,
        topic: str,
        partition: int,
        append: Callable[[Reservation | None], T],
        *,
        is_table: bool = False,
    ) -> T:
        """Append, waiting for metadata and memory as long as `max_block` allows.

        For a table the limit is for each wait: a large one passes through a small memory.
        """
        accumulator = self._core.accumulator
        deadline = self._deadline()
        reservation: Reservation | None = None
        try:
            while True:
                try:
                    return append(reservation)
                except TopicNotKnown:
                    await self._wait_for_topic(topic, partition, deadline)
                except MemoryNotFree as need:
                    if reservation is not None:
                        accumulator.cancel(reservation)
                    reservation = accumulator.reserve(need.size)
                    await self._wait_for_memory(reservation, deadline)
                except TooFarAhead as ahead:
                    if reservation is not None:
                        accumulator.cancel(reservation)
                        reservation = None
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(PACE_SECONDS_MAX):
                            await Until(ahead.batch)
                if is_table:
                    deadline = self._deadline()
        finally:
            # If it was not used, it is for others.
            if reservation is not None:
                accumulator.cancel(reservation)

    def _deadline(self) -> Deadline:
        return Deadline(self._core.runtime.now_ms, self._max_block_ms)

    def _deadline_s(self, timeout: float | None) -> Deadline:
        limit_ms = None if timeout is None else round(timeout * 1000)
        return Deadline(self._core.runtime.now_ms, limit_ms)

    async def _wait_for_memory(self, reservation: Reservation, deadline: Deadline) -> None:
        granted, grant = event_for_threads()
        reservation.when_granted(grant)
        try:
            async with asyncio.timeout(deadline.left_s()):
                await granted.wait()
        except TimeoutError:
            raise self._core.no_memory(reservation.size) from None

    async def _wait_for_topic(self, topic: str, partition: int, deadline: Deadline) -> None:
        self._core.io.check_usable()
        wait = self._core.wait_for_topic(topic, partition)
        try:
            async with asyncio.timeout(deadline.left_s()):
                await wait
        except TimeoutError:
            raise self._core.unknown_topic(topic, partition, self._max_block_ms) from None
        finally:
            wait.abandon()

    def _require_open_transaction(self) -> None:
        if self._core.transactions is not None:
            self._core.transactions.require_open()

    async def _finish(self, waiter: Waiter[T]) -> T:
        """Wait for what the I/O thread does; it goes on if the time is over."""
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                return await waiter
        except TimeoutError as error:
            if isinstance(error, MillstreamError):
                raise
            raise timed_out(waiter.what, self._max_block_ms / 1000) from None

    async def _finish_end(
        self, manager: TransactionManager, end: Callable[[int], Waiter[None]], what: str
    ) -> None:
        """End a transaction; who stops waiting for that may ask for it again."""
        try:
            await self._finish(self._core.call(end, what))
        except (OperationTimeout, asyncio.CancelledError):
            with contextlib.suppress(ClientClosed):
                self._core.runtime.post(lambda _: manager.ending.let_go())
            raise

    async def _end_open_transaction(self, deadline: Deadline) -> None:
        manager = self._core.transactions
        if manager is not None and manager.state in (State.IN_TRANSACTION, State.ABORTABLE):
            with contextlib.suppress(MillstreamError, TimeoutError):
                async with asyncio.timeout(deadline.left_s()):
                    await self._core.call(manager.abort, "close")

    async def _wait_for_all(self, deadline: Deadline) -> bool:
        batches = self._core.accumulator.begin_flush()
        try:
            async with asyncio.timeout(deadline.left_s()):
                for batch in batches:
                    await Until(batch)
        except TimeoutError:
            return False
        finally:
            self._core.accumulator.end_flush()
        return True

    async def _wait_for_callbacks(self, deadline: Deadline) -> None:
        """Of records that are done; the loop goes on meanwhile."""
        # A batch that is done has its callbacks submitted before it gives up this lock.
        with self._core.completions.lock:
            pass
        told, tell = event_for_threads()
        if self._core.dispatcher.call_when_drained(tell):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline.left_s()):
                    await told.wait()

    async def _drain(self, deadline: Deadline) -> None:
        if not await self._wait_for_all(deadline):
            with contextlib.suppress(MillstreamError):
                await self._core.give_up(closed_error())
