"""`ConsumerRecord`: one record as a consumer gives it to an application, in plain Python."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Generic

from millstream.types import K, V

if TYPE_CHECKING:
    from millstream.types import Headers


class ConsumerRecord(Generic[K, V]):
    """One record as an application gets it: where it is, when it is from, what it says."""

    # Private slots behind properties: half the price of slots that refuse to be set.
    __slots__ = (
        "_headers",
        "_key",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_timestamp_type",
        "_topic",
        "_value",
    )
    __match_args__ = (
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        "timestamp_type",
        "leader_epoch",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: K | None,
        value: V | None,
        headers: Headers = (),
        timestamp_type: int = 0,
        leader_epoch: int = -1,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._timestamp = timestamp
        self._key = key
        self._value = value
        self._headers = headers
        self._timestamp_type = timestamp_type
        self._leader_epoch = leader_epoch

    @property
    def topic(self) -> str:
        """The topic it was read from."""
        return self._topic

    @property
    def partition(self) -> int:
        """The number of its partition in the topic."""
        return self._partition

    @property
    def offset(self) -> int:
        """Its number in the partition."""
        return self._offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970; -1 when the writer gave none."""
        return self._timestamp

    @property
    def key(self) -> K | None:
        """What partitioning and compaction go by; bytes or what the deserializer made of them."""
        return self._key

    @property
    def value(self) -> V | None:
        """What it says; bytes or what the deserializer made of them."""
        return self._value

    @property
    def headers(self) -> Headers:
        """Pairs of a key and a value, in order."""
        return self._headers

    @property
    def timestamp_type(self) -> int:
        """Who set the timestamp: 0 the producer, 1 the broker (see `TimestampType`)."""
        return self._timestamp_type

    @property
    def leader_epoch(self) -> int:
        """Which term of leadership wrote it; -1 in old formats."""
        return self._leader_epoch

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return bool(_fields(self) == _fields(other))

    def __hash__(self) -> int:
        return hash(_fields(self))

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self._topic!r}, partition={self._partition}, "
            f"offset={self._offset}, timestamp={self._timestamp}, key={self._key!r}, "
            f"value={self._value!r}, headers={self._headers!r})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return ConsumerRecord, _fields(self)


_fields = attrgetter(*(f"_{name}" for name in ConsumerRecord.__match_args__))
