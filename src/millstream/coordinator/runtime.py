"""`CoordinatorRuntime`: the hands of a coordinator. Decide, write, replay, answer.

A coordinator's facade asks it to `write` or `read`; `node` tells it which partitions this broker
leads and calls `tick`. It runs on the thread that owns the logs. A decision is replayed as soon as
it is in the log, so the next request sees it; its answer, and every answer after it, waits until
the records are committed. So nobody is told what could still be lost, and there is one state, not
one per offset. Decisions that may wait are gathered until the end of the loop's turn and written
as one batch; whatever else is asked of their partition meanwhile has them written first.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millstream.coordinator.decision import Decision, Moment
from millstream.coordinator.loading import ShardLoader
from millstream.coordinator.ports import CoordinatorShard
from millstream.coordinator.routing import partition_for
from millstream.coordinator.shard_context import ShardContext, ShardState
from millstream.coordinator.writing import LOADED_ANEW, ShardWriter
from millstream.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptMessage,
    MillstreamError,
    NotCoordinator,
    UnknownServerError,
)
from millstream.records import ControlType, EndTxnMarker, end_txn_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from millstream.clock import Clock
    from millstream.coordinator.decision import ProducerStamp
    from millstream.coordinator.ports import PartitionStore
    from millstream.coordinator.timers import TimerAction
    from millstream.protocol.records_framing import CoordinatorRecords

_logger = logging.getLogger(__name__)

_DAMAGED_ADVICE: Final = (
    ". What it coordinates is not served. Let another replica lead the partition if there is one; "
    "else stop the broker and restore the partition's directory from a backup, or remove it: what "
    "it holds is then lost"
)

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")

RETRY_MS: Final = 500
"""When a decision that could not be written, and that nobody asked for, is tried again."""


class CoordinatorRuntime(Generic[S]):
    """The partitions of one internal topic that this broker coordinates."""

    def __init__(
        self,
        topic: str,
        *,
        codec: CoordinatorRecords,
        make_shard: Callable[[int, int], S],
        store: PartitionStore,
        partition_count: Callable[[], int | None],
        clock: Clock,
        defer: Callable[[Callable[[], None]], object],
        arm: Callable[[int], object],
        write_timeout_ms: int,
    ) -> None:
        """`defer` calls something in the loop's next turn; `arm` asks for a `tick` at a time.

        `make_shard` gets the partition and its leader epoch. `partition_count` is None as long as
        the topic does not exist.
        """
        self._topic = topic
        self._make_shard = make_shard
        self._partition_count = partition_count
        self._clock = clock
        self._arm = arm
        self._loader = ShardLoader[S](topic, codec, store, clock, defer)
        self._writer = ShardWriter[S](
            topic,
            codec,
            store,
            clock,
            defer,
            arm,
            write_timeout_ms=write_timeout_ms,
            on_misfit=self._load_anew,
        )
        self._contexts: dict[int, ShardContext[S]] = {}

    # Asking.

    def write(
        self,
        key: str,
        decide: Callable[[S, Moment], Decision[T]],
        done: Callable[[T | ApiError], None],
        *,
        stamp: ProducerStamp | None = None,
    ) -> None:
        """Let the shard of a key decide; `done` gets the response, perhaps before the return."""
        try:
            context = self._active(self._partition_for(key))
        except ApiError as error:
            done(error)
            return
        self._write(context, decide, done, stamp)

    def gather(
        self,
        key: str,
        decide: Callable[[S, Moment], Decision[T]],
        done: Callable[[T | ApiError], None],
    ) -> None:
        """As `write`, for callers whose frequent decisions may wait until the turn's end."""
        try:
            context = self._active(self._partition_for(key))
        except ApiError as error:
            done(error)
            return
        writer = self._writer
        now = writer.turn or writer.begin_turn()
        decision = self._decide(context, decide, done, now)
        if decision is None:
            return
        if decision.may_wait and decision.records:
            writer.share(context, decision, done, now)
        elif writer.flush(context):
            writer.write(context, decision, done, None, now)
        else:
            done(LOADED_ANEW)

    def read(
        self,
        key: str,
        ask: Callable[[S, Moment], T],
        done: Callable[[T | ApiError], None],
    ) -> None:
        """Ask the shard of a key for something that is committed."""
        self.write(key, lambda shard, now: Decision(ask(shard, now)), done)

    def write_all(self, decide: Callable[[S, Moment], Decision[None]]) -> None:
        """Let every active shard decide something that nobody asked for."""
        for context in list(self._contexts.values()):
            if context.state is ShardState.ACTIVE:
                self._write(context, decide, lambda _: None, None)

    def read_all(
        self, ask: Callable[[S, Moment], T], done: Callable[[list[T] | ApiError], None]
    ) -> None:
        """Ask every shard on this broker; an error if one of them is not loaded yet."""
        contexts = list(self._contexts.values())
        if any(context.state is not ShardState.ACTIVE for context in contexts):
            done(CoordinatorLoadInProgress(f"{self._topic} is being loaded; try again"))
            return
        answers: list[T | ApiError] = []

        def answered(answer: T | ApiError) -> None:
            answers.append(answer)
            if len(answers) == len(contexts):
                failures = [each for each in answers if isinstance(each, ApiError)]
                done(failures[0] if failures else answers)  # type: ignore[arg-type]  # None is one.

        if not contexts:
            done([])
        for context in contexts:
            self._write(context, lambda shard, now: Decision(ask(shard, now)), answered, None)

    def end_transaction(
        self,
        partition: int,
        stamp: ProducerStamp,
        *,
        coordinator_epoch: int,
        transaction_version: int,
        is_committed: bool,
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Write a transaction's marker into a partition, and make it true."""
        try:
            context = self._active(partition)
        except ApiError as error:
            done(error)
            return
        marker = end_txn_marker(
            EndTxnMarker(
                ControlType.COMMIT if is_committed else ControlType.ABORT, coordinator_epoch
            ),
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            timestamp=self._clock.wall_ms(),
        )

        def replay() -> None:
            context.shard.replay_end_of_transaction(stamp, is_committed=is_committed)

        self._writer.write_marker(context, marker, transaction_version, replay, done)

    # Leadership.

    @property
    def active_partitions(self) -> list[int]:
        """The partitions whose state is loaded."""
        return sorted(
            partition
            for partition, context in self._contexts.items()
            if context.state is ShardState.ACTIVE
        )

    @property
    def shards(self) -> Iterable[S]:
        """The loaded state machines: for metrics."""
        contexts = self._contexts.values()
        return [each.shard for each in contexts if each.state is ShardState.ACTIVE]

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads a partition: load it. Others go on meanwhile."""
        known = self._contexts.get(partition)
        if known is not None:
            has_failed = known.state is ShardState.FAILED and known.epoch == leader_epoch
            if known.epoch >= leader_epoch and not has_failed:
                return
            self._close(known)
        context = ShardContext(partition, leader_epoch, self._make_shard(partition, leader_epoch))
        self._contexts[partition] = context
        self._loader.load(context, partial(self._loaded, context))

    def resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This broker does not lead a partition any more."""
        context = self._contexts.get(partition)
        if context is not None and (leader_epoch is None or leader_epoch > context.epoch):
            del self._contexts[partition]
            self._close(context)

    def close(self) -> None:
        """This broker stops."""
        for partition in list(self._contexts):
            self.resigned(partition)

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        deadlines = [
            context.shard.timers.next_deadline_ms
            for context in self._contexts.values()
            if context.state is ShardState.ACTIVE
        ]
        return min((each for each in deadlines if each is not None), default=None)

    def tick(self) -> None:
        """Decide what is due."""
        now_ms = self._clock.monotonic_ms()
        for context in list(self._contexts.values()):
            while context.state is ShardState.ACTIVE:
                due = context.shard.timers.pop_due(now_ms)
                if due is None:
                    break
                self._fire(context, *due)

    def _fire(self, context: ShardContext[S], key: Hashable, action: TimerAction) -> None:
        def done(outcome: ApiError | None) -> None:
            if outcome is not None and context.state is ShardState.ACTIVE:
                # It is still to be decided; by then, perhaps on another state.
                _logger.warning("%s-%s: %s", self._topic, context.partition, outcome)
                retry_ms = self._clock.monotonic_ms() + RETRY_MS
                context.shard.timers.set_if_absent(key, retry_ms, action)
                self._arm(retry_ms)

        self._write(context, lambda _, now: action(now), done, None)

    # The way of a decision.

    def _write(
        self,
        context: ShardContext[S],
        decide: Callable[[S, Moment], Decision[T]],
        done: Callable[[T | ApiError], None],
        stamp: ProducerStamp | None,
    ) -> None:
        if not self._writer.flush(context):
            done(LOADED_ANEW)
            return
        clock = self._clock
        now = tuple.__new__(Moment, (clock.monotonic_ms(), clock.wall_ms()))
        decision = self._decide(context, decide, done, now)
        if decision is not None:
            self._writer.write(context, decision, done, stamp, now)

    def _decide(
        self,
        context: ShardContext[S],
        decide: Callable[[S, Moment], Decision[T]],
        done: Callable[[T | ApiError], None],
        now: Moment,
    ) -> Decision[T] | None:
        """A decision; None if there is none and `done` knows why."""
        try:
            return decide(context.shard, now)
        except ApiError as error:
            done(error)
        except Exception as error:
            _logger.exception("%s-%s could not decide", self._topic, context.partition)
            done(UnknownServerError(f"the coordinator failed: {error!r}"))
        return None

    # Loading.

    def _loaded(self, context: ShardContext[S], error: MillstreamError | None) -> None:
        if error is not None:
            self._fail(context, error)
            return
        context.state = ShardState.ACTIVE
        context.shard.loaded(self._clock.monotonic_ms())
        self._writer.arm_for(context)

    def _fail(self, context: ShardContext[S], error: MillstreamError) -> None:
        advice = _DAMAGED_ADVICE if isinstance(error, CorruptMessage) else ""
        _logger.error("%s-%s cannot be loaded: %s%s", self._topic, context.partition, error, advice)
        context.state = ShardState.FAILED
        context.abandon(CoordinatorNotAvailable(f"{self._topic} could not be loaded"))

    def _load_anew(self, context: ShardContext[S]) -> None:
        """The log is right and the state is not: begin again from the log."""
        self._fail(context, LOADED_ANEW)
        self._contexts.pop(context.partition, None)
        self.elected(context.partition, context.epoch)

    def _close(self, context: ShardContext[S]) -> None:
        was_active = context.state is ShardState.ACTIVE
        context.state = ShardState.CLOSED
        error = NotCoordinator("another broker coordinates it now")
        context.abandon(error)
        if was_active:
            context.shard.unloaded(error)

    # Finding.

    def _partition_for(self, key: str) -> int:
        count = self._partition_count()
        if not count:
            raise CoordinatorNotAvailable(f"{self._topic} does not exist yet")
        return partition_for(key, count)

    def _active(self, partition: int) -> ShardContext[S]:
        context = self._contexts.get(partition)
        if context is None or context.state is ShardState.CLOSED:
            raise NotCoordinator(f"this broker does not lead {self._topic}-{partition}")
        if context.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress(f"{self._topic}-{partition} is being loaded")
        if context.state is ShardState.FAILED:
            raise CoordinatorNotAvailable(f"{self._topic}-{partition} could not be loaded")
        return context
