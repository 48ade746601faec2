"""Produce: records into the logs that this broker leads, and answers as `acks` asks.

`ReplicaManager.append` leads here. Each partition succeeds or fails for itself. With `acks=all`
and followers, or on a topic whose durability is disk, the answer waits in the purgatory; the bytes
do not, they are in the log by then.
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
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownServerError,
)
from millstream.replica.produce_lane import make_produce_lane
from millstream.replica.purgatory import DelayedOperation
from millstream.replica.stored_log import stored_log
from millstream.storage.producer_entry import AppendOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream._accel.broker.fast_path import FastHandler
    from millstream.clock import Clock
    from millstream.replica.change_notifier import ChangeNotifier
    from millstream.replica.partition import Partition
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.ports import LogStore
    from millstream.replica.purgatory import DelayedOperationPurgatory
    from millstream.storage.log_results import AppendInfo
    from millstream.storage.verification import VerificationGuard
    from millstream.types import ReadableBuffer, Uuid

    AppendEntry: TypeAlias = tuple[str | Uuid, int, ReadableBuffer | None]
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


class _Waiting(NamedTuple):
    """A partition whose records are in the log but not safe enough for an answer."""

    place: int
    """Which of the results it is."""
    partition: Partition
    required_offset: int
    leadership_count: int
    needs_all: bool

    def verdict(self) -> ApiError | bool:
        """True once the records are safe, an error if they never will be for sure."""
        partition = self.partition
        if partition.has_the_only_log:
            # The broker is stopping: no need to make a client write them twice.
            return _is_safe(partition, self.required_offset, needs_all=False)
        if not partition.is_leader:
            return partition.refusal()
        if partition.leadership_count != self.leadership_count:
            return NotLeaderOrFollower(f"this broker did not lead {partition.name} for a while")
        if not _is_safe(partition, self.required_offset, needs_all=self.needs_all):
            return False
        return (partition.commit_error() if self.needs_all else None) or True


class DelayedProduce(DelayedOperation):
    """A Produce request that waits for replicas or for the disk."""

    __slots__ = ("_done", "_results", "_waiting")

    def __init__(
        self,
        deadline_ms: int,
        results: list[AppendResult],
        waiting: list[_Waiting],
        done: AppendDone,
    ) -> None:
        super().__init__(deadline_ms)
        self._results = results
        self._waiting = waiting
        self._done = done

    def is_ready(self) -> bool:
        """Whether no partition is waited for any more."""
        still = []
        for each in self._waiting:
            verdict = each.verdict()
            if verdict is False:
                still.append(each)
            elif verdict is not True:
                self._fail(each.place, verdict)
        self._waiting = still
        return not still

    def on_complete(self, *, is_expired: bool) -> None:
        """Answer; at the deadline some partitions have a timeout to report."""
        if is_expired and not self.is_ready():
            for each in self._waiting:
                self._fail(
                    each.place,
                    RequestTimedOut(
                        f"{each.partition.name}: the records are in the log, but were not "
                        "acknowledged in time"
                    ),
                )
        self._done(self._results)

    def _fail(self, place: int, error: ApiError) -> None:
        log_start = self._results[place].log_start_offset
        self._results[place] = AppendResult(error, log_start_offset=log_start)


class AppendService:
    """The way of a Produce request through the logs."""

    __slots__ = ("_clock", "_notifier", "_purgatory", "_store", "_table")

    def __init__(
        self,
        table: PartitionTable,
        store: LogStore,
        purgatory: DelayedOperationPurgatory,
        notifier: ChangeNotifier,
        clock: Clock,
    ) -> None:
        self._table = table
        self._store = store
        self._purgatory = purgatory
        self._notifier = notifier
        self._clock = clock

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
        waiting: list[_Waiting] = []
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
                    _refuse_null() if records is None else records,
                    wall_ms,
                    now_ms,
                    needs_all=needs_all,
                    origin=origin,
                    guard=None if guards is None else guards.get(place),
                    transaction_version=transaction_version,
                )
            except Exception as error:
                results.append(self._failure(error, partition))
                continue
            results.append(self._success(partition, info))
            required = info.last_offset + 1
            if acks and not _is_safe(partition, required, needs_all=needs_all):
                count = partition.leadership_count
                waiting.append(_Waiting(place, partition, required, count, needs_all))
        if not waiting:
            return results
        operation = DelayedProduce(now_ms + max(timeout_ms, 0), results, waiting, done)
        self._purgatory.watch(operation, [each.partition for each in waiting])
        return None

    def append_one(
        self, topic: str | Uuid, index: int, records: ReadableBuffer, acks: int
    ) -> AppendResult | None:
        """The short way of a client's only batch; None if `append` is needed, nothing was done."""
        partition = self._table.look_up(topic, index)
        if partition is None or partition.is_internal or acks not in _ACKS:
            return None
        try:
            base_offset = partition.append_alone(records, self._clock.wall_ms())
        except Exception as error:
            return self._failure(error, partition)
        if base_offset is None:
            return None
        self._notifier.changed(partition)
        # The generated constructor costs three times as much.
        return tuple.__new__(AppendResult, (None, base_offset, -1, partition.log.log_start_offset))

    def make_express(self) -> FastHandler | None:
        """`append_one` for a whole frame, compiled; None where it was not built."""
        return make_produce_lane(
            self._table, self._purgatory, self._notifier, self._failure, self._clock
        )

    def append_own(self, partition: Partition, records: bytearray) -> int | None:
        """The short way of a batch that a coordinator built, not compressed and with keys.

        Its offset, and then it is committed; None if `append` is needed, nothing was done.
        """
        try:
            offset = partition.append_alone(records, self._clock.wall_ms(), is_own=True)
        except Exception as error:
            failure = self._failure(error, partition).error
            assert failure is not None
            raise failure from error
        if offset is not None:
            self._notifier.changed(partition)
        return offset

    def _success(self, partition: Partition, info: AppendInfo) -> AppendResult:
        self._notifier.changed(partition)
        if info.wants_flush or partition.waits_for_disk:
            self._bring_to_disk(partition, info)
        return AppendResult(
            None, info.first_offset, info.log_append_time, partition.log.log_start_offset
        )

    def _failure(self, error: Exception, partition: Partition | None) -> AppendResult:
        log_start = -1 if partition is None else partition.log.log_start_offset
        if isinstance(error, KafkaStorageError):
            if partition is not None and partition.fault is None:
                self._store.note_error(stored_log(partition), error)
        elif not isinstance(error, ApiError):
            _logger.error("an append failed in a way that none should", exc_info=error)
            error = UnknownServerError(f"the append failed: {error!r}")
        return AppendResult(error, log_start_offset=log_start)

    def _bring_to_disk(self, partition: Partition, info: AppendInfo) -> None:
        log = stored_log(partition)
        if not partition.waits_for_disk:
            self._store.flush(log)
            return

        def on_disk(error: ApiError | None) -> None:
            # A failed disk is told by the log manager, to all partitions on it.
            if error is None:
                partition.advance_high_watermark(self._clock.monotonic_ms())
            self._notifier.changed(partition)

        self._store.commit(log, info.last_offset + 1, on_disk)


def _is_safe(partition: Partition, offset: int, *, needs_all: bool) -> bool:
    """Whether everything before an offset may be acknowledged."""
    if needs_all:
        return partition.log.high_watermark >= offset
    return not partition.waits_for_disk or partition.log.recovery_point >= offset


def _refuse_null() -> NoReturn:
    raise InvalidRecord("a Produce request has one batch per partition, here is none")


def _require_not_refused(refused: Mapping[int, ApiError], place: int) -> None:
    if place in refused:
        raise refused[place]


def _refuse_internal(partition: Partition) -> NoReturn:
    raise InvalidTopic(f"{partition.name.topic} is written by the broker itself")
