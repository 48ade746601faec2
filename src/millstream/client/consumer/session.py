"""`ConsumerSession`: the half of a consumer that runs on the application's thread.

`Consumer`, `AsyncConsumer` and `read_topic` are made of it. It owns the runtime with its I/O
thread, on which `ConsumerCore`, the other half, runs; it posts to that and is answered through
waiters and the `FetchBuffer`. A call that may wait is a generator of steps (see `steps`); every
other call returns at once. The user's names of topics come in and go out here; below, names are
those of the wire.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from millstream.client.arguments import as_offsets, as_seconds
from millstream.client.consumer.arrow import ArrowBatch
from millstream.client.consumer.core import ConsumerCore
from millstream.client.consumer.fetch_buffer import FetchBuffer
from millstream.client.consumer.interceptors import ConsumerInterceptors
from millstream.client.consumer.listeners import listener_method
from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.starting_point import COMMITTED
from millstream.client.consumer.steps import AwaitChange, AwaitResult, Invoke, with_lookups
from millstream.client.groups import OffsetAndMetadata
from millstream.client.io_thread import IoThread
from millstream.client.metrics import ConsumerMetrics, Meter
from millstream.client.runtime import ClientRuntime
from millstream.client.serialization.primitives import BytesSerde
from millstream.client.serialization.resolution import as_deserializer
from millstream.clock import SystemClock
from millstream.errors import (
    ClientClosed,
    ForkedClient,
    InvalidArgument,
    InvalidGroupId,
    MillstreamError,
    OperationTimeout,
    Wakeup,
)
from millstream.network.client.selector_factory import open_client_selector
from millstream.records.kernel import ArrowRecordsBuilder
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from random import Random

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.fetch_answers import Deserialize
    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.consumer.membership.membership import Membership
    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.consumer.offset_lookup import FoundOffset
    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.client.consumer.steps import Steps
    from millstream.client.futures import Waiter
    from millstream.clock import Clock
    from millstream.network.client.selector import ClientSelector
    from millstream.records.kernel import ConsumerRecord

    Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
    OnCommit = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], Any]

T = TypeVar("T")

Answer: TypeAlias = Callable[[Any], None]
"""Takes a result or a MillstreamError."""

CORRUPT_PAUSE_S: Final = 1.0
"""How long a poll waits for other records before it tells of the same corrupt batch again."""
ARROW_BYTES: Final = 4 << 20
"""How much one `poll_arrow` gives, about."""

_logger: Final = logging.getLogger(__name__)
_numbers: Final = itertools.count(1)


class ConsumerSession:
    """A consumer's state and calls, apart from how a caller waits for them."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        clock: Clock | None = None,
        selector: ClientSelector | None = None,
        random: Random | None = None,
    ) -> None:
        """All but the settings is for tests; with a selector, no thread is started."""
        self.config = config
        self._clock = clock or SystemClock()
        random = random or SystemRandom()
        self.runtime = ClientRuntime(
            selector or open_client_selector(),
            self._clock,
            config,
            random,
            metadata_config=config.metadata(
                allow_auto_topic_creation=config.allow_auto_create_topics
            ),
        )
        self.buffer = FetchBuffer(
            config.prefetch_bytes, self.runtime.wake, config.corrupt_batch_handler
        )
        self._names = config.names
        self._core = ConsumerCore(
            config,
            self.runtime,
            self.buffer,
            random,
            self._clock.wall_ms,
            key_deserializer=_deserializer(config.key_deserializer, is_key=True),
            value_deserializer=_deserializer(config.value_deserializer, is_key=False),
        )
        self.runtime.add(self._core)
        self.runtime.on_close(self.buffer.end)
        self.interceptors = ConsumerInterceptors(config.interceptors)
        if self.interceptors and self._core.membership is not None:
            self._core.membership.on_auto_committed = self._on_auto_committed
        self.unread: Callable[[], Iterable[ConsumerRecord[Any, Any]]] = tuple
        """Records that were taken for a loop which has not got to them."""
        self._read_meter = Meter()
        self._finished_commits: deque[Callable[[], Any]] = deque()
        self._listener: object | None = None
        self._commits_processed_only = False
        """Whether what the last poll gave counts as not yet processed."""
        self.subscription: Subscription | None = None
        self._is_closed = False
        self._arrow = ArrowRecordsBuilder()
        self._arrow_columns: tuple[str, ...] | None = None
        name = config.client_id or f"consumer-{next(_numbers)}"
        self.thread = IoThread(self.runtime, f"millstream-{name}")
        self.thread.stop_when_collected(self)
        if selector is None:
            self.thread.start()

    def check_usable(self) -> None:
        """Raise unless calls can succeed."""
        self.thread.check_usable()

    def timeout_s(self, given: float | None) -> float:
        """How long a call may take: as told, or by the settings."""
        if given is None:
            return self.config.default_api_timeout_ms / 1000
        return as_seconds(given)

    def record_count(self, given: int | None) -> int:
        """How many records a poll may give: as told, or by the settings."""
        if given is None:
            return self.config.max_poll_records
        if given < 1:
            raise InvalidArgument(f"max_records={given}: must be at least 1")
        return given

    # ---- what is read ----

    def subscribe(self, subscription: Subscription, listener: object | None) -> None:
        """Read topics as a member of the group."""
        if self.subscription is None and self.buffer.is_assigned():
            raise InvalidArgument("partitions are assigned by hand: call unsubscribe() first")
        self.membership()
        subscription.matcher()  # It complains now, not on the I/O thread.
        self.subscription = subscription
        self._listener = listener
        self._post(lambda core, now_ms: _membership_of(core).subscribe(subscription, now_ms))

    def subscribed(self) -> frozenset[str]:
        """The topics that are subscribed to, as far as a pattern is resolved."""
        membership = self._core.membership
        if membership is None or self.subscription is None:
            return frozenset()
        if not self.subscription.is_pattern:
            names = self.subscription.topics
        else:
            names = membership.subscribed_topics
        return frozenset(self._names.shown(each) for each in names)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, whatever others do."""
        if self.subscription is not None:
            raise InvalidArgument("topics are subscribed to: call unsubscribe() first")
        wanted = dict.fromkeys(self._names.partitions_to_wire(partitions))
        before = self.buffer.assignment()
        gone = before - wanted.keys()
        new = [each for each in wanted if each not in before]
        self.buffer.unassign(gone)
        self.buffer.assign(new, COMMITTED)
        starts = self.buffer.starts(new)

        def change(core: ConsumerCore, _now_ms: int) -> None:
            core.end(gone)
            core.begin(starts)

        self._post(change)

    def assign_at(self, starts: Mapping[TopicPartition, StartingPoint]) -> None:
        """Read these partitions as well, each from its own place."""
        for partition, start in self._names.keys_to_wire(starts).items():
            self.buffer.assign([partition], start)
        begun = self.buffer.starts(self._names.partitions_to_wire(starts))
        self._post(lambda core, _now_ms: core.begin(begun))

    def unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read partitions, by the wire's names, no longer."""
        self.buffer.unassign(partitions)
        self._post(lambda core, _now_ms: core.end(partitions))

    def to_wire(self, partition: TopicPartition) -> TopicPartition:
        """A partition as the buffer knows it."""
        return self._names.partition_to_wire(partition)

    def unsubscribe(self, timeout_s: float) -> Steps[None]:
        """Read nothing any more; a member leaves its group."""
        if self.subscription is not None:
            self.subscription = None
            yield from self._leave(timeout_s, is_closing=False)
            self._listener = None
        self.assign([])

    def _leave(self, timeout_s: float, *, is_closing: bool) -> Steps[None]:
        """Leave the group, running listeners meanwhile."""

        def leave(core: ConsumerCore, now_ms: int, answer: Callable[[Any], None]) -> None:
            method = _membership_of(core).close if is_closing else _membership_of(core).unsubscribe
            method(now_ms, lambda: answer(None))

        left = self._ask("leaving the group", leave)
        left.add_done_callback(lambda _: self.buffer.notify())
        deadline_ms = self._deadline_ms(timeout_s)
        while not left.done():
            yield from self._run_rebalances()
            wait_s = self._left_s(deadline_ms)
            if wait_s <= 0:
                break
            yield AwaitChange(self.buffer.has_event, wait_s)
        yield from self._run_rebalances()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(map(self._names.partition_from_wire, self.buffer.assignment()))

    def set_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        """Give nothing of partitions, or again."""
        wanted = self._names.partitions_to_wire(partitions)
        for partition in wanted:
            if not self.buffer.set_paused(partition, is_paused):
                raise self._not_assigned(partition)
        self._post(lambda core, _now_ms: core.set_paused(wanted, is_paused))

    def paused(self) -> frozenset[TopicPartition]:
        """Those that are paused."""
        return frozenset(map(self._names.partition_from_wire, self.buffer.paused()))

    # ---- records ----

    def poll(self, timeout_s: float | None, count: int) -> Steps[list[ConsumerRecord[Any, Any]]]:
        """The next records; an empty list when none came in time."""
        records = yield from self._poll(timeout_s, lambda: self.buffer.take(count))
        self._count(len(records))
        return self._intercepted(records or [])

    def poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> Steps[T]:
        """What `take` gives, as soon as that is something."""
        return self._poll(timeout_s, take)

    def poll_one_partition(
        self, timeout_s: float | None, count: int
    ) -> Steps[list[ConsumerRecord[Any, Any]]]:
        """The same, of one partition only; what interceptors take away whole is passed over."""
        take = partial(self.buffer.take, count, of_one=True)
        while records := (yield from self._poll(timeout_s, take)):
            self._count(len(records))
            left = self._intercepted(records)
            if left:
                return left
        return []

    def poll_arrow(
        self, timeout_s: float | None, columns: Sequence[str] | None
    ) -> Steps[ArrowBatch | None]:
        """The next records of one topic as columns; None when none came in time."""
        wanted = None if columns is None else tuple(columns)
        if wanted != self._arrow_columns:
            self._arrow = ArrowRecordsBuilder(columns)  # It complains before anything is taken.
            self._arrow_columns = wanted
        batch = yield from self._poll(timeout_s, self._take_arrow)
        self._count(0 if batch is None else len(batch))
        return batch

    def _count(self, records: int) -> None:
        if records:
            self._read_meter.add(records, self._now_ms())

    def metrics(self) -> ConsumerMetrics:
        """The figures as they are now."""
        now_ms = self._now_ms()
        fetched = self._core.fetched
        return ConsumerMetrics(
            **self.runtime.meters.figures(now_ms),
            records_read=self._read_meter.total,
            record_rate=self._read_meter.rate(now_ms),
            bytes_fetched=fetched.total,
            byte_rate=fetched.rate(now_ms),
            buffered_bytes=self.buffer.byte_count,
            assigned_partitions=len(self.buffer.assignment()),
        )

    def _take_arrow(self) -> ArrowBatch | None:
        self._arrow.expect(min(self.buffer.byte_count, ARROW_BYTES))
        partition = self.buffer.take_arrow(self._arrow, ARROW_BYTES)
        if partition is None:
            return None
        return ArrowBatch(self._names.shown(partition.topic), self._arrow.finish())

    def _intercepted(
        self, records: list[ConsumerRecord[Any, Any]]
    ) -> list[ConsumerRecord[Any, Any]]:
        return self.interceptors.on_consume(records) if self.interceptors and records else records

    def _poll(self, timeout_s: float | None, take: Callable[[], T]) -> Steps[T]:
        """Hear what has happened, then take; again until something was there, or it is time."""
        if self.subscription is None and not self.buffer.is_assigned():
            raise InvalidArgument("nothing to poll: subscribe() to topics or assign() partitions")
        corrupt = self.buffer.known_corrupt()
        if corrupt is not None:
            # The application was told before, so this is no reason to return at once.
            timeout_s = CORRUPT_PAUSE_S if timeout_s is None else min(timeout_s, CORRUPT_PAUSE_S)
        deadline_ms = None if timeout_s is None else self._deadline_ms(timeout_s)
        self._enter_poll()
        try:
            while True:
                yield from self._hear()
                taken = yield from with_lookups(partial(self._retrying, take))
                wait_s = None if deadline_ms is None else self._left_s(deadline_ms)
                if taken:
                    return taken
                if wait_s is not None and wait_s <= 0:
                    if corrupt is not None and corrupt is self.buffer.known_corrupt():
                        raise copy(corrupt)
                    return taken
                yield AwaitChange(self.buffer.has_something, wait_s)
        finally:
            membership = self._core.membership
            if membership is not None:
                membership.leave_poll(self._now_ms())

    def _enter_poll(self) -> None:
        self.buffer.settle()
        self._run_finished()
        membership = self._core.membership
        if membership is not None and membership.enter_poll(self._now_ms()):
            consumed = self._consumed()
            self._post(lambda core, now_ms: _membership_of(core).on_poll(consumed, now_ms))

    def _hear(self) -> Steps[None]:
        if self.buffer.take_wake():
            raise Wakeup("wakeup() was called")
        yield from self._run_rebalances()
        error = self.buffer.next_error()
        if error is not None:
            self.subscription = None
            raise error

    def enforce_rebalance(self) -> None:
        """Have the group rebalance."""
        self.membership()
        self._post(lambda core, now_ms: _membership_of(core).request_rejoin(now_ms))

    # ---- where it reads ----

    def seek(self, partition: TopicPartition, start: StartingPoint) -> None:
        """Read on from somewhere else."""
        wanted = self._names.partition_to_wire(partition)
        run = self.buffer.seek(wanted, start)
        if run is None:
            raise self._not_assigned(wanted)
        self._post(lambda core, _now_ms: core.seek(wanted, run, start))

    def position(self, partition: TopicPartition, timeout_s: float) -> Steps[int]:
        """The next offset that the application gets; waits until it is known."""
        wanted = self._names.partition_to_wire(partition)
        deadline_ms = self._deadline_ms(timeout_s)
        while True:
            if wanted not in self.buffer.assignment():
                raise self._not_assigned(wanted)
            position = self._retrying(lambda: self.buffer.position(wanted))
            if position is not None:
                unread = self._consumed()
                return unread[wanted].offset if wanted in unread else position
            wait_s = self._left_s(deadline_ms)
            if wait_s <= 0:
                # If no broker was ever reached, that is the error.
                reached = self._ask(
                    "the cluster", lambda core, _now_ms, answer: answer(core.bootstrap_failure())
                )
                yield AwaitResult(reached, 5.0)
                raise OperationTimeout(f"{partition}: no position within {timeout_s:g} s")
            yield AwaitChange(partial(self.buffer.is_placed, wanted), wait_s)

    def lag(self, partition: TopicPartition, timeout_s: float) -> Steps[int]:
        """How many offsets lie between the position and the end."""
        wanted = self._names.partition_to_wire(partition)
        position = yield from self.position(partition, timeout_s)
        end = self.buffer.end_offset(wanted)
        if end is None or end < position:
            found = yield from self.find_offsets({partition: -1}, timeout_s)
            latest = found[partition]
            end = position if latest is None else latest.offset
        return max(0, end - position)

    def find_offsets(
        self, times: Mapping[TopicPartition, int], timeout_s: float
    ) -> Steps[dict[TopicPartition, FoundOffset | None]]:
        """Offsets by time, or of the ends; see `offset_lookup`."""
        wanted = self._names.keys_to_wire(times)
        timeout_ms = round(timeout_s * 1000)
        waiter = self._ask(
            "the offsets",
            lambda core, now_ms, answer: core.lookup.find(
                wanted,
                lambda found, _done_ms: answer(found),
                deadline_ms=now_ms + timeout_ms,
                now_ms=now_ms,
            ),
        )
        found = yield AwaitResult(waiter, None)
        return self._names.keys_from_wire(found)

    def partition_count(self, topic: str, timeout_s: float) -> Steps[int]:
        """How many partitions a topic has; an error if it does not exist."""
        wire = self._names.to_wire(topic)
        timeout_ms = round(timeout_s * 1000)
        waiter = self._ask(
            f"the partitions of {topic!r}",
            lambda core, now_ms, answer: core.topics.partition_count(
                wire, answer, deadline_ms=now_ms + timeout_ms, now_ms=now_ms
            ),
        )
        count: int = yield AwaitResult(waiter, None)
        return count

    def partitions_for(self, topic: str, timeout_s: float) -> Steps[list[TopicPartition]]:
        """The partitions of a topic; an error if it does not exist."""
        count = yield from self.partition_count(topic, timeout_s)
        return [TopicPartition(topic, number) for number in range(count)]

    def _not_assigned(self, partition: TopicPartition) -> InvalidArgument:
        """The error for a partition that is not read."""
        assigned = ", ".join(
            map(str, sorted(map(self._names.partition_from_wire, self.buffer.assignment())))
        )
        return InvalidArgument(
            f"{self._names.partition_from_wire(partition)} is not assigned to this consumer; "
            f"{assigned or 'nothing'} is"
        )

    # ---- commits ----

    @property
    def _commits_automatically(self) -> bool:
        """Whether what was read is committed without being asked to."""
        return self.config.enable_auto_commit and self._core.membership is not None

    def _consumed(self, *, processed: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """What the application has got, or what it had got when it last came back for more."""
        offsets = {
            partition: OffsetAndMetadata(position, "", epoch if epoch >= 0 else None)
            for partition, (position, epoch) in self.buffer.positions(processed=processed).items()
        }
        for record in self.unread():
            partition = self._names.partition_to_wire(
                TopicPartition(record.topic, record.partition)
            )
            known = offsets.get(partition)
            if known is not None and record.offset < known.offset:
                offsets[partition] = OffsetAndMetadata(record.offset, "", known.leader_epoch)
        return offsets

    def commit(self, offsets: Offsets | None, timeout_s: float) -> Steps[None]:
        """Commit and wait for it."""
        self._run_finished()
        wanted = self._offsets_to_commit(offsets)
        yield from self._commit(wanted, timeout_s)
        self._run_finished()

    def _commit(
        self, wanted: dict[TopicPartition, OffsetAndMetadata], timeout_s: float
    ) -> Steps[None]:
        if not wanted:
            return
        timeout_ms = round(timeout_s * 1000)
        waiter = self._ask_commit(wanted, lambda now_ms: now_ms + timeout_ms)
        yield AwaitResult(waiter, None)
        self.interceptors.on_commit(self._names.keys_from_wire(wanted))

    def _commit_quietly(
        self, partitions: Collection[TopicPartition] | None, timeout_s: float, *, processed: bool
    ) -> Steps[None]:
        """Commit what was read, of these partitions or of all; a failure is only logged."""
        consumed = self._consumed(processed=processed)
        wanted = {
            each: offset
            for each, offset in consumed.items()
            if partitions is None or each in partitions
        }
        try:
            yield from self._commit(wanted, timeout_s)
        except MillstreamError as error:
            _logger.warning("what was read could not be committed: %s", error)

    def commit_async(self, offsets: Offsets | None, on_done: OnCommit | None) -> Waiter[None]:
        """Commit and go on; `on_done` runs in a later call of the application's."""
        wanted = self._offsets_to_commit(offsets)
        waiter = self._ask_commit(wanted, lambda _now_ms: None)
        told = self._names.keys_from_wire(wanted)

        def finished(done: Waiter[None]) -> None:
            error = done.exception()
            self._finished_commits.append(lambda: self._tell_committed(told, error, on_done))

        waiter.add_done_callback(finished)
        return waiter

    def _tell_committed(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        error: BaseException | None,
        on_done: OnCommit | None,
    ) -> None:
        if error is None:
            self.interceptors.on_commit(offsets)
        elif on_done is None:
            _logger.warning("an asynchronous commit has failed: %s", error)
        if on_done is not None:
            on_done(offsets, error if isinstance(error, Exception) else None)

    def _on_auto_committed(self, committed: dict[TopicPartition, OffsetAndMetadata]) -> None:
        told = self._names.keys_from_wire(committed)
        self._finished_commits.append(lambda: self.interceptors.on_commit(told))

    def _run_finished(self) -> None:
        """Call back for asynchronous commits that are done, on the application's thread."""
        while self._finished_commits:
            self._finished_commits.popleft()()

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> Steps[dict[TopicPartition, OffsetAndMetadata | None]]:
        """What the group has committed; None where it has nothing."""
        wanted = self._names.partitions_to_wire(partitions)
        self.membership()
        timeout_ms = round(timeout_s * 1000)
        waiter = self._ask(
            "the committed offsets",
            lambda core, now_ms, answer: _membership_of(core).committed(
                wanted, now_ms, answer, deadline_ms=now_ms + timeout_ms
            ),
        )
        found = yield AwaitResult(waiter, None)
        return self._names.keys_from_wire({each: found.get(each) for each in wanted})

    def membership(self) -> Membership:
        """The place in the group; an error that tells what to do if there is none."""
        return _membership_of(self._core)

    def _ask_commit(
        self,
        wanted: dict[TopicPartition, OffsetAndMetadata],
        deadline: Callable[[int], int | None],
    ) -> Waiter[None]:
        return self._ask(
            "the commit",
            lambda core, now_ms, answer: _membership_of(core).commit(
                wanted, now_ms, answer, deadline_ms=deadline(now_ms)
            ),
        )

    def _offsets_to_commit(
        self, offsets: Offsets | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self.membership()
        if offsets is None:
            return self._consumed()
        return self._names.keys_to_wire(as_offsets(offsets))

    # ---- changes of the assignment by the group ----

    def _run_rebalances(self) -> Steps[None]:
        """Go through all changes that have come."""
        while (event := self.buffer.next_event()) is not None:
            if isinstance(event, Assigned):
                yield from self._take_assigned(event)
            else:
                yield from self._take_revoked(event)

    def _take_assigned(self, event: Assigned) -> Steps[None]:
        self.buffer.assign(event.partitions, COMMITTED)
        try:
            yield from self._tell_listener("on_partitions_assigned", event.partitions)
        finally:
            # Now, because the listener may have sought.
            starts = self.buffer.starts(event.partitions)
            self._post(lambda core, _now_ms: core.begin(starts))
            self._acknowledge(event)

    def _take_revoked(self, event: Revoked | Lost) -> Steps[None]:
        try:
            if isinstance(event, Revoked):
                if event.commits_first:
                    yield from self._commit_quietly(
                        event.partitions,
                        self.timeout_s(None),
                        processed=self._commits_processed_only,
                    )
                yield from self._tell_listener("on_partitions_revoked", event.partitions)
            else:
                yield from self._tell_listener("on_partitions_lost", event.partitions)
        finally:
            self.buffer.unassign(event.partitions)
            self._post(lambda core, _now_ms: core.end(event.partitions))
            self._acknowledge(event)

    def _tell_listener(self, name: str, partitions: Collection[TopicPartition]) -> Steps[None]:
        method = None if self._listener is None else listener_method(self._listener, name)
        if method is not None:
            yield Invoke(method, (sorted(map(self._names.partition_from_wire, partitions)),))

    def _acknowledge(self, event: RebalanceEvent) -> None:
        self._post(lambda core, now_ms: _membership_of(core).acknowledge(event, now_ms))

    # ---- the end ----

    def wakeup(self) -> None:
        """End the wait of a poll. From any thread."""
        self.buffer.wake()

    def close(self, timeout_s: float, *, processed_only: bool) -> Steps[None]:
        """Commit, leave, and end the thread; again is fine."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.check_usable()
        except ForkedClient:
            return  # The thread is the parent's, and locks may be held that nobody will release.
        except ClientClosed:
            self.thread.stop(timeout_s)
            self.interceptors.close()
            return
        self._commits_processed_only = processed_only
        deadline_ms = self._deadline_ms(timeout_s)
        try:
            if self._commits_automatically:
                yield from self._commit_quietly(None, timeout_s, processed=processed_only)
            if self._core.membership is not None:
                yield from self._leave(self._left_s(deadline_ms), is_closing=True)
        except ClientClosed:
            pass  # The I/O thread has failed meanwhile, and has said so.
        finally:
            with suppress(ClientClosed):
                self._post(lambda core, now_ms: core.close(now_ms))
            self.thread.stop(max(0.1, self._left_s(deadline_ms)))
            self._run_finished()
            self.interceptors.close()

    # ---- asking the core ----

    def _now_ms(self) -> int:
        """The monotonic time that the core is told."""
        return self.runtime.now_ms()

    def _deadline_ms(self, timeout_s: float) -> int:
        return self._now_ms() + round(timeout_s * 1000)

    def _left_s(self, deadline_ms: int) -> float:
        """Seconds until then; negative afterwards."""
        return (deadline_ms - self._now_ms()) / 1000

    def _post(self, action: Callable[[ConsumerCore, int], None]) -> None:
        """Have the core do something, soon."""
        self.runtime.post(lambda now_ms: action(self._core, now_ms))

    def _ask(self, what: str, question: Callable[[ConsumerCore, int, Answer], None]) -> Waiter[Any]:
        """Have the core answer something, exactly once; `what` is named if it takes too long."""
        waiter: Waiter[Any] = self.runtime.waiter(what)

        def answer(outcome: Any) -> None:
            if isinstance(outcome, MillstreamError):
                waiter.set_error(outcome)
            else:
                waiter.set_result(outcome)

        def run(now_ms: int) -> None:
            try:
                question(self._core, now_ms, answer)
            except MillstreamError as error:
                waiter.set_error(error)

        self.runtime.post(run)
        return waiter

    def _retrying(self, call: Callable[[], T]) -> T:
        """What a call gives; if it raises, the core shall try again what has failed."""
        try:
            return call()
        except MillstreamError:
            self._post(lambda core, _now_ms: core.retry_failed())
            raise


def _membership_of(core: ConsumerCore) -> Membership:
    if core.membership is None:
        raise InvalidGroupId(
            "this consumer has no group: give it a group_id to subscribe or to commit offsets, "
            "or assign() it partitions and keep the offsets yourself"
        )
    return core.membership


def _deserializer(given: object, *, is_key: bool) -> Deserialize | None:
    """None where bytes stay bytes, so that nothing is called for each record."""
    if given is None:
        return None
    deserializer = as_deserializer(given, is_key=is_key)
    return None if isinstance(deserializer, BytesSerde) else deserializer.deserialize
