"""Words for what the compiled readers found wrong.

The kernel stops at the first bad byte with a few numbers (see wire.h); this module, called on
that path only, makes the error of them. The plain twins raise the same sentences.
"""

from __future__ import annotations

from millstream.errors import CorruptMessage

FIELDS = (
    "length",
    "timestamp delta",
    "offset delta",
    "key length",
    "value length",
    "header count",
    "header key length",
    "header value length",
)
"""In the order of `enum ms_field`."""

KINDS = (
    "{field} is not a valid varint",
    "{field} {value} is out of range",
    "{field} overflows 64 bits",
    "{value} bytes left over in the record",
)
"""In the order of `enum ms_fault_kind`."""


def bad_record(kind: int, field: int, value: int, index: int, position: int) -> CorruptMessage:
    """The error for one field of record `index` that starts at byte `position` of the body."""
    problem = KINDS[kind].format(field=FIELDS[field], value=value)
    return CorruptMessage(f"record {index}, byte {position}: {problem}")


def bad_count(count: int, size: int) -> CorruptMessage:
    """The error for a record count that `size` bytes cannot hold."""
    if count < 0:
        return CorruptMessage(f"record count {count} is negative")
    return CorruptMessage(f"{count} records do not fit in {size} bytes")


def bytes_left_over(left: int, position: int) -> CorruptMessage:
    """The error for bytes behind the last record."""
    return CorruptMessage(f"{left} bytes left over after the last record at byte {position}")
