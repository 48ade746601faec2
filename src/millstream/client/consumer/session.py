"""`ConsumerSession`: a consumer's half on the application's thread, the same for both faces.

It owns the runtime with its I/O thread and the `FetchBuffer`. What may wait is a generator of steps
(see `steps`); everything else returns at once. Users' names of topics come in and go out here;
below this, names are those of the wire.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.client.arguments import as_seconds
from millstream.client.consumer.arrow import ArrowBatch
from millstream.client.consumer.core import ConsumerCore
from millstream.client.consumer.fetch_buffer import FetchBuffer
from millstream.client.consumer.group_settings import membership_settings
from millstream.client.consumer.interceptors import ConsumerInterceptors
from millstream.client.consumer.link import CoreLink
from millstream.client.consumer.names import Names
from millstream.client.consumer.session_commits import SessionCommits
from millstream.client.consumer.session_offsets import SessionOffsets
from millstream.client.consumer.session_rebalances import SessionRebalances
from millstream.client.consumer.starting_point import COMMITTED
from millstream.client.consumer.steps import AwaitChange
from millstream.client.io_thread import IoThread
from millstream.client.runtime import ClientRuntime
from millstream.client.serialization.primitives import BytesSerde
from millstream.client.serialization.resolution import as_deserializer
from millstream.clock import SystemClock
from millstream.errors import ClientClosed, ForkedClient, InvalidArgument, Wakeup
from millstream.network.selector_factory import open_client_selector
from millstream.records.kernel import ArrowRecordsBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.fetch_answers import Deserialize
    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.client.consumer.steps import Steps
    from millstream.clock import Clock
    from millstream.network.client_selector import ClientSelector
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition

T = TypeVar("T")

ARROW_BYTES: Final = 4 << 20
"""How much one `poll_arrow` gives, about."""

_numbers: Final = itertools.count(1)


class ConsumerSession:
    """What both faces share."""

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
        self.buffer = FetchBuffer(config.prefetch_bytes, self.runtime.wake)
        self._names = Names(config.isolation)
        core = ConsumerCore(
            config,
            self.runtime,
            self.buffer,
            random,
            self._clock.wall_ms,
            membership=membership_settings(config),
            key_deserializer=_deserializer(config.key_deserializer, is_key=True),
            value_deserializer=_deserializer(config.value_deserializer, is_key=False),
        )
        self.runtime.add(core)
        self.runtime.on_close(self.buffer.end)
        self._link = CoreLink(self.runtime, core)
        self.interceptors = ConsumerInterceptors(config.interceptors)
        self.commits = SessionCommits(
            config, self._link, self.buffer, self._names, self.interceptors
        )
        self.offsets = SessionOffsets(self._link, self.buffer, self._names, self.commits)
        timeout_s = config.default_api_timeout_ms / 1000
        self.rebalances = SessionRebalances(
            self._link, self.buffer, self._names, self.commits, timeout_s
        )
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
        self.commits.membership()
        subscription.matcher()  # It complains now, not on the I/O thread.
        self.subscription = subscription
        self.rebalances.listener = listener
        self._link.post(lambda core, now_ms: _member(core).subscribe(subscription, now_ms))

    def subscribed(self) -> frozenset[str]:
        """The topics that are subscribed to, as far as a pattern is resolved."""
        membership = self._link.core.membership
        if membership is None or self.subscription is None:
            return frozenset()
        if not self.subscription.is_pattern:
            names = self.subscription.topics
        else:
            names = membership.subscribed_topics
        return frozenset(self._names.topic_from_wire(each) for each in names)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, whatever others do."""
        if self.subscription is not None:
            raise InvalidArgument("topics are subscribed to: call unsubscribe() first")
        wanted = dict.fromkeys(self._names.all_to_wire(partitions))
        before = self.buffer.assignment()
        gone = before - wanted.keys()
        new = [each for each in wanted if each not in before]
        self.buffer.unassign(gone)
        self.buffer.assign(new, COMMITTED)
        starts = self.buffer.starts(new)

        def change(core: ConsumerCore, _now_ms: int) -> None:
            core.end(gone)
            core.begin(starts)

        self._link.post(change)

    def assign_at(self, starts: Mapping[TopicPartition, StartingPoint]) -> None:
        """Read these partitions as well, each from its own place."""
        for partition, start in self._names.keys_to_wire(starts).items():
            self.buffer.assign([partition], start)
        begun = self.buffer.starts(self._names.all_to_wire(starts))
        self._link.post(lambda core, _now_ms: core.begin(begun))

    def unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read partitions, by the wire's names, no longer."""
        self.buffer.unassign(partitions)
        self._link.post(lambda core, _now_ms: core.end(partitions))

    def to_wire(self, partition: TopicPartition) -> TopicPartition:
        """A partition as the buffer knows it."""
        return self._names.to_wire(partition)

    def unsubscribe(self, timeout_s: float) -> Steps[None]:
        """Read nothing any more; a member leaves its group."""
        if self.subscription is not None:
            self.subscription = None
            yield from self._leave(timeout_s, is_closing=False)
            self.rebalances.listener = None
        self.assign([])

    def _leave(self, timeout_s: float, *, is_closing: bool) -> Steps[None]:
        """Leave the group, running listeners meanwhile."""

        def leave(core: ConsumerCore, now_ms: int, answer: Callable[[Any], None]) -> None:
            method = _member(core).close if is_closing else _member(core).unsubscribe
            method(now_ms, lambda: answer(None))

        left = self._link.ask("leaving the group", leave)
        left.add_done_callback(lambda _: self.buffer.nudge())
        deadline_ms = self._link.deadline_ms(timeout_s)
        while not left.done():
            yield from self.rebalances.run()
            wait_s = self._link.left_s(deadline_ms)
            if wait_s <= 0:
                break
            yield AwaitChange(self.buffer.has_event, wait_s)
        yield from self.rebalances.run()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(map(self._names.from_wire, self.buffer.assignment()))

    def set_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        """Give nothing of partitions, or again."""
        wanted = self._names.all_to_wire(partitions)
        for partition in wanted:
            if not self.buffer.set_paused(partition, is_paused):
                raise self.offsets.not_assigned(partition)
        self._link.post(lambda core, _now_ms: core.set_paused(wanted, is_paused))

    def paused(self) -> frozenset[TopicPartition]:
        """Those that are paused."""
        return frozenset(map(self._names.from_wire, self.buffer.paused()))

    # ---- records ----

    def poll(self, timeout_s: float | None, count: int) -> Steps[list[ConsumerRecord]]:
        """The next records; an empty list when none came in time."""
        records = yield from self._poll(timeout_s, lambda: self.buffer.take(count))
        return self._intercepted(records or [])

    def poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> Steps[T]:
        """What `take` gives, as soon as that is something."""
        return self._poll(timeout_s, take)

    def poll_one_partition(
        self, timeout_s: float | None, count: int
    ) -> Steps[list[ConsumerRecord]]:
        """The same, of one partition only; what interceptors take away whole is passed over."""
        take = partial(self.buffer.take, count, of_one=True)
        while records := (yield from self._poll(timeout_s, take)):
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
        return batch

    def _take_arrow(self) -> ArrowBatch | None:
        self._arrow.expect(min(self.buffer.byte_count, ARROW_BYTES))
        partition = self.buffer.take_arrow(self._arrow, ARROW_BYTES)
        if partition is None:
            return None
        return ArrowBatch(self._names.topic_from_wire(partition.topic), self._arrow.finish())

    def _intercepted(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return self.interceptors.on_consume(records) if self.interceptors and records else records

    def _poll(self, timeout_s: float | None, take: Callable[[], T]) -> Steps[T]:
        """Hear what has happened, then take; again until something was there, or it is time."""
        if self.subscription is None and not self.buffer.is_assigned():
            raise InvalidArgument("nothing to poll: subscribe() to topics or assign() partitions")
        deadline_ms = None if timeout_s is None else self._link.deadline_ms(timeout_s)
        self._enter_poll()
        try:
            while True:
                yield from self._hear()
                taken = self._link.retrying(take)
                wait_s = None if deadline_ms is None else self._link.left_s(deadline_ms)
                if taken or (wait_s is not None and wait_s <= 0):
                    return taken
                yield AwaitChange(self.buffer.has_something, wait_s)
        finally:
            membership = self._link.core.membership
            if membership is not None:
                membership.leave_poll(self._link.now_ms())

    def _enter_poll(self) -> None:
        self.buffer.settle()
        self.commits.run_finished()
        membership = self._link.core.membership
        if membership is not None and membership.enter_poll(self._link.now_ms()):
            consumed = self.commits.consumed()
            self._link.post(lambda core, now_ms: _member(core).on_poll(consumed, now_ms))

    def _hear(self) -> Steps[None]:
        if self.buffer.take_wake():
            raise Wakeup("wakeup() was called")
        yield from self.rebalances.run()
        error = self.buffer.next_error()
        if error is not None:
            self.subscription = None
            raise error

    def enforce_rebalance(self) -> None:
        """Have the group rebalance."""
        self.commits.membership()
        self._link.post(lambda core, now_ms: _member(core).request_rejoin(now_ms))

    # ---- the end ----

    def wakeup(self) -> None:
        """End the wait of whoever polls. From any thread."""
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
        self.rebalances.commits_processed_only = processed_only
        deadline_ms = self._link.deadline_ms(timeout_s)
        try:
            if self.commits.is_automatic:
                yield from self.commits.commit_quietly(None, timeout_s, processed=processed_only)
            if self._link.core.membership is not None:
                yield from self._leave(self._link.left_s(deadline_ms), is_closing=True)
        except ClientClosed:
            pass  # The I/O thread has failed meanwhile, and has said so.
        finally:
            with suppress(ClientClosed):
                self._link.post(lambda core, now_ms: core.close(now_ms))
            self.thread.stop(max(0.1, self._link.left_s(deadline_ms)))
            self.commits.run_finished()
            self.interceptors.close()


def _member(core: ConsumerCore) -> Any:
    assert core.membership is not None
    return core.membership


def _deserializer(given: object, *, is_key: bool) -> Deserialize | None:
    """None where bytes stay bytes, so that nothing is called for each record."""
    if given is None:
        return None
    deserializer = as_deserializer(given, is_key=is_key)
    return None if isinstance(deserializer, BytesSerde) else deserializer.deserialize
