"""`Consumer`: reads topics, blocking.

It performs the steps of `ConsumerSession` on the thread that calls. Everything that asks brokers
happens on the session's I/O thread, also while the application is busy.
"""

from __future__ import annotations

from itertools import chain
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar, overload

from millstream.client.arguments import as_mapping, as_partitions, to_timestamp
from millstream.client.consumer.consumer_api import ConsumerApi
from millstream.client.consumer.consuming import BlockingUse
from millstream.client.consumer.starting_point import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.types import K, V

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Unpack

    from millstream.client.consumer.arrow import ArrowBatch
    from millstream.client.consumer.config import ConsumerSettings
    from millstream.client.consumer.offset_lookup import FoundOffset
    from millstream.client.consumer.session import Offsets
    from millstream.client.groups import OffsetAndMetadata
    from millstream.client.serialization.base import DeserializerOf
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import TopicPartition

T = TypeVar("T")


class Consumer(BlockingUse, ConsumerApi[K, V]):
    """Reads records of topics.

    >>> with Consumer("localhost:9092", "orders", group_id="billing") as consumer:
    ...     for record in consumer:
    ...         print(record.value)

    Durations are seconds. Closing commits what was read, if `enable_auto_commit` is on, and leaves
    the group; a `with` block that ends with an exception commits only what earlier polls gave.
    """

    @overload
    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *topics: str,
        key_deserializer: DeserializerOf[K] | None = None,
        value_deserializer: DeserializerOf[V] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[Any, Any],
        bootstrap: str | Sequence[str],
        *topics: str,
        key_deserializer: DeserializerOf[Any] | str | None = None,
        value_deserializer: DeserializerOf[Any] | str | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    def __init__(self, bootstrap: str | Sequence[str], *topics: str, **settings: Any) -> None:
        """`topics` are subscribed to; see ConsumerSettings for the settings."""
        self._open(bootstrap, topics, settings)

    def _prepare(self) -> None:
        super()._prepare()
        self._records: list[ConsumerRecord[K, V]] = []
        self._iterator: Iterator[ConsumerRecord[K, V]] = iter(())

    # ---- records ----

    def poll(
        self, timeout: float | None = 1.0, *, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """The next records: at once what is here, else what arrives within `timeout` seconds.

        An empty list when nothing came; None waits for ever. In order within each partition.
        Call it at least every `max_poll_interval`: rebalances happen in it.
        """
        count = self._session.record_count(max_records)
        if length_hint(self._iterator):
            self._give_back()
        return self._perform(self._session.poll(timeout, count))

    def poll_arrow(
        self, timeout: float | None = 1.0, *, columns: Sequence[str] | None = None
    ) -> ArrowBatch | None:
        """The next records of one topic, as Arrow columns; None when nothing came.

        Columns are key, value, headers, timestamp, offset and partition, or fewer. Deserializers
        and interceptors are for records, not for columns.
        """
        self._give_back()
        return self._perform(self._session.poll_arrow(timeout, columns))

    def batches(
        self, timeout: float | None = None, *, max_records: int | None = None
    ) -> Iterator[list[ConsumerRecord[K, V]]]:
        """Lists of records, each of one partition; ends when nothing came for `timeout`."""
        count = self._session.record_count(max_records)
        self._give_back()
        while records := self._perform(self._session.poll_one_partition(timeout, count)):
            yield records
            self._give_back()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Every record, waiting for the next for ever; a loop that was left can be taken up again.

        What the loop has not got to counts as unread: commits leave it out.
        """
        self._session.unread = self._unread
        # In C from list to list: a record costs what a record of a list costs.
        return chain.from_iterable(self._chunks())

    def _chunks(self) -> Iterator[Iterator[ConsumerRecord[K, V]]]:
        while True:
            if not length_hint(self._iterator):
                self._records = []
                self._records = self.poll(None)
                self._iterator = iter(self._records)
            yield self._iterator

    def _unread(self) -> list[ConsumerRecord[K, V]]:
        left = length_hint(self._iterator)
        return self._records[-left:] if left else []

    def _take_unread(self) -> list[ConsumerRecord[K, V]]:
        unread = self._unread()
        if unread:
            # The loop's iterator is at its end when its list is.
            del self._records[-len(unread) :]
        return unread

    # ---- where ----

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record of a partition; waits until it is known."""
        return self._perform(self._session.position(partition, self._session.timeout_s(timeout)))

    def lag(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """How many offsets the end of a partition is ahead of the position."""
        return self._perform(self._session.lag(partition, self._session.timeout_s(timeout)))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The partitions of a topic, as `assign` takes them; an error if there is no such topic."""
        timeout_s = self._session.timeout_s(timeout)
        return self._perform(self._session.partitions_for(topic, timeout_s))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, datetime | int], timeout: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record of each partition that is not older; None where there is none."""
        given = as_mapping(times, "a time")
        wanted = {partition: to_timestamp(time) for partition, time in given.items()}
        return self._perform(self._session.find_offsets(wanted, self._session.timeout_s(timeout)))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition that is still there."""
        return self._ends(partitions, EARLIEST_TIMESTAMP, timeout)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will have.

        With read_committed, the first offset of the oldest open transaction.
        """
        return self._ends(partitions, LATEST_TIMESTAMP, timeout)

    def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        times = dict.fromkeys(as_partitions(partitions), which)
        found = self._perform(self._session.find_offsets(times, self._session.timeout_s(timeout)))
        return {each: 0 if at is None else at.offset for each, at in found.items()}

    # ---- the group ----

    def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Commit offsets, or everything that was read, and wait until that is done.

        CommitFailed if the group has given the partitions to another member meanwhile.
        """
        self._perform(self._session.commit(offsets, self._session.timeout_s(timeout)))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has nothing."""
        return self._perform(self._session.committed(partitions, self._session.timeout_s(timeout)))

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Read nothing any more; a member leaves its group."""
        self._give_back()
        self._perform(self._session.unsubscribe(self._session.timeout_s(timeout)))

    # ---- the end ----

    def close(self, timeout: float | None = 30.0) -> None:
        """Commit what was read, if that is automatic, leave the group, end the thread.

        Again is fine.
        """
        self._close(timeout, processed_only=False)

    def _close(self, timeout: float | None, *, processed_only: bool) -> None:
        seconds = self._session.timeout_s(timeout)
        self._perform_last(self._session.close(seconds, processed_only=processed_only))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(30.0, processed_only=exc is not None)
