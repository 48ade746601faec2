"""`ShareRecord`: a record as a share consumer gives it, with how often it was given to somebody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from millstream.types import K, V

if TYPE_CHECKING:
    from millstream.records.kernel import ConsumerRecord
    from millstream.types import Headers


class ShareRecord(Generic[K, V]):
    """One record: where it is, when it is from, what it says, and how often it was delivered."""

    __slots__ = ("_delivery_count", "_key", "_record", "_value")
    __match_args__ = ("topic", "partition", "offset", "key", "value", "delivery_count")

    def __init__(
        self, record: ConsumerRecord[Any, Any], delivery_count: int, key: K | None, value: V | None
    ) -> None:
        """`key` and `value` are those of the record, deserialized."""
        self._record = record
        self._delivery_count = delivery_count
        self._key = key
        self._value = value

    @property
    def topic(self) -> str:
        """The topic it was read from."""
        return self._record.topic

    @property
    def partition(self) -> int:
        """The number of its partition in the topic."""
        return self._record.partition

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self._record.offset

    @property
    def timestamp(self) -> int:
        """When it was made, or written, in milliseconds since 1970."""
        return self._record.timestamp

    @property
    def timestamp_type(self) -> int:
        """0 if the producer set the timestamp, 1 if the broker did."""
        return self._record.timestamp_type

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of its batch."""
        return self._record.leader_epoch

    @property
    def key(self) -> K | None:
        """The key; None if it has none."""
        return self._key

    @property
    def value(self) -> V | None:
        """The value; None if it has none."""
        return self._value

    @property
    def headers(self) -> Headers:
        """The headers, in order."""
        return self._record.headers

    @property
    def delivery_count(self) -> int:
        """How often it was given to a member, this time included."""
        return self._delivery_count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShareRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"ShareRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"key={self.key!r}, value={self.value!r}, delivery_count={self.delivery_count})"
        )

    def _fields(self) -> tuple[object, ...]:
        return self._record, self._delivery_count, self._key, self._value
