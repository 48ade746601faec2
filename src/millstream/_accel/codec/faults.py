"""Words for what the compiled readers found wrong.

The kernel stops at the first bad byte with a few numbers (see wire.h); this module, called on
that path only, makes the error of them. The plain versions raise the same sentences.
"""

from __future__ import annotations

from millstream.errors import CorruptMessage, RecordNotReadable

FIELDS = (
    "length",
    "attributes",
    "timestamp delta",
    "offset delta",
    "key length",
    "value length",
    "header count",
    "header key length",
    "header value length",
)
"""In the order of `enum ms_field`."""

MAGIC = 2
"""The newest format of batches."""

KINDS = (
    "cut off in the {field}",
    "the {field} does not fit {bits} bits",
    "the {field} is {value}",
    "the {field} is {value}, with {left} bytes left",
    "{value} bytes left over in the record",
    "the timestamp does not fit 64 bits",
    "the offset does not fit 64 bits",
)
"""In the order of `enum ms_fault_kind`."""


def bad_record(
    index: int, position: int, kind: int, field: int, value: int, left: int
) -> CorruptMessage:
    """The error for what is wrong in record `index`, at byte `position` of the body."""
    name = FIELDS[field]
    bits = 64 if name == "timestamp delta" else 32
    problem = KINDS[kind].format(field=name, value=value, left=left, bits=bits)
    return CorruptMessage(f"record {index}, byte {position}: {problem}")


def negative_count(count: int) -> CorruptMessage:
    """The error for a record count below zero."""
    return CorruptMessage(f"the record count is {count}")


def bytes_left_over(position: int, left: int, count: int) -> CorruptMessage:
    """The error for bytes behind the last record."""
    return CorruptMessage(f"byte {position}: {left} bytes left over after {count} records")


def bad_header(magic: int, length: int) -> CorruptMessage:
    """The error for a batch that cannot be one."""
    if magic > MAGIC:
        return CorruptMessage(f"a batch of magic {magic}, which is not known")
    return CorruptMessage(f"a batch of length {length}, which is too short for magic {magic}")


def bad_checksum(base_offset: int, stored: int, computed: int) -> CorruptMessage:
    """The error for a batch whose bytes are not those that were written."""
    return CorruptMessage(
        f"the batch at offset {base_offset} has checksum {stored:08x}, "
        f"its bytes give {computed:08x}"
    )


def bad_value(
    part: str, topic: str, partition: int, offset: int, error: Exception
) -> RecordNotReadable:
    """The error for a key or value that a deserializer did not take."""
    return RecordNotReadable(
        f"{topic}-{partition}: the {part} of the record at offset {offset} could not be "
        f"deserialized ({type(error).__name__}: {error}); seek to {offset + 1} to go on without it",
        topic=topic,
        partition=partition,
        offset=offset,
    )
