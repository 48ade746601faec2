"""Plain Python values to what Arrow takes for a type: times, dates, decimals, maps, bytes.

For formats and types that are read record by record. A converter is put together once for a schema;
values that cannot be converted raise ValueError, TypeError or what the conversion raises.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import pyarrow as pa

Converter: TypeAlias = Callable[[Any], Any]


def converter(wanted: pa.DataType) -> Converter:
    """A function from a decoded value to one that Arrow accepts for the type."""
    if pa.types.is_struct(wanted):
        return _struct_converter(wanted)
    if pa.types.is_list(wanted):
        element = converter(wanted.value_type)
        return lambda value: None if value is None else [element(each) for each in _list(value)]
    if pa.types.is_map(wanted):
        item = converter(wanted.item_type)
        return lambda value: (
            None if value is None else [(key, item(each)) for key, each in value.items()]
        )
    if pa.types.is_integer(wanted):
        return _or_none(_integer_converter(wanted))
    if pa.types.is_timestamp(wanted) and wanted.tz is None:
        return _same
    for applies, convert in _SCALARS:
        if applies(wanted):
            return _or_none(convert)
    return _same


def _struct_converter(wanted: pa.StructType) -> Converter:
    fields = [(field.name, converter(field.type)) for field in wanted]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(f"{type(value).__name__} instead of an object")
        return {name: convert_field(value.get(name)) for name, convert_field in fields}

    return convert


def _or_none(convert: Converter) -> Converter:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} instead of an array")
    return value


def _integer_converter(wanted: pa.DataType) -> Converter:
    """Whole numbers: Arrow would cut off a fraction. Avro has times of the day as such numbers."""
    microseconds = 1_000 if wanted.bit_width <= 32 else 1

    def convert(value: Any) -> int:
        if isinstance(value, time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * 1_000_000 + value.microsecond) // microseconds
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{value!r} is no whole number")
        return value

    return convert


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _timestamp(value: Any) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _date(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


def _decimal(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):  # As JSON has bytes, and as Spark reads them there.
        return base64.b64decode(value, validate=True)
    return bytes(value)


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Converter], ...] = (
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_floating, _float),
    (pa.types.is_binary, _bytes),
    (pa.types.is_string, _text),
)
