"""`ShardLoader`: replays a partition's log into its shard, a step at a time.

`CoordinatorRuntime` calls it when this broker is elected. It changes nothing of the log, and stops
by itself when the partition is closed meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millstream.coordinator.batches import replay_batch
from millstream.coordinator.ports import CoordinatorShard
from millstream.coordinator.shard_context import ShardContext, ShardState
from millstream.errors import CorruptMessage, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from millstream.clock import Clock
    from millstream.coordinator.ports import PartitionStore
    from millstream.protocol.records_framing import CoordinatorRecords

    Loaded: TypeAlias = Callable[[MillstreamError | None], None]

_logger = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)

LOAD_STEP_BYTES: Final = 128 << 10
"""How much of a log is replayed before others get their turn."""
PROGRESS_MS: Final = 5_000
"""How often a long load says how far it is."""


class ShardLoader(Generic[S]):
    """Loads the partitions of one internal topic."""

    def __init__(
        self,
        topic: str,
        codec: CoordinatorRecords,
        store: PartitionStore,
        clock: Clock,
        defer: Callable[[Callable[[], None]], object],
    ) -> None:
        self._topic = topic
        self._codec = codec
        self._store = store
        self._clock = clock
        self._defer = defer
        self._next_report_ms = 0

    def load(self, context: ShardContext[S], done: Loaded) -> None:
        """Replay all that is in the log by now; `done` gets None, or why it cannot be.

        An empty log is loaded before this returns.
        """
        try:
            bounds = self._store.bounds(context.partition, context.epoch)
        except MillstreamError as error:
            done(error)
            return
        context.end_offset = bounds.end_offset
        began_ms = self._clock.monotonic_ms()
        if bounds.start_offset >= bounds.end_offset:
            done(None)
        else:
            self._defer(lambda: self._step(context, bounds.start_offset, began_ms, done))

    def _step(self, context: ShardContext[S], offset: int, began_ms: int, done: Loaded) -> None:
        if context.state is not ShardState.LOADING:
            return
        try:
            data = self._store.read(context.partition, offset, LOAD_STEP_BYTES)
            next_offset = replay_batch(self._codec, data, context.shard, offset)
        except MillstreamError as error:
            done(error)
            return
        except Exception as error:
            _logger.exception("%s-%s cannot be replayed", self._topic, context.partition)
            done(CorruptMessage(f"a record from offset {offset} on does not fit: {error!r}"))
            return
        if data and next_offset < context.end_offset:
            self._report(context, next_offset)
            self._defer(lambda: self._step(context, next_offset, began_ms, done))
            return
        _logger.info(
            "%s-%s is loaded up to offset %s, %s ms",
            self._topic,
            context.partition,
            context.end_offset,
            self._clock.monotonic_ms() - began_ms,
            extra={"fields": {"topic": self._topic, "partition": context.partition}},
        )
        done(None)

    def _report(self, context: ShardContext[S], offset: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_report_ms:
            if self._next_report_ms:
                _logger.info(
                    "%s-%s is being loaded: offset %s of %s",
                    self._topic,
                    context.partition,
                    offset,
                    context.end_offset,
                )
            self._next_report_ms = now_ms + PROGRESS_MS
