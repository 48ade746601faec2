"""`read_topic`: a bounded part of a topic as an Arrow stream, for tables and data frames.

It reads with a consumer without a group, from the offsets or times asked for to the end of each
partition as it was at the start. Nothing is committed.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from millstream.client.arguments import to_timestamp
from millstream.client.config import settings_from_kwargs
from millstream.client.consumer.arrow import ArrowBatch, imported, to_pandas
from millstream.client.consumer.bounds import Ends, Span, bound_of, offset_of
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.session import ARROW_BYTES, ConsumerSession
from millstream.client.consumer.starting_point import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    AtOffset,
)
from millstream.client.consumer.steps import perform
from millstream.errors import InvalidArgument, OperationTimeout
from millstream.records.arrow import columns_by_number
from millstream.records.kernel import ArrowRecordsBuilder, ArrowStream
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self, Unpack

    from millstream.client.consumer.arrow import DtypeBackend
    from millstream.client.consumer.bounds import Bound, Bounds
    from millstream.client.consumer.config import ConsumerSettings
    from millstream.records.kernel import ArrowRecords

_FOR_GROUPS: Final = frozenset({"group_id", "auto_offset_reset", "interceptors"})
_FOR_RECORDS: Final = frozenset({"key_deserializer", "value_deserializer", "max_poll_records"})


def read_topic(
    bootstrap: str | Sequence[str],
    topic: str,
    *,
    start: Bounds = "earliest",
    end: Bounds = "latest",
    start_time: datetime | int | None = None,
    end_time: datetime | int | None = None,
    partitions: Collection[int] | None = None,
    columns: Sequence[str] | None = None,
    timeout: float = 30.0,
    **settings: Unpack[ConsumerSettings],
) -> TopicRead:
    """Read a topic from `start` up to and without `end`, as Arrow columns.

    Both are an offset, "earliest", "latest", an aware datetime, or a mapping of partitions to
    those; `start_time` and `end_time` take milliseconds since 1970 as well. A time means the first
    record that is not older. What is written after this call is not read. `isolation_level` and the
    other settings are those of a Consumer; `timeout` is how long nothing may arrive.

    >>> read_topic("localhost:9092", "orders", columns=["key", "value"]).to_polars()
    """
    _refuse(_FOR_GROUPS & settings.keys(), "it reads alone")
    _refuse(_FOR_RECORDS & settings.keys(), "it gives columns of bytes, not records")
    if columns is not None:
        columns_by_number(columns)
    given = {**settings, "bootstrap_servers": bootstrap, "auto_offset_reset": "none"}
    config = settings_from_kwargs(ConsumerConfig, given)
    read = TopicRead(ConsumerSession(config), topic, columns, timeout)
    try:
        read.begin(
            _one_of(start, start_time, "start", "earliest"),
            _one_of(end, end_time, "end", "latest"),
            partitions,
        )
    except BaseException:
        read.close()
        raise
    return read


def _refuse(settings: Collection[str], reason: str) -> None:
    if settings:
        raise InvalidArgument(f"read_topic has no {', '.join(sorted(settings))}: {reason}")


def _one_of(bounds: Bounds, time: datetime | int | None, name: str, default: Bound) -> Bounds:
    if time is None:
        return bounds
    if bounds != default:
        raise InvalidArgument(f"give {name} or {name}_time, not both")
    from datetime import datetime

    return datetime.fromtimestamp(to_timestamp(time) / 1000, UTC)


class TopicRead:
    """A part of a topic that is read as it is taken, once.

    It is an Arrow stream (`__arrow_c_stream__`), an iterator of ArrowBatch, and knows how to become
    a table or a data frame. Reading to the end closes it; so do `close` and a `with` block.
    """

    def __init__(
        self,
        session: ConsumerSession,
        topic: str,
        columns: Sequence[str] | None,
        timeout_s: float,
    ) -> None:
        """For `read_topic` only."""
        self._session = session
        self._builder = ArrowRecordsBuilder(columns)
        self._columns = columns
        self._timeout_s = timeout_s
        self._is_taken = False
        self.topic = topic
        self.spans: dict[int, Span] = {}
        """What is read of each partition: from the first offset up to and without the second."""

    def begin(self, start: Bounds, end: Bounds, partitions: Collection[int] | None) -> None:
        """Find the offsets, and have the first records fetched. For `read_topic` only."""
        numbers = self._partitions(partitions)
        spans = self._find_spans(numbers, start, end)
        self.spans = {each.partition: span for each, span in spans.items()}
        wanted = {each: span for each, span in spans.items() if span.start < span.end}
        self._left = {self._session.to_wire(each): span.end for each, span in wanted.items()}
        self._session.assign_at(
            {each: AtOffset(span.start, until=span.end) for each, span in wanted.items()}
        )

    def _partitions(self, wanted: Collection[int] | None) -> list[int]:
        count = perform(
            self._session.partition_count(self.topic, self._timeout_s), self._session.buffer
        )
        if wanted is None:
            return list(range(count))
        missing = sorted(each for each in wanted if not 0 <= each < count)
        if missing:
            raise InvalidArgument(
                f"partitions={sorted(wanted)}: {self.topic!r} has {count} partitions, from 0 on"
            )
        return sorted(set(wanted))

    def _find_spans(
        self, numbers: list[int], start: Bounds, end: Bounds
    ) -> dict[TopicPartition, Span]:
        partitions = [TopicPartition(self.topic, each) for each in numbers]
        starts = {each: bound_of(start, each.partition, "start", "earliest") for each in partitions}
        stops = {each: bound_of(end, each.partition, "end", "latest") for each in partitions}
        first = self._lookup(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        last = self._lookup(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        found_starts, found_stops = self._lookup_times(starts), self._lookup_times(stops)
        spans = {}
        for each in partitions:
            ends = Ends(_offset(first[each]), _offset(last[each]))
            at = offset_of(starts[each], each, ends, found_starts.get(each), "start")
            stop = offset_of(stops[each], each, ends, found_stops.get(each), "end")
            spans[each] = Span(at, stop)
        return spans

    def _lookup(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        if not times:
            return {}
        steps = self._session.find_offsets(times, self._timeout_s)
        return perform(steps, self._session.buffer)

    def _lookup_times(self, bounds: dict[TopicPartition, Bound]) -> dict[TopicPartition, Any]:
        return self._lookup(
            {
                each: to_timestamp(bound)
                for each, bound in bounds.items()
                if not isinstance(bound, int | str)
            }
        )

    # ---- reading ----

    def __iter__(self) -> Iterator[ArrowBatch]:
        for records in self._chunks():
            yield ArrowBatch(self.topic, records)

    def _chunks(self) -> Iterator[ArrowRecords]:
        if self._is_taken:
            raise InvalidArgument("this has been read already; call read_topic again")
        self._is_taken = True
        try:
            while self._left:
                steps = self._session.poll_with(self._timeout_s, self._take)
                taken = perform(steps, self._session.buffer)
                if not taken:
                    raise self._nothing_came()
                self._drop_finished()
                if self._builder.row_count:
                    yield self._builder.finish()
        finally:
            self.close()

    def _take(self) -> bool:
        """Whether something happened: rows, or a partition that has come to its end."""
        self._builder.expect(min(self._session.buffer.byte_count, ARROW_BYTES))
        self._session.buffer.take_arrow(self._builder, ARROW_BYTES, self._left)
        return bool(self._builder.row_count) or any(map(self._is_finished, self._left))

    def _is_finished(self, partition: TopicPartition) -> bool:
        position = self._session.buffer.position(partition)
        return position is not None and position >= self._left[partition]

    def _drop_finished(self) -> None:
        finished = [each for each in self._left if self._is_finished(each)]
        if finished:
            for partition in finished:
                del self._left[partition]
            self._session.unassign(finished)

    def _nothing_came(self) -> OperationTimeout:
        names = ", ".join(f"{each} up to {end}" for each, end in sorted(self._left.items()))
        return OperationTimeout(
            f"nothing arrived for {self._timeout_s:g} s; still to be read: {names}"
        )

    # ---- results ----

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an "arrow_array_stream" capsule, read as they are taken."""
        return self._stream().__arrow_c_stream__(requested_schema)

    def _stream(self, *, with_views: bool = False) -> ArrowStream:
        return ArrowStream(self._chunks(), self._columns, with_views)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        return self._read_all(imported("pyarrow").table)

    def to_pandas(self, *, dtype_backend: DtypeBackend = "pyarrow") -> Any:
        """A `pandas.DataFrame`; see `ArrowBatch.to_pandas`."""
        return to_pandas(self.to_arrow(), dtype_backend)

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        return self._read_all(imported("polars").DataFrame, with_views=True)

    def _read_all(self, make: Any, *, with_views: bool = False) -> Any:
        stream = self._stream(with_views=with_views)
        try:
            return make(stream)
        except Exception as error:
            # Arrow passes on the words of an error; here is the error itself.
            if stream.error is not None:
                raise stream.error from error
            raise

    # ---- the end ----

    def close(self) -> None:
        """Read no more; again is fine."""
        perform(self._session.close(5.0, processed_only=True), self._session.buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TopicRead({self.topic!r}, spans={self.spans})"


def _offset(found: Any) -> int:
    return 0 if found is None else int(found.offset)
