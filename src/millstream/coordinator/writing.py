"""`ShardWriter`: brings decisions into a partition's log and state, alone or several as one batch.

`CoordinatorRuntime` hands it what was decided. It knows when an answer may be given: after all that
is in the log by then is committed. It decides nothing and loads nothing.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millstream.coordinator.batches import encode_batches
from millstream.coordinator.decision import Moment
from millstream.coordinator.failures import coordinator_error
from millstream.coordinator.ports import CoordinatorShard
from millstream.coordinator.shard_context import ShardContext, ShardState
from millstream.coordinator.shared_batch import SharedBatch
from millstream.errors import ApiError, CoordinatorNotAvailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.clock import Clock
    from millstream.coordinator.decision import CoordinatorRecord, Decision, ProducerStamp
    from millstream.coordinator.ports import PartitionStore
    from millstream.protocol.records_framing import CoordinatorRecords

_logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")

LOADED_ANEW: Final = CoordinatorNotAvailable("the state is loaded anew")


class ShardWriter(Generic[S]):
    """Writes to the partitions of one internal topic."""

    def __init__(
        self,
        topic: str,
        codec: CoordinatorRecords,
        store: PartitionStore,
        clock: Clock,
        defer: Callable[[Callable[[], None]], object],
        arm: Callable[[int], object],
        *,
        write_timeout_ms: int,
        on_misfit: Callable[[ShardContext[S]], None],
    ) -> None:
        """`on_misfit` hears of a partition whose state does not take its own records."""
        self._topic = topic
        self._codec = codec
        self._store = store
        self._clock = clock
        self._defer = defer
        self._arm = arm
        self._write_timeout_ms = write_timeout_ms
        self._on_misfit = on_misfit
        self._gathering: list[ShardContext[S]] = []
        self.turn: Moment | None = None
        """When this turn of the loop began; None if nothing was gathered in it yet."""

    # One decision.

    def write_marker(
        self,
        context: ShardContext[S],
        marker: bytes,
        transaction_version: int,
        replay: Callable[[], None],
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Write the end of a transaction, and make it true."""
        if not self.flush(context):
            done(LOADED_ANEW)
            return
        try:
            self._append(context, bytearray(marker), transaction_version)
        except ApiError as error:
            done(error)
            return
        replay()
        self._when_committed(context, done)

    def write(
        self,
        context: ShardContext[S],
        decision: Decision[T],
        done: Callable[[T | ApiError], None],
        stamp: ProducerStamp | None,
        now: Moment,
    ) -> None:
        """Write a decision by itself, after what waits."""
        if decision.records:
            try:
                self._record(context, decision, stamp, now.wall_ms)
            except ApiError as error:
                self._complete(context, decision, done, coordinator_error(error))
                return
        if context.end_offset == context.safe_offset:
            self._complete(context, decision, done, None)
        else:
            self._when_committed(context, partial(self._complete, context, decision, done))
        self.arm_for(context)

    def _complete(
        self,
        context: ShardContext[S],
        decision: Decision[T],
        done: Callable[[T | ApiError], None],
        error: ApiError | None,
    ) -> None:
        """A decision is committed, or cannot be."""
        if decision.on_committed is not None:
            decision.on_committed(error)
            self.arm_for(context)
        done(decision.response if error is None else error)

    def _record(
        self,
        context: ShardContext[S],
        decision: Decision[T],
        stamp: ProducerStamp | None,
        wall_ms: int,
    ) -> None:
        """Write and replay the records of a decision; raises if nothing of them was written."""
        records = decision.records
        size_max = None if decision.is_atomic else self._store.batch_size_max(context.partition)
        for batch, part in encode_batches(self._codec, records, wall_ms, stamp, size_max):
            self._append(context, batch)
            if decision.is_replayed:
                self._replay(context, part, stamp)

    def _replay(
        self,
        context: ShardContext[S],
        records: Iterable[CoordinatorRecord],
        stamp: ProducerStamp | None,
    ) -> None:
        replay = context.shard.replay
        try:
            for record in records:
                replay(record.key, record.value, stamp)
        except Exception as error:
            _logger.exception("%s-%s: a record does not fit", self._topic, context.partition)
            self._on_misfit(context)
            raise CoordinatorNotAvailable(str(LOADED_ANEW)) from error

    def _append(
        self, context: ShardContext[S], batch: bytearray, transaction_version: int = 2
    ) -> None:
        end_offset = -1

        def done(error: ApiError | None) -> None:
            context.inflight_count -= 1
            context.committed(end_offset, None if error is None else coordinator_error(error))

        appended = self._store.append(
            context.partition,
            context.epoch,
            batch,
            done,
            timeout_ms=self._write_timeout_ms,
            transaction_version=transaction_version,
        )
        end_offset = context.end_offset = appended.end_offset
        if appended.is_committed:
            context.safe_offset = end_offset
            context.committed(end_offset, None)
        else:
            context.inflight_count += 1

    def _when_committed(
        self, context: ShardContext[S], complete: Callable[[ApiError | None], None]
    ) -> None:
        end_offset = context.end_offset
        if end_offset == context.safe_offset:
            complete(None)
        elif self._store.is_committed(context.partition, end_offset):
            context.safe_offset = end_offset
            complete(None)
        elif context.inflight_count:
            context.wait(complete)
        else:
            # A write before this one was not committed in time, or by the leader before.
            complete(CoordinatorNotAvailable("earlier records are not committed yet; try again"))

    def arm_for(self, context: ShardContext[S]) -> None:
        """Ask for a `tick` when a partition has something to decide."""
        deadline_ms = context.shard.timers.next_deadline_ms
        if deadline_ms is not None and context.state is ShardState.ACTIVE:
            self._arm(deadline_ms)

    # Decisions that wait for the end of the turn.

    def begin_turn(self) -> Moment:
        """Take the time for all decisions of this turn, at the end of which they are written."""
        self.turn = Moment(self._clock.monotonic_ms(), self._clock.wall_ms())
        self._defer(self._end_turn)
        return self.turn

    def _end_turn(self) -> None:
        self.turn = None
        gathering, self._gathering = self._gathering, []
        for context in gathering:
            self.flush(context)

    def share(
        self,
        context: ShardContext[S],
        decision: Decision[T],
        done: Callable[[T | ApiError], None],
        now: Moment,
    ) -> None:
        """Let a decision wait for others."""
        shared = context.shared
        if shared is not None and shared.add(decision, now.wall_ms, done):
            return
        if not self.flush(context):
            done(LOADED_ANEW)
            return
        try:
            size_max = self._store.batch_size_max(context.partition)
        except ApiError as error:
            done(coordinator_error(error))
            return
        context.shared = shared = SharedBatch(self._codec, size_max)
        self._gathering.append(context)
        shared.add(decision, now.wall_ms, done)

    def flush(self, context: ShardContext[S]) -> bool:
        """Write what waits; whether the partition can be used afterwards."""
        shared, context.shared = context.shared, None
        if shared is None:
            return True
        try:
            self._append(context, shared.build())
            self._replay(context, shared.records, None)
        except ApiError as error:
            shared.complete(coordinator_error(error))
            return context.state is ShardState.ACTIVE
        self._when_committed(context, shared.complete)
        self.arm_for(context)
        return True
