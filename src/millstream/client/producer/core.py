"""`ProducerCore`: the parts of a producer, put together; both APIs stand on it.

It makes records ready to be appended, tells what must be waited for, and carries calls to the I/O
thread. It never blocks: the APIs do, or await.
"""

from __future__ import annotations

import itertools
import os
import weakref
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.client.arguments import as_number, as_offsets, as_topic
from millstream.client.groups import ConsumerGroupMetadata
from millstream.client.io_thread import IoThread
from millstream.client.metrics import ProducerMetrics
from millstream.client.producer import kernel
from millstream.client.producer.compiled_accumulator import make_accumulator
from millstream.client.producer.completions import Completions
from millstream.client.producer.dispatcher import DispatcherThread
from millstream.client.producer.interceptors import make_chain
from millstream.client.producer.partition_queues import ANY_PARTITION
from millstream.client.producer.partitioner import resolve_partitioner
from millstream.client.producer.record import ProducerRecord, normal_headers, timestamp_ms
from millstream.client.producer.sender import REQUEST_OVERHEAD, Sender
from millstream.client.producer.sequences import Sequences
from millstream.client.producer.topics import TopicRegistry
from millstream.client.producer.transactions.manager import TransactionManager
from millstream.client.runtime import ClientRuntime
from millstream.client.serialization.base import raise_unserializable
from millstream.client.serialization.resolution import as_serializer
from millstream.clock import SystemClock
from millstream.errors import (
    BufferExhausted,
    ClientClosed,
    ForkedClient,
    InvalidArgument,
    InvalidTxnState,
    MillstreamError,
    OperationTimeout,
    UnknownTopicOrPartition,
)
from millstream.network.client.selector_factory import open_client_selector
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.client.futures import Waiter
    from millstream.client.groups import OffsetAndMetadata
    from millstream.client.producer.config import ProducerConfig
    from millstream.client.producer.delivery import Delivery
    from millstream.client.producer.record import HeadersLike, Timestamp
    from millstream.client.producer.record_accumulator import RecordAccumulator
    from millstream.clock import Clock
    from millstream.network.client.selector import ClientSelector
    from millstream.types import Headers, ReadableBuffer

_numbers: Final = itertools.count(1)
_cores: Final[weakref.WeakSet[ProducerCore]] = weakref.WeakSet()


def closed_error() -> ClientClosed:
    """What calls of a closed producer raise, and what records that it gave up ended with."""
    return ClientClosed("the producer is closed; make a new one")


class Prepared(NamedTuple):
    """A record in the form that the accumulator takes."""

    topic: str
    partition: int
    key: ReadableBuffer | str | None
    value: ReadableBuffer | str | None
    headers: Headers
    timestamp: int | None


class _Partitions(NamedTuple):
    """For partitioners: `TopicPartitions`."""

    count: int  # type: ignore[assignment]  # Not the tuple's method, which nobody calls.
    available: Sequence[int]


