"""`Record`: one record as an application sees it, in plain Python."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    from millstream.types import Headers

    _Fields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]

_fields = attrgetter("_offset", "_timestamp", "_key", "_value", "_headers")


class Record:
    """A record of a partition: where it is, when it is from, and what it says. Read-only."""

    # Private slots behind properties: half the price of slots that refuse to be set.
    __slots__ = ("_headers", "_key", "_offset", "_timestamp", "_value")
    __match_args__ = ("offset", "timestamp", "key", "value", "headers")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        self._offset = offset
        self._timestamp = timestamp
        self._key = key
        self._value = value
        self._headers = headers

    @property
    def offset(self) -> int:
        """Its number in the partition."""
        return self._offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970; -1 when the writer gave none."""
        return self._timestamp

    @property
    def key(self) -> bytes | None:
        """What partitioning and compaction go by."""
        return self._key

    @property
    def value(self) -> bytes | None:
        """What it says; None in a compacted topic deletes the key."""
        return self._value

    @property
    def headers(self) -> Headers:
        """Pairs in the order they were written; a key may occur more than once."""
        return self._headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return bool(_fields(self) == _fields(other))

    def __hash__(self) -> int:
        return hash(_fields(self))

    def __repr__(self) -> str:
        return (
            f"Record(offset={self._offset!r}, timestamp={self._timestamp!r}, key={self._key!r}, "
            f"value={self._value!r}, headers={self._headers!r})"
        )

    def __reduce__(self) -> tuple[type[Record], _Fields]:
        return Record, _fields(self)
