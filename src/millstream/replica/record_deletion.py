"""DeleteRecords: the log's start moves up, here at once, on followers with their next fetches.

`ReplicaManager.delete_records` leads here. The answer waits until every live replica has followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.errors import (
    ApiError,
    InvalidTopic,
    KafkaStorageError,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
)
from millstream.metadata.topic_names import INTERNAL_TOPICS
from millstream.replica.purgatory import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.replica.partition import Partition
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.purgatory import DelayedOperationPurgatory

    DeleteDone: TypeAlias = Callable[[list["DeleteResult"]], None]

TO_HIGH_WATERMARK: Final = -1
"""The offset that stands for everything that is committed."""


class DeleteResult(NamedTuple):
    """What became of the deletion in one partition."""

    error: ApiError | None
    low_watermark: int = -1


class DelayedDeleteRecords(DelayedOperation):
    """A deletion that waits for followers."""

    __slots__ = ("_done", "_results", "_waiting")

    def __init__(
        self,
        deadline_ms: int,
        results: list[DeleteResult],
        waiting: dict[int, tuple[Partition, int]],
        done: DeleteDone,
    ) -> None:
        super().__init__(deadline_ms)
        self._results = results
        self._waiting = waiting
        self._done = done

    def is_ready(self) -> bool:
        """Whether every live replica has followed, or this broker can no longer tell."""
        for place, (partition, offset) in list(self._waiting.items()):
            if not partition.is_leader:
                self._results[place] = DeleteResult(partition.refusal())
            elif partition.low_watermark >= offset:
                self._results[place] = DeleteResult(None, partition.low_watermark)
            else:
                continue
            del self._waiting[place]
        return not self._waiting

    def on_complete(self, *, is_expired: bool) -> None:
        """Answer; some replicas may not have followed in time."""
        if is_expired and not self.is_ready():
            for place, (partition, _) in self._waiting.items():
                self._results[place] = DeleteResult(
                    RequestTimedOut(f"not all replicas of {partition.name} have deleted yet"),
                    partition.low_watermark,
                )
        self._done(self._results)


def delete_records(
    entries: Sequence[tuple[str, int, int]],
    deadline_ms: int,
    done: DeleteDone,
    table: PartitionTable,
    purgatory: DelayedOperationPurgatory,
    on_storage_error: Callable[[Partition, KafkaStorageError], None],
    *,
    allows_internal: bool = False,
) -> list[DeleteResult] | None:
    """See `ReplicaManager.delete_records`."""
    results = []
    waiting = {}
    for place, (topic, index, offset) in enumerate(entries):
        partition: Partition | None = None
        try:
            partition = table.find(topic, index)
            offset = _raise_log_start(partition, offset, allows_internal=allows_internal)
        except ApiError as error:
            if isinstance(error, KafkaStorageError) and partition is not None:
                on_storage_error(partition, error)
            results.append(DeleteResult(error))
            continue
        partition.changed()
        results.append(DeleteResult(None, partition.low_watermark))
        if partition.low_watermark < offset:
            waiting[place] = partition, offset
    if not waiting:
        return results
    operation = DelayedDeleteRecords(deadline_ms, results, waiting, done)
    purgatory.watch(operation, [partition for partition, _ in waiting.values()])
    return None


def _raise_log_start(partition: Partition, offset: int, *, allows_internal: bool) -> int:
    """Delete what is before an offset; the offset with its special value resolved."""
    partition.require_role(needs_leader=True)
    log = partition.log
    if partition.name.topic in INTERNAL_TOPICS and not allows_internal:
        raise InvalidTopic(f"{partition.name.topic} is the broker's own")
    if not log.config.deletes_old_segments:
        raise PolicyViolation(
            f"topic {partition.name.topic} is compacted: its cleanup.policy has no delete"
        )
    if offset == TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise OffsetOutOfRange(f"records before offset {offset} cannot be deleted")
    log.raise_log_start_offset(offset)
    return offset
