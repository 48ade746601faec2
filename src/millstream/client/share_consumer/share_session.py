"""`ShareSession`: the half of a share consumer that runs on the application's thread.

It owns the runtime with its I/O thread, the `ShareBuffer` and what is in hand. What may wait is a
generator of steps (see `consumer.steps`). Users' names of topics come in and go out here.
"""

from __future__ import annotations

import itertools
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from millstream.client.consumer.steps import AwaitChange, AwaitResult, Invoke, with_lookups
from millstream.client.io_thread import IoThread
from millstream.client.metrics import Meter, ShareConsumerMetrics
from millstream.client.runtime import ClientRuntime
from millstream.client.serialization.lookups import LookupNeeded
from millstream.client.serialization.primitives import BytesSerde
from millstream.client.serialization.resolution import as_deserializer
from millstream.client.share_consumer.acknowledgements import AcknowledgeType
from millstream.client.share_consumer.config import EXPLICIT
from millstream.client.share_consumer.in_hand import InHand
from millstream.client.share_consumer.share_buffer import ShareBuffer, split
from millstream.client.share_consumer.share_core import ShareCore
from millstream.client.share_consumer.share_record import ShareRecord
from millstream.clock import SystemClock
from millstream.errors import ClientClosed, InvalidArgument, RecordNotReadable, Wakeup
from millstream.network.client.selector_factory import open_client_selector
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.client.consumer.steps import Steps
    from millstream.client.futures import Waiter
    from millstream.client.share_consumer.acknowledgements import OnAcknowledged
    from millstream.client.share_consumer.config import ShareConsumerConfig
    from millstream.client.share_consumer.in_hand import Decided
    from millstream.client.share_consumer.share_buffer import Acquired
    from millstream.clock import Clock
    from millstream.errors import MillstreamError
    from millstream.network.client.selector import ClientSelector
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import Headers

    Deserialize = Callable[[str, bytes, Headers], object]

_numbers: Final = itertools.count(1)
_CLOSE_SLACK_S: Final = 1.0


