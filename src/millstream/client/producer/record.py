"""What goes into a producer and what comes back: a record, its headers and time, and its place.

Both APIs and the interceptors use these. Values only; nothing here knows batches or brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from millstream.types import Headers, ReadableBuffer

HeaderValue: TypeAlias = "bytes | bytearray | memoryview | str | None"
HeadersLike: TypeAlias = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]] | None
"""Headers as a caller may give them: a mapping, or pairs where a key may come more than once."""

Timestamp: TypeAlias = int | datetime | None
"""Milliseconds since 1970, a time with its zone, or None for "now"."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record on its way into the producer, before it is serialized: interceptors see these."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    """-1 if the broker did not say: with acks=0, or for a batch that it knew already."""
    timestamp: int
    """Milliseconds since 1970: the record's own, or the broker's if the topic wants that."""


class ProducedRange(NamedTuple):
    """Where some rows of a table were written: as many records from `first_offset` on."""

    topic: str
    partition: int
    first_offset: int
    record_count: int


def normal_headers(headers: HeadersLike) -> Headers:
    """Headers as a tuple of (str, bytes or None); InvalidArgument for what cannot be one."""
    if not headers:
        return ()
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple((_header_key(key), _header_value(key, value)) for key, value in pairs)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(
            "headers must be a mapping or pairs of a name and its value, such as "
            f"{{'trace': b'1'}}; not {headers!r:.100}"
        ) from error


def _header_key(key: object) -> str:
    if not isinstance(key, str):
        raise InvalidArgument(f"the name of a header must be a str, not {type(key).__name__}")
    return key


def _header_value(key: str, value: object) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(
        f"the header {key!r} must have bytes, a str or None, not {type(value).__name__}"
    )


def timestamp_ms(timestamp: object) -> int:
    """Milliseconds since 1970; InvalidArgument for a time before that or without a zone."""
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise InvalidArgument(
                f"the timestamp {timestamp} has no time zone; give it one, or milliseconds"
            )
        return int(timestamp.timestamp() * 1000)
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise InvalidArgument(
            "a timestamp is milliseconds since 1970 as an int, or a datetime with a time zone; "
            f"not {timestamp!r}"
        )
    if timestamp < 0:
        raise InvalidArgument(f"the timestamp {timestamp} is negative")
    return timestamp


def field_size(field: ReadableBuffer | None) -> int:
    """How many bytes a serialized key or value has."""
    if field is None:
        return 0
    return len(field) if type(field) is bytes else memoryview(field).nbytes
