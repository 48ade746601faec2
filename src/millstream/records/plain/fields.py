"""The values of a record on their way into bytes: what may be given, and how it is refused.

`BatchWriter` calls these for every value that is not of the simplest kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import TYPE_CHECKING, TypeAlias

from millstream.errors import MessageTooLarge
from millstream.records.layout import BATCH_SIZE_MAX
from millstream.records.plain.varint import encode_varint
from millstream.types import INT64_MAX, ReadableBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, SupportsIndex

HeadersLike: TypeAlias = (
    Mapping[str, ReadableBuffer | None] | Iterable[tuple[str, ReadableBuffer | None]] | None
)
"""What a caller may give as headers."""

INT64_MIN = -INT64_MAX - 1
NO_HEADERS = encode_varint(0)
NULL = encode_varint(-1)


def integer(name: str, value: object) -> int:
    """The value as an int; TypeError for what is none."""
    try:
        return index(value)  # type: ignore[arg-type]  # the TypeError is the point
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None


def checked_timestamp(timestamp: SupportsIndex) -> int:
    """The timestamp as an int of 64 bits."""
    number = timestamp if type(timestamp) is int else integer("timestamp", timestamp)
    if not INT64_MIN <= number <= INT64_MAX:
        raise OverflowError(f"timestamp {number} does not fit 64 bits")
    return number


def fitting(name: str, value: object, bits: int) -> int:
    """The value as an int that a signed field of `bits` bits can hold."""
    number = integer(name, value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise OverflowError(f"{name} {number} does not fit {bits} bits")
    return number


def checked_size(size: int) -> int:
    """The size of a batch, if a batch may have it."""
    if size > BATCH_SIZE_MAX:
        raise MessageTooLarge(f"the batch would have {size} bytes, the limit is {BATCH_SIZE_MAX}")
    return size


def size_of(name: str, value: ReadableBuffer | None) -> int:
    """How many bytes a key or value has, 0 for None; TypeError for what has none."""
    if value is None:
        return 0
    if isinstance(value, memoryview):
        return value.nbytes
    if not isinstance(value, bytes | bytearray):
        raise TypeError(
            f"{name} must be bytes, bytearray, memoryview or None, not {type(value).__name__}"
        )
    return len(value)


def encode_headers(headers: HeadersLike) -> bytes:
    """The header count and the headers."""
    if headers is None:
        return NO_HEADERS
    parts = [b""]
    count = 0
    for key, value in _header_pairs(headers):
        if not isinstance(key, str):
            raise TypeError(f"header key must be str, not {type(key).__name__}")
        encoded_key = key.encode("utf-8", "surrogateescape")
        value_size = size_of("header value", value)
        parts += encode_varint(len(encoded_key)), encoded_key
        if value is None:
            parts.append(encode_varint(-1))
        else:
            parts += encode_varint(value_size), bytes(value)
        count += 1
    parts[0] = encode_varint(count)
    return b"".join(parts)


def _header_pairs(headers: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(headers, Mapping):
        yield from headers.items()
        return
    if not isinstance(headers, Iterable):
        raise TypeError(
            "headers must be a mapping or an iterable of (key, value) pairs, "
            f"not {type(headers).__name__}"
        )
    for pair in headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a header must be a (key, value) pair, not {type(pair).__name__}")
        yield pair[0], pair[1]
