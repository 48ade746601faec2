"""Bounded parts of topics as Arrow columns: `read_topic`, `TopicReader`, and both for asyncio.

A read goes from the offsets or times asked for to the end of each partition as it was at the start.
A reader is a consumer without a group: it shares nothing and commits nothing. `read_topic` makes
one for a single read; Spark's source keeps one for many.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from millstream.client.arguments import to_timestamp
from millstream.client.config import settings_from_dotted, settings_from_kwargs
from millstream.client.consumer.bounds import Span
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.range_reading import CHUNK_BYTES, RangeReading, find_spans
from millstream.client.consumer.session import ConsumerSession
from millstream.client.consumer.starting_point import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.client.consumer.steps import perform, perform_async
from millstream.client.consumer.topic_read import AsyncTopicRead, TopicRead
from millstream.errors import InvalidArgument, MillstreamError
from millstream.records.arrow import columns_by_number

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from typing import Self, TypedDict, Unpack

    from millstream.client.consumer.bounds import Bound, Bounds
    from millstream.client.consumer.config import ConsumerSettings
    from millstream.client.consumer.range_reading import RowBuilder
    from millstream.client.consumer.steps import Steps
    from millstream.client.serialization.columns import TableFormats
    from millstream.types import TopicPartition

    class ReadKeywords(TypedDict, total=False):
        """What to read of a topic; see `read_topic`."""

        start: Bounds
        end: Bounds
        start_time: datetime | int | None
        end_time: datetime | int | None
        partitions: Collection[int] | None
        columns: Sequence[str] | None
        timeout: float
        key_format: Any
        value_format: Any
        value_schema: Any

    class ReadTopicKeywords(ReadKeywords, ConsumerSettings, total=False):
        """That, and the settings of a Consumer."""


_FOR_GROUPS: Final = frozenset({"group_id", "auto_offset_reset", "interceptors"})
_FOR_RECORDS: Final = frozenset({"key_deserializer", "value_deserializer", "max_poll_records"})
_CLOSE_S: Final = 5.0


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
    key_format: Any = None,
    value_format: Any = None,
    value_schema: Any = None,
    **settings: Unpack[ConsumerSettings],
) -> TopicRead:
    """Read a topic from `start` up to and without `end`, as Arrow columns.

    Both are an offset, "earliest", "latest", an aware datetime, or a mapping of partitions to
    those; `start_time` and `end_time` take milliseconds since 1970 as well. A time means the first
    record that is not older. What is written after this call is not read. `isolation_level` and the
    other settings are those of a Consumer; `timeout` is how long nothing may arrive.

    With `value_format` ("json", "avro", or a deserializer) the fields of values are columns with
    types in the place of `value`: those of `value_schema` (an Arrow schema or pairs of names and
    types; of Avro its own), or as they are found. `key_format` ("str", "int64", ...) types the key.

    >>> read_topic("localhost:9092", "orders", columns=["key", "value"]).to_polars()
    """
    wanted = _Wanted(
        start=start,
        end=end,
        start_time=start_time,
        end_time=end_time,
        partitions=partitions,
        columns=columns,
        timeout=timeout,
        key_format=key_format,
        value_format=value_format,
        value_schema=value_schema,
    )
    reader = TopicReader(bootstrap, **settings)
    try:
        return reader._read(topic, wanted, is_last=True)
    except BaseException:
        reader.close()
        raise


async def async_read_topic(
    bootstrap: str | Sequence[str], topic: str, **what: Unpack[ReadTopicKeywords]
) -> AsyncTopicRead:
    """The asyncio version of `read_topic`, with the same arguments.

    >>> frame = await (await async_read_topic("localhost:9092", "orders")).to_polars()
    """
    given: dict[str, Any] = dict(what)
    wanted = _Wanted(**{name: given.pop(name) for name in _WANTED_FIELDS & given.keys()})
    reader = AsyncTopicReader(bootstrap, **given)
    try:
        return await reader._read(topic, wanted, is_last=True)
    except BaseException:
        await reader.close()
        raise


@dataclass(kw_only=True)
class _Wanted:
    """What to read of a topic, checked; the fields are those of `ReadKeywords`."""

    start: Bounds = "earliest"
    end: Bounds = "latest"
    start_time: datetime | int | None = None
    end_time: datetime | int | None = None
    partitions: Collection[int] | None = None
    columns: Sequence[str] | None = None
    timeout: float = 30.0
    key_format: Any = None
    value_format: Any = None
    value_schema: Any = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            columns_by_number(self.columns)
        self.start = _one_of(self.start, self.start_time, "start", "earliest")
        self.end = _one_of(self.end, self.end_time, "end", "latest")

    @property
    def formats(self) -> TableFormats:
        """How columns get types."""
        return {
            "key_format": self.key_format,
            "value_format": self.value_format,
            "value_schema": self.value_schema,
        }


_WANTED_FIELDS: Final = {each.name for each in fields(_Wanted)}


class _Reader:
    """A consumer without a group that reads bounded parts, apart from how its caller waits."""

    def __init__(
        self, bootstrap: str | Sequence[str], **settings: Unpack[ConsumerSettings]
    ) -> None:
        """`isolation_level` and the other settings are those of a Consumer."""
        _refuse(_FOR_GROUPS & settings.keys(), "it reads alone")
        _refuse(_FOR_RECORDS & settings.keys(), "it gives columns of bytes, not records")
        given = {**settings, "bootstrap_servers": bootstrap, "auto_offset_reset": "none"}
        self._session = ConsumerSession(settings_from_kwargs(ConsumerConfig, given))

    @classmethod
    def from_config(cls, properties: Mapping[str, Any]) -> Self:
        """A reader from Kafka's own names: `{"bootstrap.servers": ...}`."""
        made = cls.__new__(cls)
        given = {**properties, "auto.offset.reset": "none", "enable.auto.commit": "false"}
        made._session = ConsumerSession(settings_from_dotted(ConsumerConfig, given))
        return made

    @property
    def is_usable(self) -> bool:
        """Whether reads can succeed: it is not closed, has not failed, and was not forked."""
        try:
            self._session.check_usable()
        except MillstreamError:
            return False
        return True

    def _spans(self, topic: str, wanted: _Wanted) -> Steps[dict[TopicPartition, Span]]:
        return find_spans(
            self._session, topic, wanted.start, wanted.end, wanted.partitions, wanted.timeout
        )


