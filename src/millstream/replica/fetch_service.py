"""Fetch: records out of the logs, within the client's limits, now or when there are enough.

`ReplicaManager.fetch` leads here, with the context that a session cache has opened. The partitions
are read in order; the first one that has records gives a whole batch, whatever the limits. A fetch
of a follower is its acknowledgement, and is noted once, however often the fetch is read again.

A fetch that waits is offered to `FastFetch` again when one of its partitions has changed, with the
frame it came in; what `FastFetch` declines is read here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from millstream.errors import ApiError, KafkaStorageError, UnknownServerError
from millstream.replica.fetch_partition import FetchPartitionData
from millstream.replica.fetch_session import NO_SESSION_ID, FetchAnswer, FetchContext, FetchSession
from millstream.replica.fetch_state import UNKNOWN
from millstream.replica.partition_reader import (
    ENOUGH,
    REPLICA_LIMITS,
    bytes_available,
    consumer_limits,
    read_partition,
)
from millstream.replica.purgatory import DelayedOperation
from millstream.replica.replica_selector import replicas_with
from millstream.storage.log.log_results import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream._accel.broker.fast_fetch import FastFetch
    from millstream.clock import Clock
    from millstream.replica.change_notifier import ChangeNotifier
    from millstream.replica.fetch_partition import FetchPartition
    from millstream.replica.isr_sender import IsrSender
    from millstream.replica.partition import Partition
    from millstream.replica.partition_reader import ReadLimits
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.ports import BrokerView
    from millstream.replica.purgatory import DelayedOperationPurgatory
    from millstream.replica.replica_selector import ReplicaSelector

    FetchDone: TypeAlias = Callable[[FetchAnswer], None]
    OnStorageError: TypeAlias = Callable[[Partition, KafkaStorageError], None]

_logger = logging.getLogger(__name__)

CONSUMER: int = -1
"""The replica id of a client that is no replica."""


class FetchParams(NamedTuple):
    """What a Fetch request says about itself as a whole."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK
    """How far a consumer may read; a replica reads everything."""
    replica_id: int = CONSUMER
    replica_epoch: int = UNKNOWN
    needs_leader: bool = False
    """Fetch before version 11: only from leaders. For replicas that is always so."""
    rack_id: str = ""
    """Where a consumer is, so that a replica near it can be chosen."""


def limits_of(params: FetchParams) -> ReadLimits:
    """How the partitions of a fetch may be read."""
    if params.replica_id >= 0:
        return REPLICA_LIMITS
    return consumer_limits(params.isolation, needs_leader=params.needs_leader)


class DelayedFetch(DelayedOperation):
    """A fetch that waits for enough bytes."""

    __slots__ = (
        "_answer",
        "_context",
        "_done",
        "_frame",
        "_limits",
        "_max_bytes",
        "_min_bytes",
        "_service",
    )

    def __init__(
        self,
        service: FetchService,
        context: FetchContext,
        limits: ReadLimits,
        min_bytes: int,
        max_bytes: int,
        done: FetchDone,
        deadline_ms: int,
        frame: bytes | None,
    ) -> None:
        super().__init__(deadline_ms)
        self._service = service
        self._context = context
        self._limits = limits
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._done = done
        self._frame = frame
        self._answer: FetchAnswer | None = None

    def is_ready(self) -> bool:
        """Whether what has changed is enough, or is something that must be answered."""
        if self._frame is not None:
            self._answer = self._service.retry(self._frame)
            if self._answer is not None:
                return True
        total = 0
        for asked in self._context.watcher.changed:
            total += self._service.available(asked, self._limits)
            if total >= self._min_bytes:
                return True
        return False

    def on_complete(self, *, is_expired: bool) -> None:
        """Answer with what `FastFetch` has found, or read everything again."""
        if self._answer is None:
            self._answer = self._service.read_again(self._context, self._limits, self._max_bytes)
        self._done(self._answer)