class ShareSession:
    """A share consumer's state and calls, apart from how a caller waits for them."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        *,
        clock: Clock | None = None,
        selector: ClientSelector | None = None,
    ) -> None:
        """`clock` and `selector` are for tests; with a selector, no thread is started."""
        self.config = config
        self._clock = clock or SystemClock()
        random = SystemRandom()
        self.runtime = ClientRuntime(
            selector or open_client_selector(), self._clock, config, random
        )
        self.buffer = ShareBuffer()
        self._names = config.names
        self._core = ShareCore(config, self.runtime, self.buffer, random)
        self.runtime.add(self._core)
        self.runtime.on_close(self.buffer.end)
        self._in_hand = InHand()
        self._deserialize_key = _deserializer(config.key_deserializer, is_key=True)
        self._deserialize_value = _deserializer(config.value_deserializer, is_key=False)
        self.topics: frozenset[str] = frozenset()
        self.on_acknowledged: OnAcknowledged | None = None
        self._read_meter = Meter()
        self.unread: list[ShareRecord[Any, Any]] = []
        """Records that a loop was given and has not got to, the next one last."""
        self._is_closed = False
        name = config.client_id or f"share-consumer-{next(_numbers)}"
        self.thread = IoThread(self.runtime, f"millstream-{name}")
        self.thread.stop_when_collected(self)
        if selector is None:
            self.thread.start()

    @property
    def lock_timeout_s(self) -> float | None:
        """How long a record stays with this consumer; None while no broker has said."""
        timeout_ms = self._core.lock_timeout_ms
        return None if timeout_ms is None else timeout_ms / 1000

    def timeout_s(self, given: float | None) -> float:
        """How long a call may take: as told, or by the settings."""
        if given is None:
            return self.config.default_api_timeout_ms / 1000
        if given < 0:
            raise InvalidArgument(f"timeout={given}: must not be negative")
        return given

    # ---- what is read ----

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read topics as a member of the group, instead of those before."""
        names = frozenset(topics)
        if not names or "" in names:
            raise InvalidArgument("subscribe to one topic or more, by name")
        self.topics = names
        wire = frozenset(map(self._names.to_wire, names))
        self.runtime.post(lambda now_ms: self._core.subscribe(wire, now_ms))

    def unsubscribe(self, timeout_s: float) -> Steps[None]:
        """Acknowledge what was decided, release the rest, leave the group."""
        self.topics = frozenset()
        decided = self._in_hand.take_decided(accepts_rest=False, unread=self._unread_offsets())
        yield from self._leave(decided, timeout_s)
        yield from self._tell_outcomes()

    def _leave(self, decided: list[Decided], timeout_s: float) -> Steps[None]:
        left: Waiter[None] = self.runtime.waiter("leaving the share group")
        self.runtime.post(
            lambda now_ms: self._core.unsubscribe(decided, now_ms, lambda: left.set_result(None))
        )
        self._in_hand.clear()
        self.unread.clear()
        yield AwaitResult(left, timeout_s)

    def metrics(self) -> ShareConsumerMetrics:
        """The figures as they are now."""
        now_ms = self.runtime.now_ms()
        return ShareConsumerMetrics(
            **self.runtime.meters.figures(now_ms),
            records_read=self._read_meter.total,
            record_rate=self._read_meter.rate(now_ms),
        )

    # ---- records ----

    def poll(self, timeout_s: float | None, count: int) -> Steps[list[ShareRecord[Any, Any]]]:
        """The next records; those of the last poll are done with.

        What a loop was given and has not got to comes first: it was never looked at, so it is
        neither accepted nor fetched once more.
        """
        if not self.topics:
            raise InvalidArgument("nothing is subscribed to: call subscribe() first")
        self._check_decided()
        core = self._core
        core.last_poll_ms = now_ms = self.runtime.now_ms()
        core.is_in_poll = True
        deadline_ms = None if timeout_s is None else now_ms + round(timeout_s * 1000)
        try:
            self._check_news()
            decided = self._in_hand.take_decided(accepts_rest=True, unread=self._unread_offsets())
            if self.unread or not self.buffer.is_empty:
                self.runtime.post(lambda now_ms: core.acknowledge(decided))
            else:
                self.runtime.post(lambda now_ms: core.want(decided, now_ms, deadline_ms, count))
            records = self._take_unread(count) or (yield from self._read(count))
            while not records:
                left_s = None
                if deadline_ms is not None:
                    left_s = (deadline_ms - self.runtime.now_ms()) / 1000
                    if left_s <= 0:
                        break
                yield AwaitChange(self.buffer.has_something, left_s)
                self._check_news()
                records = yield from self._read(count)
        finally:
            core.last_poll_ms = self.runtime.now_ms()
            core.is_in_poll = False
        if records:
            self._read_meter.add(len(records), self.runtime.now_ms())
        else:
            self.runtime.post(lambda now_ms: core.want_no_more())
        try:
            yield from self._tell_outcomes()
        except BaseException:
            # The callback's error is what the caller gets; the records are for the next poll.
            self.unread += records[::-1]
            raise
        return records

    def _check_decided(self) -> None:
        if self.config.share_acknowledgement_mode != EXPLICIT:
            return
        undecided = self._in_hand.undecided(self._unread_offsets())
        if undecided:
            raise InvalidArgument(
                f"{undecided} records of the last poll are not acknowledged: call acknowledge() "
                "for each, with accept, release, reject or renew"
            )

    def _check_news(self) -> None:
        if self.buffer.take_wake():
            self.runtime.post(lambda now_ms: self._core.want_no_more())
            raise Wakeup("wakeup() was called")
        error = self.buffer.next_error()
        if error is not None:
            raise error

    def _take_unread(self, count: int) -> list[ShareRecord[Any, Any]]:
        found = self.unread[: -count - 1 : -1]
        del self.unread[-count:]
        return found

    def _read(self, count: int) -> Steps[list[ShareRecord[Any, Any]]]:
        return with_lookups(partial(self._take, count))

    def _take(self, count: int) -> list[ShareRecord[Any, Any]]:
        """Records as the application sees them, up to the first that cannot be read.

        That one is raised when it is first in line: what comes before it is delivered first. It
        goes back to the group, unless the application says otherwise of it.
        """
        taken = self.buffer.take(count)
        found: list[ShareRecord[Any, Any]] = []
        error: RecordNotReadable | None = None
        try:
            for each in taken:
                self._open_into(found, each)
        except RecordNotReadable as raised:
            if not found and isinstance(raised.__cause__, LookupNeeded):
                self.buffer.put_back(taken)
                raise
            error = raised
        except BaseException:  # An interrupt, in the middle of the user's code.
            self.buffer.put_back(taken)
            raise
        given, rest = split(taken, len(found) or int(error is not None))
        self.buffer.put_back(rest)
        for each in given:
            seen_as = self._names.partition_from_wire(each.partition)
            offsets = [record.offset for record in each.records]
            self._in_hand.add(seen_as, each.session, each.partition, offsets)
        if error is not None and not found:
            where = TopicPartition(error.topic, error.partition)
            self._in_hand.decide(where, error.offset, AcknowledgeType.RELEASE)
            raise error
        return found

    def _open_into(self, found: list[ShareRecord[Any, Any]], acquired: Acquired) -> None:
        for record, count in zip(acquired.records, acquired.delivery_counts, strict=True):
            part = "key"
            try:
                key = self._value_of(self._deserialize_key, record.key, record)
                part = "value"
                value = self._value_of(self._deserialize_value, record.value, record)
            except Exception as error:
                raise _not_readable(record, part, error) from error
            found.append(ShareRecord(record, count, key, value))

    def _value_of(self, deserialize: Deserialize | None, data: Any, record: Any) -> Any:
        if deserialize is None or data is None:
            return data
        return deserialize(record.topic, data, record.headers)

    # ---- acknowledgements ----

    def acknowledge(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Say what became of a record; the brokers hear of it with the next poll or commit."""
        self._in_hand.decide(partition, offset, kind)

    def commit(self, timeout_s: float) -> Steps[dict[TopicPartition, MillstreamError | None]]:
        """Tell the brokers now; what became of it, by partition."""
        waiter: Waiter[dict[TopicPartition, MillstreamError | None]]
        waiter = self.runtime.waiter("the commit")
        self._commit(timeout_s, waiter.set_result)
        found = yield AwaitResult(waiter, timeout_s + _CLOSE_SLACK_S)
        yield from self._tell_outcomes()
        return self._names.keys_from_wire(found)

    def commit_async(self) -> None:
        """Tell the brokers soon; the callback hears what became of it."""
        self._commit(self.timeout_s(None), lambda found: None)

    def _commit(
        self,
        timeout_s: float,
        on_done: Callable[[dict[TopicPartition, MillstreamError | None]], None],
    ) -> None:
        is_implicit = self.config.share_acknowledgement_mode != EXPLICIT
        decided = self._in_hand.take_decided(
            accepts_rest=is_implicit, unread=self._unread_offsets()
        )
        wait_ms = round(timeout_s * 1000)
        self.runtime.post(
            lambda now_ms: self._core.commit(decided, now_ms, now_ms + wait_ms, on_done)
        )

    def _unread_offsets(self) -> frozenset[tuple[TopicPartition, int]]:
        return frozenset(
            (TopicPartition(each.topic, each.partition), each.offset) for each in self.unread
        )

    def _tell_outcomes(self) -> Steps[None]:
        outcomes = self.buffer.take_outcomes()
        if self.on_acknowledged is None:
            return
        for partition, offsets, error in outcomes:
            seen_as = self._names.partition_from_wire(partition)
            yield Invoke(self.on_acknowledged, ({seen_as: offsets}, error))

    # ---- the end ----

    def wakeup(self) -> None:
        """Have a poll that waits, or the next one, raise Wakeup. From any thread."""
        self.buffer.wake()

    def close(self, timeout_s: float, *, accepts_rest: bool) -> Steps[None]:
        """Say what is left to say, leave the group, end the thread; again is fine."""
        if self._is_closed or not self.thread.is_of_this_process():
            return
        self._is_closed = True
        is_implicit = self.config.share_acknowledgement_mode != EXPLICIT
        try:
            decided = self._in_hand.take_decided(
                accepts_rest=accepts_rest and is_implicit, unread=self._unread_offsets()
            )
            yield from self._leave(decided, timeout_s)
            yield from self._tell_outcomes()
        except ClientClosed:
            pass  # The I/O thread has failed before, and has said so.
        finally:
            self.thread.stop(timeout_s)


def _not_readable(
    record: ConsumerRecord[Any, Any], part: str, error: Exception
) -> RecordNotReadable:
    return RecordNotReadable(
        f"{record.topic}-{record.partition}: the {part} of the record at offset {record.offset} "
        f"could not be deserialized ({type(error).__name__}: {error}); it goes back to the group "
        "with the next poll or commit, unless acknowledge_at() says something else of it before",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def _deserializer(given: object, *, is_key: bool) -> Deserialize | None:
    """None where bytes stay bytes."""
    if given is None:
        return None
    deserializer = as_deserializer(given, is_key=is_key)
    return None if isinstance(deserializer, BytesSerde) else deserializer.deserialize
