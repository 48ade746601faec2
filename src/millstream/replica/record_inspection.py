"""Compressed records are unpacked and read before they are appended.

`ReplicaManager.append` comes by here with the requests of clients. The loop's thread serves
everybody, so it unpacks no more than `INLINE_UNPACK_MAX` bytes for a request. What is larger is
left to a worker, one batch at a time, so that requests take turns there; the connection of the
request is held meanwhile, which keeps its requests in order. What a batch must be is the
validator's to say.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import ApiError
from millstream.storage.log.validator import INLINE_UNPACK_MAX, TooMuchToUnpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.clock import Clock
    from millstream.replica.append_service import AppendEntry, ClientEntry
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.ports import RunOnWorker, Unpacked
    from millstream.storage.log.validator import LogValidator
    from millstream.types import ReadableBuffer, Uuid


class LargeBatch(NamedTuple):
    """A batch that is left to a worker, and its place in the request."""

    place: int
    validator: LogValidator
    records: ReadableBuffer


class RecordInspector:
    """Inspects the compressed records of requests."""

    __slots__ = ("_clock", "_run", "_table")

    def __init__(self, table: PartitionTable, clock: Clock, run: RunOnWorker) -> None:
        self._table = table
        self._clock = clock
        self._run = run

    def inspect(
        self, entries: Sequence[ClientEntry]
    ) -> tuple[list[AppendEntry], deque[LargeBatch]]:
        """The entries, with compressed records inspected or refused, and what is left to do."""
        wall_ms = self._clock.wall_ms()
        inspected: list[AppendEntry] = list(entries)
        large: deque[LargeBatch] = deque()
        unpack_max = INLINE_UNPACK_MAX
        for place, (topic, index, records) in enumerate(entries):
            validator = self._validator(topic, index)
            if validator is None or records is None or not validator.takes_work(records):
                continue
            if not unpack_max:
                large.append(LargeBatch(place, validator, records))
                continue
            try:
                found = validator.inspect(records, wall_ms, unpack_max=unpack_max)
            except TooMuchToUnpack:
                unpack_max = 0
                large.append(LargeBatch(place, validator, records))
            except ApiError as error:
                # How much was unpacked before the fault was met is not known.
                unpack_max = 0
                inspected[place] = topic, index, error
            else:
                unpack_max -= found.unpacked_bytes
                inspected[place] = topic, index, found
        return inspected, large

    def inspect_large(
        self, entries: list[AppendEntry], large: deque[LargeBatch], done: Callable[[], None]
    ) -> None:
        """Inspect what was left, on a worker, and put it among the entries; then call `done`."""
        if not large:
            done()
            return
        place, validator, records = large.popleft()
        wall_ms = self._clock.wall_ms()

        def on_inspected(result: Unpacked) -> None:
            topic, index, _ = entries[place]
            entries[place] = topic, index, result
            self.inspect_large(entries, large, done)

        self._run(lambda: validator.inspect(records, wall_ms), on_inspected)

    def _validator(self, topic: str | Uuid, index: int) -> LogValidator | None:
        """What a partition demands of records; None if this broker does not lead it."""
        try:
            partition = self._table.find(topic, index)
        except ApiError:
            return None
        return partition.log.validator if partition.is_leader else None