class FetchService:
    """The way of a Fetch request through the logs."""

    __slots__ = (
        "_brokers",
        "_clock",
        "_fast_fetch",
        "_fetch_max_bytes",
        "_isr_sender",
        "_notifier",
        "_on_storage_error",
        "_purgatory",
        "_selector",
        "_table",
    )

    def __init__(
        self,
        table: PartitionTable,
        purgatory: DelayedOperationPurgatory,
        notifier: ChangeNotifier,
        isr_sender: IsrSender,
        clock: Clock,
        brokers: BrokerView,
        *,
        fetch_max_bytes: int,
        fast_fetch: FastFetch | None,
        selector: ReplicaSelector | None,
        on_storage_error: OnStorageError,
    ) -> None:
        self._table = table
        self._purgatory = purgatory
        self._notifier = notifier
        self._isr_sender = isr_sender
        self._clock = clock
        self._brokers = brokers
        self._fetch_max_bytes = fetch_max_bytes
        self._fast_fetch = fast_fetch
        self._selector = selector
        self._on_storage_error = on_storage_error

    def fetch(
        self,
        context: FetchContext,
        params: FetchParams,
        done: FetchDone,
        frame: bytes | None = None,
    ) -> FetchAnswer | None:
        """See `ReplicaManager.fetch`."""
        max_bytes = min(params.max_bytes, self._fetch_max_bytes)
        session = context.session if params.replica_id >= 0 else None
        if session is not None and self._is_outdated(params):
            # Every partition refuses it, those that have nothing to say too.
            session.restless |= dict.fromkeys(session.partitions.values())
        asked = context.partitions()
        found, bytes_found = self._read(asked, limits_of(params), max_bytes, params)
        if session is not None:
            session.fetched_ms = self._clock.monotonic_ms()
        is_enough = bytes_found >= min(params.min_bytes, max_bytes)
        if is_enough or params.max_wait_ms <= 0 or context.is_empty:
            return context.finish(asked, found)
        context.begin_waiting(found)
        self._wait(context, params, done, frame)
        return None

    def _is_outdated(self, params: FetchParams) -> bool:
        """Whether the broker that fetches has registered again since, as another process."""
        return UNKNOWN != params.replica_epoch < self._brokers.epoch_of(params.replica_id)

    def begin_wait(self, frame: bytes, done: FetchDone) -> bool:
        """See `ReplicaManager.begin_wait`."""
        taken = None if self._fast_fetch is None else self._fast_fetch.begin_wait(frame)
        if taken is None:
            return False
        session, max_wait_ms, max_bytes, is_committed = taken
        isolation = FetchIsolation.HIGH_WATERMARK
        if is_committed:
            isolation = FetchIsolation.TXN_COMMITTED
        params = FetchParams(max_wait_ms, 1, max_bytes, isolation)
        self._wait(FetchContext((), session=session), params, done, frame)
        return True

    def _wait(
        self, context: FetchContext, params: FetchParams, done: FetchDone, frame: bytes | None
    ) -> None:
        """Answer when there are enough bytes, or when the client has waited long enough."""
        max_bytes = min(params.max_bytes, self._fetch_max_bytes)
        operation = DelayedFetch(
            self,
            context,
            limits_of(params),
            min(params.min_bytes, max_bytes),
            max_bytes,
            done,
            self._clock.monotonic_ms() + params.max_wait_ms,
            frame,
        )
        self._purgatory.watch(operation, (context.watcher,))

    def read_again(self, context: FetchContext, limits: ReadLimits, max_bytes: int) -> FetchAnswer:
        """Answer a fetch that has waited."""
        asked = context.partitions()
        found, _ = self._read(asked, limits, max_bytes)
        return context.finish(asked, found)

    def retry(self, frame: bytes) -> FetchAnswer | None:
        """Offer a fetch that has waited to `FastFetch`; None if that declines it."""
        if self._fast_fetch is None:
            return None
        encoded = self._fast_fetch.answer_waiting(frame)
        return None if encoded is None else FetchAnswer(NO_SESSION_ID, (), encoded=encoded)

    def available(self, asked: FetchPartition, limits: ReadLimits) -> int:
        """How many bytes a waiting fetch would get of one of its partitions."""
        try:
            partition = asked.partition or self._find(asked)
            return bytes_available(partition, asked, limits)
        except ApiError:
            return ENOUGH

    def _read(
        self,
        asked: Sequence[FetchPartition],
        limits: ReadLimits,
        max_bytes: int,
        params: FetchParams | None = None,
    ) -> tuple[list[FetchPartitionData], int]:
        """Read in order; the answers, and their bytes: `ENOUGH` if one of them cannot wait.

        `params` are for the first read only, which looks at the client, too.
        """
        found: list[FetchPartitionData] = []
        total = 0
        must_progress = True
        is_special = params is not None and (params.replica_id >= 0 or bool(params.rack_id))
        for each in asked:
            partition: Partition | None = None
            try:
                partition = each.partition or self._find(each)
                if is_special:
                    assert params is not None
                    result = self._read_for(
                        partition, each, limits, max_bytes, params, must_progress=must_progress
                    )
                else:
                    result = read_partition(
                        partition, each, limits, max_bytes, must_progress=must_progress
                    )
            except Exception as error:
                found.append(FetchPartitionData(self._failure(error, partition)))
                total = ENOUGH
                continue
            found.append(result)
            records = result.records
            if records is not None:
                must_progress = False
                max_bytes = max(max_bytes - records.length, 0)
                total += records.length
            elif result.is_urgent:
                total = ENOUGH
        return found, total

    def _read_for(
        self,
        partition: Partition,
        asked: FetchPartition,
        limits: ReadLimits,
        max_bytes: int,
        params: FetchParams,
        *,
        must_progress: bool,
    ) -> FetchPartitionData:
        """Read for a follower, or for a consumer that says where it is."""
        if params.replica_id < 0:
            redirected = self._redirect(partition, asked, limits, params)
            if redirected is not None:
                return redirected
        else:
            partition.settle_follower(params.replica_id)
        result = read_partition(partition, asked, limits, max_bytes, must_progress=must_progress)
        if params.replica_id >= 0:
            self._note_progress(partition, asked, result, params)
        return result

    def _find(self, asked: FetchPartition) -> Partition:
        partition = self._table.find(asked.topic, asked.index)
        asked.watch(partition)
        return partition

    def _note_progress(
        self,
        partition: Partition,
        asked: FetchPartition,
        result: FetchPartitionData,
        params: FetchParams,
    ) -> None:
        """A follower's fetch is its acknowledgement, unless its log is not the leader's."""
        if result.diverging_epoch is not None:
            partition.follower(params.replica_id, asked.current_leader_epoch)
            return
        progress = partition.on_follower_fetch(
            params.replica_id,
            params.replica_epoch,
            asked.fetch_offset,
            asked.log_start_offset,
            self._clock.monotonic_ms(),
            asked.current_leader_epoch,
        )
        if isinstance(asked.watcher, FetchSession):
            # What this very fetch has moved is told by the next: it was read before.
            is_told = result.high_watermark == partition.log.high_watermark
            if progress.is_quiet and is_told:
                partition.follower(params.replica_id).be_quiet_in(asked.watcher)
                asked.watcher.restless.pop(asked, None)
            else:
                asked.watcher.restless[asked] = None
        if progress.proposal is not None:
            self._isr_sender.submit(partition, progress.proposal)
        if progress.is_high_watermark_raised or progress.is_low_watermark_raised:
            self._notifier.changed(partition)

    def _redirect(
        self, partition: Partition, asked: FetchPartition, limits: ReadLimits, params: FetchParams
    ) -> FetchPartitionData | None:
        """Send a consumer to a replica near it, if there is one; None: it is served here."""
        if self._selector is None or not partition.is_leader:
            return None
        partition.require_role(asked.current_leader_epoch, needs_leader=limits.needs_leader)
        replicas = replicas_with(
            partition, asked.fetch_offset, self._brokers, self._clock.monotonic_ms()
        )
        chosen = self._selector.select(params.rack_id, replicas)
        if chosen is None or chosen == partition.leader_id:
            return None
        log = partition.log
        return FetchPartitionData(
            None,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            preferred_read_replica=chosen,
        )

    def _failure(self, error: Exception, partition: Partition | None) -> ApiError:
        if isinstance(error, KafkaStorageError):
            if partition is not None and partition.fault is None:
                self._on_storage_error(partition, error)
            return error
        if isinstance(error, ApiError):
            return error
        _logger.error("a fetch failed in a way that none should", exc_info=error)
        return UnknownServerError(f"the fetch failed: {error!r}")