class ProducerCore:
    """The accumulator, the Sender and all between, with the thread that drives them."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        selector: ClientSelector | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        accumulator: Callable[..., RecordAccumulator] = make_accumulator,
    ) -> None:
        """Starts nothing yet. A simulation gives what is of its own kind."""
        self.config = config
        self.name = f"millstream-producer-{next(_numbers)}"
        # First what the settings may be wrong about: the selector has a thread and descriptors.
        self.interceptors = make_chain(config.interceptors)
        self._partitioner = resolve_partitioner(config.partitioner)
        self._key_serializer = _serializer(config.key_serializer, is_key=True)
        self._value_serializer = _serializer(config.value_serializer, is_key=False)
        self.is_plain = not (
            self.interceptors
            or self._partitioner is not None
            or self._key_serializer is not None
            or self._value_serializer is not None
        )
        """Whether nothing is to be done to records but to append them."""
        selector = selector or open_client_selector()
        try:
            self._assemble(selector, clock or SystemClock(), random or Random(), accumulator)
        except BaseException:
            selector.shutdown()
            raise
        _cores.add(self)

    def _assemble(
        self,
        selector: ClientSelector,
        clock: Clock,
        random: Random,
        accumulator: Callable[..., RecordAccumulator],
    ) -> None:
        config = self.config
        self.runtime = ClientRuntime(
            selector,
            clock,
            config,
            random,
            metadata_config=config.metadata(
                topic_idle_ms=config.metadata_max_idle_ms, allow_auto_topic_creation=True
            ),
            max_in_flight=config.max_in_flight_requests_per_connection,
        )
        self.dispatcher = DispatcherThread(f"{self.name}-callbacks")
        self.completions = Completions(self.dispatcher)
        self.accumulator = accumulator(
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            record_size_max=config.max_request_size,
            request_size_max=max(1, config.max_request_size - REQUEST_OVERHEAD),
            clock=clock,
            random=random,
            completions=self.completions,
            wake=self.runtime.wake,
            ignores_keys=config.partitioner_ignore_keys,
            is_adaptive=config.partitioner_adaptive_partitioning_enable,
        )
        self._add_sender(random, selector)
        self.io = IoThread(self.runtime, self.name)

    def _add_sender(self, random: Random, selector: ClientSelector) -> None:
        config, runtime = self.config, self.runtime
        sequences: Sequences | None = None
        if config.is_idempotent:
            sequences = Sequences(is_transactional=config.transactional_id is not None)
        self._attach(selector)
        self.topics = TopicRegistry(runtime.metadata, self.accumulator, config.names)
        self.sender = Sender(
            self.accumulator,
            runtime.network,
            runtime.metadata,
            runtime.router,
            self.topics,
            config,
            random,
            sequences,
            runtime.meters,
        )
        self.transactions: TransactionManager | None = None
        if (transactional_id := config.wire_transactional_id) is not None:
            assert sequences is not None
            self.transactions = TransactionManager(
                transactional_id,
                config.transaction_timeout_ms,
                sequences,
                self.accumulator,
                self.sender,
                runtime.router,
                runtime.network,
            )
            self.sender.use(self.transactions)
        runtime.add(self.sender)
        runtime.on_close(self._end)

    def _attach(self, selector: ClientSelector) -> None:
        """Have the selector's thread send, if it and the accumulator are compiled.

        Batches that are compressed need the GIL for that: the I/O thread takes and sends them.
        """
        sink: Any = self.accumulator.sink
        if not kernel.COMPILED:
            return
        from millstream._accel.client.client_selector import SelectorCore

        if isinstance(selector, SelectorCore) and not self.config.compression:
            sink.attach(
                selector,
                max_in_flight=self.config.max_in_flight_requests_per_connection,
                expects_answers=self.config.required_acks != 0,
            )

    # ---- records ----

    def record(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: Timestamp,
        headers: HeadersLike,
    ) -> ProducerRecord:
        """What was given to `send`, checked, after the interceptors have seen it."""
        if partition is not None and (type(partition) is not int or partition < 0):
            partition = as_number(partition, "partition", "leave it out to have one")
        given = ProducerRecord(
            as_topic(topic),
            value,
            key,
            partition,
            None if timestamp is None else timestamp_ms(timestamp),
            normal_headers(headers),
        )
        return self.interceptors.on_send(given) if self.interceptors else given

    def metrics(self) -> ProducerMetrics:
        """The producer's figures as they are now."""
        now_ms = self.runtime.now_ms()
        figures = self.runtime.meters.figures(now_ms)
        sent = self.sender.completion.meters
        figures["retries"] += sent.retries
        return ProducerMetrics(
            **figures,
            **sent.figures(now_ms),
            batches_incomplete=self.accumulator.incomplete_count,
            buffer_bytes=self.accumulator.buffered_bytes,
        )

    @property
    def needs_partitions(self) -> bool:
        """Whether a topic must be known before a record can be prepared: its partitioner asks."""
        return self._partitioner is not None

    def prepare(self, record: ProducerRecord) -> Prepared:
        """Serialize a record and choose its partition, if the user's partitioner does."""
        headers = list(record.headers)
        key, value = record.key, record.value
        used, given = self._key_serializer, key
        try:
            if used is not None:
                key = used.serialize(record.topic, key, headers)
            used, given = self._value_serializer, value
            if used is not None:
                value = used.serialize(record.topic, value, headers)
        except Exception as error:
            if isinstance(error, MillstreamError):
                raise
            raise_unserializable(type(used).__name__, record.topic, given, error)
        partition = ANY_PARTITION if record.partition is None else record.partition
        if record.partition is None and self._partitioner is not None:
            partition = self._ask_partitioner(record.topic, key, value)
        return Prepared(record.topic, partition, key, value, tuple(headers), record.timestamp)

    def _ask_partitioner(self, topic: str, key: Any, value: Any) -> int:
        count = self.accumulator.partition_count(topic)
        assert self._partitioner is not None
        assert count is not None
        available = self.accumulator.available_partitions(topic)
        chosen: Any = self._partitioner.partition(topic, key, value, _Partitions(count, available))
        if not isinstance(chosen, int) or not 0 <= chosen < count:
            raise InvalidArgument(
                f"the partitioner chose {chosen!r} for topic {topic}, which has {count} partitions"
            )
        return chosen

    def follow(self, delivery: Delivery) -> None:
        """Have the interceptors told what becomes of a record."""
        if self.interceptors:
            delivery.observe(self.interceptors.on_done)

    # ---- what must be waited for ----

    def wait_for_topic(self, topic: str, partition: int) -> Waiter[None]:
        """Complete once a topic, and this partition of it, is known."""
        waiter: Waiter[None] = self.runtime.waiter(f"metadata of topic {topic}")
        count = max(1, partition + 1)
        self.runtime.post(lambda _now_ms: self.topics.want(topic, count, waiter))
        return waiter

    def unknown_topic(self, topic: str, partition: int, waited_ms: int) -> MillstreamError:
        """Why a topic is still not known after that long."""
        seconds = waited_ms / 1000
        metadata = self.runtime.metadata
        if (failure := metadata.failure()) and self.runtime.network.failures():
            return failure
        if self.config.names.to_wire(topic) not in metadata.snapshot.topics:
            why = f"the metadata of topic {topic} was not there within max_block, {seconds:g} s"
            return OperationTimeout(f"{why}; send again, or give it more time")
        count = self.accumulator.partition_count(topic)
        if count is not None and partition >= count:
            why = f"topic {topic} has {count} partitions, and still no partition {partition}"
            return UnknownTopicOrPartition(f"{why} after {seconds:g} s")
        why = f"topic {topic} is not known after {seconds:g} s"
        return OperationTimeout(f"{why}; create it, or check its name")

    def no_memory(self, size: int) -> BufferExhausted:
        """Why a record could not be appended in time."""
        limit = self.config.buffer_memory
        seconds = self.config.max_block_ms / 1000
        return BufferExhausted(
            f"no {size} bytes of buffer_memory ({limit}) were free within max_block, "
            f"{seconds:g} s: records come faster than the brokers take them"
        )

    def require_transactions(self) -> TransactionManager:
        """The transaction manager; InvalidTxnState if this producer has none."""
        self.io.check_usable()
        if self.transactions is None:
            raise InvalidTxnState("transactions need a producer with a transactional_id")
        return self.transactions

    def offsets_on_wire(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], ConsumerGroupMetadata]:
        """Offsets and group as the brokers know them."""
        to_wire = self.config.names.to_wire
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        on_wire = {
            TopicPartition(to_wire(place.topic), place.partition): offset
            for place, offset in as_offsets(offsets).items()
        }
        return on_wire, replace(group, group_id=to_wire(group.group_id))

    def call(self, action: Callable[[int], Waiter[None] | None], what: str) -> Waiter[None]:
        """Run `action(now_ms)` on the I/O thread; complete when it, or what it gives, is done."""
        self.io.check_usable()
        waiter: Waiter[None] = self.runtime.waiter(what)

        def run(now_ms: int) -> None:
            try:
                given = action(now_ms)
            except MillstreamError as error:
                waiter.set_error(error)
                return
            if given is None:
                waiter.set_result(None)
            else:
                given.add_done_callback(lambda done: _pass_on(done, waiter))

        self.runtime.post(run)
        return waiter

    # ---- the end ----

    def is_usable(self) -> bool:
        """Whether there is an I/O thread that answers."""
        try:
            self.io.check_usable()
        except MillstreamError:
            return False
        return True

    def raise_unseen(self) -> None:
        """Raise DeliveryFailed for records that were lost and nobody has looked at."""
        lost = self.completions.take_unseen()
        if lost is not None:
            raise lost

    def forgive_losses(self) -> None:
        """Whoever aborts a transaction knows that its records are lost."""
        self.completions.take_unseen()

    def give_up(self, error: MillstreamError) -> Waiter[None]:
        """Lose what is not done."""
        return self.call(lambda _: self.sender.completion.fail_all(error), "close")

    def _end(self, error: ClientClosed) -> None:
        """The I/O thread ends: nobody must wait for a record for ever, whatever has failed."""
        batches = self.accumulator.incomplete()
        try:
            self.sender.fail(error)
        finally:
            for batch in batches:
                if not batch.is_done:
                    batch.fail(error)

    def stop(self, timeout_s: float | None) -> None:
        """End the threads."""
        self.io.stop(timeout_s)
        self.interceptors.close()
        self.dispatcher.stop(timeout_s)
        _cores.discard(self)

    def disown(self) -> None:
        """In a forked child: the threads are the parent's."""
        self.accumulator.disown(
            ForkedClient(
                f"{self.name} was made by the parent process and cannot be used after a fork; "
                "make a producer in the child"
            )
        )


def _pass_on(done: Waiter[None], waiter: Waiter[None]) -> None:
    error = done.exception()
    if error is not None:
        waiter.set_error(error)
    else:
        waiter.set_result(None)


def _serializer(given: object, *, is_key: bool) -> Any:
    """None where bytes and str need no serializer."""
    return None if given is None or given == "bytes" else as_serializer(given, is_key=is_key)


def _disown_all() -> None:
    for core in list(_cores):
        core.disown()


os.register_at_fork(after_in_child=_disown_all)
