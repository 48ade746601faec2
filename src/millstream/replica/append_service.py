"""Produce: records into the logs that this broker leads, and answers as `acks` asks.

`ReplicaManager.append` leads here. Each partition succeeds or fails for itself. With `acks=all`
and followers, or on a topic whose durability is disk, the answer waits in the `PendingAcks` of the
partition; the bytes do not, they are in the log by then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

from millstream.errors import (
    ApiError,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaStorageError,
    UnknownServerError,
)
from millstream.replica.fast_produce import make_fast_produce
from millstream.replica.pending_acks import NEVER_MS
from millstream.storage.faults import storage_error
from millstream.storage.log.producer_entry import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream._accel.broker.fast_produce import FastProduce
    from millstream.clock import Clock
    from millstream.replica.partition import Partition
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.pending_acks import PendingAck
    from millstream.replica.ports import LogStore
    from millstream.storage.log.log_results import AppendInfo
    from millstream.storage.log.validator import Inspected
    from millstream.storage.log.verification import VerificationGuard
    from millstream.types import ReadableBuffer, Uuid

    ClientEntry: TypeAlias = tuple[str | Uuid, int, ReadableBuffer | None]
    """A topic's name or id, a partition, and records as they were received."""
    AppendEntry: TypeAlias = tuple[str | Uuid, int, ReadableBuffer | Inspected | Exception | None]
    """The same, with records that may have been inspected, or refused."""
    AppendDone: TypeAlias = Callable[[list["AppendResult"]], None]

_logger = logging.getLogger(__name__)

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
_ACKS: Final = frozenset({ACKS_NONE, ACKS_LEADER, ACKS_ALL})


class AppendResult(NamedTuple):
    """What became of the records for one partition."""

    error: ApiError | None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1


class DelayedProduce:
    """A Produce request that waits for replicas or for the disk, in some of its partitions."""

    __slots__ = ("_done", "_results", "_waiting_count", "deadline_ms", "needs_all")

    def __init__(self, results: list[AppendResult], deadline_ms: int, *, needs_all: bool) -> None:
        self.deadline_ms = deadline_ms
        self.needs_all = needs_all
        self._results = results
        self._waiting_count = 0
        self._done: AppendDone | None = None

    def wait(self, place: int, required_offset: int) -> PendingAck:
        """One more partition to wait for, whose result is at a place."""
        self._waiting_count += 1
        return _PartitionAck(self, place, required_offset)

    def begin(self, done: AppendDone) -> bool:
        """All partitions have got their records; False if none is waited for."""
        self._done = done
        return self._waiting_count > 0

    def complete(self, place: int, error: ApiError | None) -> None:
        """A partition is no longer waited for."""
        if error is not None:
            log_start = self._results[place].log_start_offset
            self._results[place] = AppendResult(error, log_start_offset=log_start)
        self._waiting_count -= 1
        if not self._waiting_count and self._done is not None:
            self._done(self._results)


class _PartitionAck:
    """The part of a request that one partition owes."""

    __slots__ = ("_place", "_request", "deadline_ms", "needs_all", "required_offset")

    def __init__(self, request: DelayedProduce, place: int, required_offset: int) -> None:
        self._request = request
        self._place = place
        self.required_offset = required_offset
        self.deadline_ms = request.deadline_ms
        self.needs_all = request.needs_all

    def complete(self, error: ApiError | None) -> None:
        """The records are safe, or never will be for sure."""
        self._request.complete(self._place, error)


