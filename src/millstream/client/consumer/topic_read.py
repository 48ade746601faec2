"""What `read_topic` returns: a bounded part of a topic that becomes a table or a data frame.

`TopicRead` blocks, `AsyncTopicRead` is awaited. Both are made by a reader (see `read_topic`) and
read as they are taken, once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from millstream.client.consumer.arrow import ArrowBatch, imported, to_pandas
from millstream.client.consumer.range_reading import RangeReading
from millstream.client.consumer.steps import perform, perform_async
from millstream.client.serialization.columns import decode_table
from millstream.errors import InvalidArgument
from millstream.records.kernel import ArrowRecordsBuilder, ArrowStream

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from typing import Self

    from millstream.client.consumer.arrow import DtypeBackend
    from millstream.client.consumer.bounds import Span
    from millstream.client.consumer.session import ConsumerSession
    from millstream.client.serialization.columns import TableFormats
    from millstream.records.kernel import ArrowRecords
    from millstream.types import TopicPartition


class _Reading:
    """A part of a topic under way, apart from how its rows are waited for."""

    def __init__(
        self,
        session: ConsumerSession,
        topic: str,
        spans: Mapping[TopicPartition, Span],
        columns: Sequence[str] | None,
        timeout_s: float,
        formats: TableFormats,
    ) -> None:
        self._buffer = session.buffer
        self._columns = columns
        self._builder = ArrowRecordsBuilder(columns)
        self._reading = RangeReading(session, spans, self._builder, timeout_s=timeout_s)
        self._is_taken = False
        self._formats = formats
        self._has_types = formats["key_format"] is not None or formats["value_format"] is not None
        self.topic = topic
        self.spans = {each.partition: span for each, span in spans.items()}
        """What is read of each partition: from the first offset up to and without the second."""

    def _typed(self, table: Any) -> Any:
        """A table with the types that were asked for."""
        return decode_table(self.topic, table, **self._formats) if self._has_types else table

    def _refuse_types(self) -> None:
        if self._has_types:
            raise InvalidArgument(
                "types of columns are found in the whole: call to_arrow, to_pandas or to_polars, "
                "or read bytes in parts, without key_format and value_format"
            )

    def _take_once(self) -> None:
        if self._is_taken:
            raise InvalidArgument("this has been read already; call read_topic again")
        self._is_taken = True

    def _stream(self, chunks: Iterable[ArrowRecords], *, with_views: bool = False) -> ArrowStream:
        return ArrowStream(iter(chunks), self._columns, with_views)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, spans={self.spans})"


class TopicRead(_Reading):
    """A part of a topic that is read as it is taken, once.

    It is an Arrow stream (`__arrow_c_stream__`), an iterator of ArrowBatch, and knows how to become
    a table or a data frame. Reading to the end closes it; so do `close` and a `with` block.
    """

    def __init__(self, *arguments: Any, on_close: Callable[[], None] | None = None) -> None:
        """For readers only."""
        super().__init__(*arguments)
        self._on_close = on_close

    def __iter__(self) -> Iterator[ArrowBatch]:
        self._refuse_types()
        for records in self._chunks():
            yield ArrowBatch(self.topic, records)

    def _chunks(self) -> Iterator[ArrowRecords]:
        self._take_once()
        try:
            while not self._reading.is_done:
                perform(self._reading.fill(), self._buffer)
                if self._builder.row_count:
                    yield self._builder.finish()
        finally:
            self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an "arrow_array_stream" capsule, read as they are taken.

        With types for columns everything is read first.
        """
        if self._has_types:
            return self.to_arrow().__arrow_c_stream__(requested_schema)
        return self._stream(self._chunks()).__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        return self._typed(self._read_all(imported("pyarrow").table))

    def to_pandas(self, *, dtype_backend: DtypeBackend = "pyarrow") -> Any:
        """A `pandas.DataFrame`; see `ArrowBatch.to_pandas`."""
        return to_pandas(self.to_arrow(), dtype_backend)

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        if self._has_types:
            return imported("polars").from_arrow(self.to_arrow())
        return self._read_all(imported("polars").DataFrame, with_views=True)

    def _read_all(self, make: Any, *, with_views: bool = False) -> Any:
        stream = self._stream(self._chunks(), with_views=with_views)
        try:
            return make(stream)
        except Exception as error:
            # Arrow passes on the words of an error; here is the error itself.
            if stream.error is not None:
                raise stream.error from error
            raise

    def close(self) -> None:
        """Read no more; again is fine."""
        self._reading.end()
        if self._on_close is not None:
            self._on_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTopicRead(_Reading):
    """A part of a topic that is read as it is taken, once: the asyncio version of `TopicRead`.

    `async for batch in read` gives ArrowBatch; `to_arrow` and its like are awaited. Reading to the
    end closes it; so do `close` and an `async with` block.
    """

    def __init__(
        self, *arguments: Any, on_close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """For readers only."""
        super().__init__(*arguments)
        self._on_close = on_close

    async def __aiter__(self) -> AsyncIterator[ArrowBatch]:
        self._refuse_types()
        async for records in self._chunks():
            yield ArrowBatch(self.topic, records)

    async def _chunks(self) -> AsyncIterator[ArrowRecords]:
        self._take_once()
        try:
            while not self._reading.is_done:
                await perform_async(self._reading.fill(), self._buffer)
                if self._builder.row_count:
                    yield self._builder.finish()
        finally:
            await self.close()

    async def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        table = imported("pyarrow").table
        read = table(self._stream([each async for each in self._chunks()]))
        return await asyncio.to_thread(self._typed, read) if self._has_types else read

    async def to_pandas(self, *, dtype_backend: DtypeBackend = "pyarrow") -> Any:
        """A `pandas.DataFrame`; see `ArrowBatch.to_pandas`."""
        return to_pandas(await self.to_arrow(), dtype_backend)

    async def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        if self._has_types:
            return imported("polars").from_arrow(await self.to_arrow())
        frame = imported("polars").DataFrame
        return frame(self._stream([each async for each in self._chunks()], with_views=True))

    async def close(self) -> None:
        """Read no more; again is fine."""
        self._reading.end()
        if self._on_close is not None:
            await self._on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
