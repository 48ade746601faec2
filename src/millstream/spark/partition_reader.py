"""A task's work: one range of offsets to Arrow record batches, with the wanted columns only.

The readers call `read_range` in Spark's Python workers. Each worker keeps its consumer for the next
task, for connecting costs more than many a micro-batch. Rows are never Python objects here. It
plans nothing and commits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.client.config import settings_from_dotted
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.session import ConsumerSession
from millstream.client.consumer.starting_point import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    AtOffset,
)
from millstream.client.consumer.steps import perform
from millstream.errors import LogTruncation, OffsetOutOfRangeWithoutReset, OperationTimeout
from millstream.spark.arrow_rows import ArrowRows
from millstream.spark.data_loss import deleted, report_loss, truncated
from millstream.spark.worker_garbage import freeze_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from millstream.spark.columns import Columns
    from millstream.spark.filters import RowFilter
    from millstream.spark.planning import OffsetRange

CHUNK_BYTES: Final = 1 << 20
"""How much of keys, values and headers one record batch has, about."""

_READING: Final = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}
_READING_DEFAULTS: Final = {
    # A task reads one partition, so the limit of a partition is the limit of an answer.
    "max.partition.fetch.bytes": str(4 << 20),
    "millstream.prefetch.bytes": str(16 << 20),
}
_KEPT_MAX: Final = 4

_kept: Final[list[tuple[object, ConsumerSession]]] = []


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every task of a read needs to know; it travels to the executors."""

    client: Mapping[str, str]
    """Settings of the consumer, by Kafka's names."""
    columns: Columns
    rows: RowFilter
    poll_timeout_s: float
    fail_on_data_loss: bool


def read_range(wanted: OffsetRange, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order."""
    freeze_once()
    rows = ArrowRows(wanted.topic, plan.columns, plan.rows)
    session = _take_session(plan.client)
    is_sound = False
    try:
        for _ in _RangeRead(session, wanted, plan, rows).chunks():
            batch = rows.finish()
            if batch is not None and batch.num_rows:
                yield batch
        is_sound = True
    except GeneratorExit:
        is_sound = True  # Spark has rows enough.
        raise
    finally:
        _give_back(plan.client, session, is_sound=is_sound)


class _RangeRead:
    """One range under way."""

    def __init__(
        self, session: ConsumerSession, wanted: OffsetRange, plan: ReadPlan, rows: ArrowRows
    ) -> None:
        self._session = session
        self._buffer = session.buffer
        self._wanted = wanted
        self._plan = plan
        self._rows = rows
        self._partition = session.to_wire(wanted.topic_partition)
        self._ends = {self._partition: wanted.end}
        self._position = wanted.start

    def chunks(self) -> Iterator[None]:
        """Fill the rows, again and again until the range is read."""
        wanted = self._wanted
        start = AtOffset(wanted.start, until=wanted.end)
        self._session.assign_at({wanted.topic_partition: start})
        try:
            while self._position < wanted.end:
                self._fill()
                if self._rows.row_count:
                    yield
        finally:
            self._session.unassign([self._partition])

    def _fill(self) -> None:
        steps = self._session.poll_with(self._plan.poll_timeout_s, self._take)
        try:
            if not perform(steps, self._buffer):
                raise OperationTimeout(
                    f"{self._wanted}: nothing arrived for {self._plan.poll_timeout_s:g} s, at "
                    f"offset {self._position}; kafkaConsumer.pollTimeoutMs sets how long to wait"
                )
        except (OffsetOutOfRangeWithoutReset, LogTruncation):
            self._go_on_behind_the_gap()

    def _take(self) -> bool:
        """Whether something happened: rows, or a gap that was passed over."""
        before = self._position
        self._buffer.take_arrow(self._rows.builder, CHUNK_BYTES, self._ends)
        self._position = self._buffer.position(self._partition) or before
        return self._position > before

    def _go_on_behind_the_gap(self) -> None:
        """Records were deleted since the read was planned: fail, or leave them out."""
        where = self._wanted.topic_partition
        is_fatal = self._plan.fail_on_data_loss
        first = self._look_up(EARLIEST_TIMESTAMP)
        if first <= self._position:
            last = self._look_up(LATEST_TIMESTAMP)
            report_loss(truncated(where, self._position, last), is_fatal=is_fatal)
            self._position = self._wanted.end
            return
        end = self._wanted.end
        report_loss(deleted(where, self._position, end, first), is_fatal=is_fatal)
        self._position = min(first, end)
        if self._position < end:
            self._session.seek(where, AtOffset(self._position, until=end))

    def _look_up(self, which: int) -> int:
        where = self._wanted.topic_partition
        steps = self._session.find_offsets({where: which}, self._plan.poll_timeout_s)
        found = perform(steps, self._buffer)[where]
        return 0 if found is None else found.offset


def hang_up() -> None:
    """Close what this process has kept for the next task."""
    while _kept:
        _close(_kept.pop()[1])


def _take_session(client: Mapping[str, str]) -> ConsumerSession:
    """The worker's consumer with these settings, or a new one.

    Whoever has one has it alone: a second read at the same time gets its own.
    """
    wanted = dict(client)
    for index, (settings, session) in enumerate(_kept):
        if settings == wanted:
            del _kept[index]
            if _is_usable(session):
                return session
            break
    given: dict[str, Any] = {**_READING_DEFAULTS, **client, **_READING}
    return ConsumerSession(settings_from_dotted(ConsumerConfig, given))


def _is_usable(session: ConsumerSession) -> bool:
    """Not after a fork, which Spark's daemon does for each worker, and not after a failure."""
    try:
        session.check_usable()
    except Exception:
        return False
    return True


def _give_back(client: Mapping[str, str], session: ConsumerSession, *, is_sound: bool) -> None:
    if is_sound:
        _kept.append((dict(client), session))
    else:
        _close(session)
    if len(_kept) > _KEPT_MAX:
        _close(_kept.pop(0)[1])


def _close(session: ConsumerSession) -> None:
    perform(session.close(5.0, processed_only=True), session.buffer)