class AppendService:
    """The way of a Produce request through the logs."""

    __slots__ = ("_arm", "_armed_ms", "_clock", "_store", "_table", "_waiting")

    def __init__(
        self,
        table: PartitionTable,
        store: LogStore,
        clock: Clock,
        arm: Callable[[int], object],
    ) -> None:
        """`arm` is told the earliest deadline when it has changed: then `expire` is due."""
        self._table = table
        self._store = store
        self._clock = clock
        self._arm = arm
        self._armed_ms = NEVER_MS
        # Those with answers that wait, and some that had them until lately.
        self._waiting: dict[Partition, None] = {}

    def append(
        self,
        entries: Sequence[AppendEntry],
        acks: int,
        timeout_ms: int,
        done: AppendDone,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        allows_internal: bool = False,
        guards: Mapping[int, VerificationGuard] | None = None,
        refused: Mapping[int, ApiError] | None = None,
        transaction_version: int = 2,
    ) -> list[AppendResult] | None:
        """See `ReplicaManager.append`. `guards` and `refused` go by the place of an entry."""
        if acks not in _ACKS:
            error = InvalidRequiredAcks(f"acks is {acks}; it can be 0, 1 or -1")
            return [AppendResult(error)] * len(entries)
        needs_all = acks == ACKS_ALL
        wall_ms, now_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        results: list[AppendResult] = []
        delayed = DelayedProduce(results, now_ms + max(timeout_ms, 0), needs_all=needs_all)
        for topic, index, records in entries:
            place = len(results)
            partition: Partition | None = None
            try:
                if refused is not None:
                    _require_not_refused(refused, place)
                partition = self._table.find(topic, index)
                if partition.is_internal and not allows_internal:
                    _refuse_internal(partition)
                info = partition.append_as_leader(
                    _accepted(records),
                    wall_ms,
                    now_ms,
                    needs_all=needs_all,
                    origin=origin,
                    guard=None if guards is None else guards.get(place),
                    transaction_version=transaction_version,
                )
            except Exception as error:
                results.append(self.failure(error, partition))
                continue
            results.append(self._success(partition, info))
            required = info.last_offset + 1
            if acks and not _is_safe(partition, required, needs_all=needs_all):
                self.wait(partition, delayed.wait(place, required))
        return None if delayed.begin(done) else results

    def make_fast_path(self) -> FastProduce | None:
        """Ordinary requests from their frames, compiled; None where it was not built."""
        return make_fast_produce(self._table, self.failure, self.wait, self._clock)

    # Answers that wait.

    @property
    def waiting_count(self) -> int:
        """How many answers wait, each for one partition."""
        return sum(len(partition.acks) for partition in self._waiting)

    def wait(self, partition: Partition, ack: PendingAck) -> None:
        """Answer when a partition's records are safe, or at the deadline."""
        partition.acks.add(ack)
        self._waiting[partition] = None
        if ack.deadline_ms < self._armed_ms:
            self._armed_ms = ack.deadline_ms
            self._arm(ack.deadline_ms)

    def expire(self, now_ms: int) -> None:
        """Answer what has waited long enough."""
        if now_ms < self._armed_ms:
            return
        for partition in list(self._waiting):
            if partition.acks.deadline_ms <= now_ms:
                partition.acks.expire(now_ms)
            if not partition.acks:
                del self._waiting[partition]
        deadlines = [partition.acks.deadline_ms for partition in self._waiting]
        self._armed_ms = min(deadlines, default=NEVER_MS)
        if deadlines:
            self._arm(self._armed_ms)

    def next_deadline_ms(self) -> int | None:
        """When `expire` is due; None if nothing waits."""
        return None if self._armed_ms == NEVER_MS else self._armed_ms

    def stop(self) -> None:
        """Answer everything that waits as if its time had come."""
        self.expire(NEVER_MS)

    # What becomes of an append.

    def _success(self, partition: Partition, info: AppendInfo) -> AppendResult:
        if info.wants_flush or partition.waits_for_disk:
            self._bring_to_disk(partition, info)
        return AppendResult(
            None, info.first_offset, info.log_append_time, partition.log.log_start_offset
        )

    def failure(self, error: Exception, partition: Partition | None) -> AppendResult:
        """What a request is told of an exception, after the log's directory was told."""
        log_start = -1 if partition is None else partition.log.log_start_offset
        if isinstance(error, OSError) and partition is not None:
            error = storage_error(partition.log.directory, "appending", error)
        if isinstance(error, KafkaStorageError):
            if partition is not None and partition.fault is None:
                self._store.note_error(partition.log, error)
        elif not isinstance(error, ApiError):
            _logger.error("an append failed in a way that none should", exc_info=error)
            error = UnknownServerError(f"the append failed: {error!r}")
        return AppendResult(error, log_start_offset=log_start)

    def _bring_to_disk(self, partition: Partition, info: AppendInfo) -> None:
        log = partition.log
        if not partition.waits_for_disk:
            self._store.flush(log)
            return

        def on_disk(error: ApiError | None) -> None:
            # A failed disk is told by the log manager, to all partitions on it.
            if error is None:
                partition.advance_high_watermark(self._clock.monotonic_ms())
            partition.changed()

        self._store.commit(log, info.last_offset + 1, on_disk)


def _is_safe(partition: Partition, offset: int, *, needs_all: bool) -> bool:
    """Whether everything before an offset may be acknowledged."""
    if needs_all:
        return partition.log.high_watermark >= offset
    return not partition.waits_for_disk or partition.log.recovery_point >= offset


def _accepted(records: ReadableBuffer | Inspected | Exception | None) -> ReadableBuffer | Inspected:
    if isinstance(records, Exception):
        raise records
    if records is None:
        raise InvalidRecord("a Produce request has one batch per partition, here is none")
    return records


def _require_not_refused(refused: Mapping[int, ApiError], place: int) -> None:
    if place in refused:
        raise refused[place]


def _refuse_internal(partition: Partition) -> NoReturn:
    raise InvalidTopic(f"{partition.name.topic} is written by the broker itself")
