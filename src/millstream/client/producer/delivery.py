"""`Delivery`: the handle of one record that was sent, and `BatchDelivery`: that of a table.

`send()` returns one at once. It is a batch and an index, nothing more: nothing is allocated or
woken for a record until somebody waits for it, calls back, or asks. It works in threads
(`result()`) and in any event loop (`await`); a loop is woken once for all waits on one batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.client.producer.record import ProducedRange, RecordMetadata
from millstream.errors import OperationTimeout

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable, Generator, Sequence

    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.errors import MillstreamError


class BatchOutcome:
    """What became of the records of one batch: the part of a `ProducerBatch` that handles read."""

    __slots__ = (
        "base_offset",
        "error",
        "is_done",
        "log_append_time",
        "partition",
        "parts",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.is_done = False
        self.base_offset = -1
        self.log_append_time = -1
        self.error: MillstreamError | None = None
        self.parts: list[ProducerBatch] | None = None
        """What it was split into, if it was too large."""


class Delivery:
    """What becomes of one record. Looking at it is optional: `flush()` raises for what is lost."""

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def __repr__(self) -> str:
        state = "pending"
        if self.done():
            batch, index = self._batch.locate(self._index)
            error = batch.error_of(index)
            state = f"offset {self._metadata().offset}" if error is None else f"lost: {error!r}"
        return f"<Delivery to {self.topic}-{self.partition}, {state}>"

    @property
    def topic(self) -> str:
        """Where it goes."""
        return self._batch.topic

    @property
    def partition(self) -> int:
        """Which partition was chosen."""
        return self._batch.partition

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._batch.locate(self._index)[0].is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to `timeout` seconds and give the record's place, or raise why it was lost."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> MillstreamError | None:
        """Wait up to `timeout` seconds and give the reason if the record was lost."""
        self._batch.look(self._index)
        if not self.done() and not self._batch.wait(timeout):
            self._batch.look_away(self._index)
            raise OperationTimeout(
                f"the record to {self.topic}-{self.partition} is not acknowledged after "
                f"{timeout} s; it is still being sent"
            )
        batch, index = self._batch.locate(self._index)
        return batch.error_of(index)

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback(delivery)` on the producer's dispatcher thread once it is done."""
        self._batch.look(self._index)
        self._batch.call_back(callback, self)

    def observe(self, callback: Callable[[Delivery], object]) -> None:
        """As `add_done_callback`, for who only watches: a loss stays one that nobody has seen."""
        self._batch.call_back(callback, self)

    def outcome(self) -> RecordMetadata | MillstreamError:
        """What became of it, once it is done, without counting as having looked."""
        batch, index = self._batch.locate(self._index)
        return batch.error_of(index) or self._metadata()

    def mark_seen(self) -> None:
        """Somebody is going to be told: a loss is not one that nobody has looked at."""
        self._batch.look(self._index)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            self._batch.look(self._index)
            try:
                yield from until_done(self._batch)
            except BaseException:
                self._batch.look_away(self._index)
                raise
        return self.result(0)

    def _metadata(self) -> RecordMetadata:
        batch, index = self._batch.locate(self._index)
        offset = -1 if batch.base_offset < 0 else batch.base_offset + index
        timestamp = self._timestamp if batch.log_append_time < 0 else batch.log_append_time
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)


def tell_all(told: list[Any], on_error: Callable[[Any], object]) -> None:
    """Call functions of users, each of which is followed by the handle it gets, and forget both.

    An error in one must not keep the others from being called.
    """
    for function, delivery in zip(told[::2], told[1::2], strict=True):
        try:
            function(delivery)
        except Exception:
            on_error(function)
    told.clear()