class TopicReader(_Reader):
    """Reads bounded parts of topics, one after the other over the same connections.

    >>> with TopicReader("localhost:9092") as reader:
    ...     orders = reader.read("orders", start_time=noon).to_arrow()
    ...     refunds = reader.read("refunds", columns=["value"]).to_arrow()
    """

    def read(self, topic: str, **what: Unpack[ReadKeywords]) -> TopicRead:
        """A part of a topic; what can be said of it is as in `read_topic`."""
        return self._read(topic, _Wanted(**what), is_last=False)

    def _read(self, topic: str, wanted: _Wanted, *, is_last: bool) -> TopicRead:
        spans = perform(self._spans(topic, wanted), self._session.buffer)
        on_close = self.close if is_last else None
        return TopicRead(
            self._session,
            topic,
            spans,
            wanted.columns,
            wanted.timeout,
            wanted.formats,
            on_close=on_close,
        )

    def read_range(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        builder: RowBuilder,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        timeout: float = 30.0,
    ) -> RangeRead:
        """The records of a partition from an offset up to and without another, in chunks.

        The rows go into the caller's builder; the caller takes them out after each `fill`.
        """
        reading = RangeReading(
            self._session,
            {partition: Span(start, end)},
            builder,
            chunk_bytes=chunk_bytes,
            timeout_s=timeout,
        )
        return RangeRead(self._session, reading, partition)

    def bounds(self, partition: TopicPartition, timeout: float = 30.0) -> Span:
        """The first offset of a partition that is still there, and the one after the last."""
        return Span(
            self._find(partition, EARLIEST_TIMESTAMP, timeout),
            self._find(partition, LATEST_TIMESTAMP, timeout),
        )

    def _find(self, partition: TopicPartition, which: int, timeout_s: float) -> int:
        steps = self._session.find_offsets({partition: which}, timeout_s)
        found = perform(steps, self._session.buffer)[partition]
        return 0 if found is None else found.offset

    def close(self) -> None:
        """End reads that are under way, and hang up; again is fine."""
        perform(self._session.close(_CLOSE_S, processed_only=True), self._session.buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RangeRead:
    """A range of one partition under way: `while read.fill(): ...`, or until enough was read."""

    def __init__(
        self, session: ConsumerSession, reading: RangeReading, partition: TopicPartition
    ) -> None:
        """For `TopicReader` only."""
        self._session = session
        self._reading = reading
        self._partition = partition

    @property
    def position(self) -> int:
        """The offset before which everything was read."""
        return self._reading.position(self._partition)

    def fill(self) -> bool:
        """Put the next rows into the builder; False if everything was read before.

        Raises OffsetOutOfRangeWithoutReset or LogTruncation where records are gone, after which
        `skip_to` may be called.
        """
        if self._reading.is_done:
            return False
        perform(self._reading.fill(), self._session.buffer)
        return True

    def skip_to(self, offset: int) -> None:
        """Leave out what lies before an offset."""
        self._reading.skip_to(self._partition, offset)

    def close(self) -> None:
        """Read no more; the reader can be used for other ranges. Again is fine."""
        self._reading.end()


class AsyncTopicReader(_Reader):
    """Reads bounded parts of topics in an event loop: the asyncio version of `TopicReader`.

    >>> async with AsyncTopicReader("localhost:9092") as reader:
    ...     orders = await (await reader.read("orders")).to_arrow()
    """

    async def read(self, topic: str, **what: Unpack[ReadKeywords]) -> AsyncTopicRead:
        """A part of a topic; what can be said of it is as in `read_topic`."""
        return await self._read(topic, _Wanted(**what), is_last=False)

    async def _read(self, topic: str, wanted: _Wanted, *, is_last: bool) -> AsyncTopicRead:
        spans = await perform_async(self._spans(topic, wanted), self._session.buffer)
        on_close = self.close if is_last else None
        return AsyncTopicRead(
            self._session,
            topic,
            spans,
            wanted.columns,
            wanted.timeout,
            wanted.formats,
            on_close=on_close,
        )

    async def close(self) -> None:
        """End reads that are under way, and hang up; again is fine."""
        await perform_async(
            self._session.close(_CLOSE_S, processed_only=True), self._session.buffer
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


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
