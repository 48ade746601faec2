"""What a format of values is: some bytes each in, one struct array and the faults out.

`decoder` calls one; `json_values`, `avro_values` and `protobuf_values` are them. A format lives in
one worker process and is never sent anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from millstream.errors import SchemaRegistryError

if TYPE_CHECKING:
    from collections.abc import Callable

Faults: TypeAlias = dict[int, str]
"""Which rows cannot be decoded, and why."""

CAUSE_CHARACTERS_MAX = 500
_NOT_FOUND = (40401, 40402, 40403)
"""A registry's codes for: no such subject, version, schema."""


class ValueFormat(ABC):
    """Decodes values that are all there: nulls never come here."""

    @abstractmethod
    def decode(self, values: pa.Array) -> tuple[pa.Array, Faults]:
        """A struct for each value, null where it has a fault."""


def cause_of(error: Exception) -> str:
    """What an error says, in one line that fits a column and a header."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:CAUSE_CHARACTERS_MAX]


def decode_each(
    values: list[bytes], decode: Callable[[bytes], Any], arrow_type: pa.DataType
) -> tuple[pa.Array, Faults]:
    """One call for each value, for formats that are read record by record; then one array.

    A registry that does not answer, or does not let us in, is no fault of a record: that is raised.
    """
    rows: list[Any] = []
    faults: Faults = {}
    for index, value in enumerate(values):
        try:
            rows.append(decode(value))
        except Exception as error:
            if isinstance(error, SchemaRegistryError) and error.code not in _NOT_FOUND:
                raise
            rows.append(None)
            faults[index] = cause_of(error)
    return _as_array(rows, arrow_type, 0, faults), faults


def _as_array(rows: list[Any], arrow_type: pa.DataType, first: int, faults: Faults) -> pa.Array:
    """The rows as an array; those that do not fit the type become null and a fault.

    Halving finds the odd ones among thousands without a try for each.
    """
    try:
        return pa.array(rows, arrow_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if len(rows) == 1:
            faults[first] = cause_of(error)
            return pa.nulls(1, arrow_type)
    middle = len(rows) // 2
    halves = (
        _as_array(rows[:middle], arrow_type, first, faults),
        _as_array(rows[middle:], arrow_type, first + middle, faults),
    )
    return pa.concat_arrays(halves)