class BatchDelivery:
    """What becomes of the rows of one table."""

    __slots__ = ("_ranges", "topic")

    def __init__(self, topic: str, ranges: Sequence[tuple[ProducerBatch, int, int]]) -> None:
        """`ranges`: in which batch rows are, the index of the first, and how many."""
        self.topic = topic
        self._ranges = ranges

    def __len__(self) -> int:
        return sum(count for _, _, count in self._ranges)

    def __repr__(self) -> str:
        state = "sending"
        if self.done():
            is_lost = any(each.error is not None for each in self._ended())
            state = "failed" if is_lost else "written"
        return f"<BatchDelivery of {len(self)} rows to {self.topic!r}: {state}>"

    def done(self) -> bool:
        """Whether it is known what became of every row."""
        return all(batch.is_done for batch, _, _ in self._ranges)

    def result(self, timeout: float | None = None) -> list[ProducedRange]:
        """Wait up to `timeout` seconds for all rows; where they are, or raise the first loss.

        Rows that follow each other in a partition are one range, however many requests took them.
        The time is for each of the batches, which end at about the same time.
        """
        self._wait(timeout)
        return self._places()

    def exception(self, timeout: float | None = None) -> MillstreamError | None:
        """Wait for all rows, and give the reason if one was lost."""
        self._wait(timeout)
        return self._first_error()

    def _wait(self, timeout: float | None) -> None:
        for batch, _, _ in self._ranges:
            if not batch.wait(timeout):
                raise OperationTimeout(
                    f"rows to {batch.topic}-{batch.partition} are not acknowledged after "
                    f"{timeout} s; they are still being sent"
                )

    def __await__(self) -> Generator[Any, None, list[ProducedRange]]:
        for batch, _, _ in self._ranges:
            if not batch.is_done:
                yield from until_done(batch)
        return self._places()

    def _first_error(self) -> MillstreamError | None:
        errors = [
            error
            for batch, first, count in self._ranges
            for index in range(first, first + count)
            if (error := self._error(batch, index)) is not None
        ]
        return errors[0] if errors else None

    def _error(self, batch: ProducerBatch, index: int) -> MillstreamError | None:
        batch.look(index)
        ended, index = batch.locate(index)
        return ended.error_of(index)

    def _places(self) -> list[ProducedRange]:
        if any(each.error is not None for each in self._ended()):
            error = self._first_error()
            assert error is not None
            raise error
        places: list[ProducedRange] = []
        for batch, first, count in self._ranges:
            places += _places_in(batch, first, count)
        return _joined(places)

    def _ended(self) -> list[ProducerBatch]:
        return [
            batch.locate(i)[0] for batch, i, count in self._ranges for i in _ends(batch, i, count)
        ]


def _ends(batch: ProducerBatch, first: int, count: int) -> range:
    """Indexes that stand for all of a range: a batch that was not split ends as one."""
    return range(first, first + (1 if batch.parts is None else count))


def _places_in(batch: ProducerBatch, first: int, count: int) -> list[ProducedRange]:
    if batch.parts is not None:
        boundary = min(max(batch.parts[1].first_index, first), first + count)
        left = _places_in(batch.parts[0], first, boundary - first) if boundary > first else []
        rest = first + count - boundary
        start = boundary - batch.parts[1].first_index
        return left + (_places_in(batch.parts[1], start, rest) if rest else [])
    offset = -1 if batch.base_offset < 0 else batch.base_offset + first
    return [ProducedRange(batch.topic, batch.partition, offset, count)]


def _joined(places: list[ProducedRange]) -> list[ProducedRange]:
    """The same with one range for all that follow each other in a partition."""
    joined: list[ProducedRange] = []
    last_of: dict[int, int] = {}
    for each in places:
        index = last_of.get(each.partition)
        if index is not None and _follows(joined[index], each):
            count = joined[index].record_count + each.record_count
            joined[index] = joined[index]._replace(record_count=count)
        else:
            last_of[each.partition] = len(joined)
            joined.append(each)
    return joined


def _follows(before: ProducedRange, after: ProducedRange) -> bool:
    if after.first_offset < 0 or before.first_offset < 0:
        return after.first_offset == before.first_offset  # With acks=0 no offset is known.
    return after.first_offset == before.first_offset + before.record_count


class _LoopWakeup:
    """All waits of one event loop for one batch: they end with one wake-up of the loop."""

    __slots__ = ("_futures", "_loop")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: list[Future[None]] = []

    def add(self) -> Future[None]:
        future = self._loop.create_future()
        self._futures.append(future)
        return future

    def __call__(self) -> None:
        """The batch has ended; on the I/O thread."""
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            return  # The loop was closed: nobody waits in it any more.

    def _resolve(self) -> None:
        for future in self._futures:
            if not future.done():
                future.set_result(None)


def until_done(batch: ProducerBatch) -> Generator[Any, None, None]:
    """Wait in the running event loop for the end of a batch."""
    import asyncio

    loop = asyncio.get_running_loop()
    if batch.wakeups is None:
        batch.wakeups = {}
    wakeup = batch.wakeups.get(loop)
    if wakeup is None:
        wakeup = batch.wakeups[loop] = _LoopWakeup(loop)
        if not batch.listen(wakeup):
            return
    future = wakeup.add()
    # The end may have come before the future was added, and passed it by.
    if not batch.is_done:
        yield from future
