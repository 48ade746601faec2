"""Reads OpenTelemetry's metrics as clients push them (KIP-714): names, attributes and values.

`client_telemetry` asks. It is a reader of that one protobuf message and knows only the fields that
a line in the log needs; others are skipped. What is no such message raises `InvalidRecord`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    Field: TypeAlias = tuple[int, int | bytes]

_DOUBLE = Struct("<d")
_SIGNED = Struct("<q")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BITS_MAX: Final = 63

# Numbers of fields, by message.
_RESOURCE_METRICS: Final = 1
_SCOPE_METRICS: Final = 2
_METRICS: Final = 2
_NAME: Final = 1
_GAUGE, _SUM, _HISTOGRAM, _SUMMARY = 5, 7, 9, 11
_DATA_POINTS: Final = 1
_AS_DOUBLE, _AS_INT = 4, 6
_COUNT, _TOTAL = 4, 5
_ATTRIBUTES: Final = {_GAUGE: 7, _SUM: 7, _HISTOGRAM: 9, _SUMMARY: 7}
_KEY, _VALUE = 1, 2
_DOUBLE_VALUE: Final = 4


class DataPoint(NamedTuple):
    """One measured value."""

    name: str
    attributes: dict[str, str]
    value: float
    """Of a histogram or a summary, the sum of what was measured."""
    times: int | None = None
    """Of a histogram or a summary, how often something was measured."""


def read_data_points(payload: bytes) -> Iterator[DataPoint]:
    """All values of a serialized MetricsData, in order."""
    for resource in _messages(payload, _RESOURCE_METRICS):
        for scope in _messages(resource, _SCOPE_METRICS):
            for metric in _messages(scope, _METRICS):
                yield from _metric_points(metric)


def _metric_points(metric: bytes) -> Iterator[DataPoint]:
    name = ""
    for number, content in _fields(metric):
        if number == _NAME:
            name = _text(content)
    for kind, attributes_number in _ATTRIBUTES.items():
        for data in _messages(metric, kind):
            for point in _messages(data, _DATA_POINTS):
                yield _point(name, point, attributes_number, is_number=kind in (_GAUGE, _SUM))


def _point(name: str, point: bytes, attributes_number: int, *, is_number: bool) -> DataPoint:
    attributes: dict[str, str] = {}
    value: float = 0
    times: int | None = None
    for number, content in _fields(point):
        if number == attributes_number:
            key, text = _attribute(content)
            attributes[key] = text
        elif isinstance(content, bytes) and len(content) == 8:
            if is_number and number == _AS_INT:
                value = _SIGNED.unpack(content)[0]
            elif number == (_AS_DOUBLE if is_number else _TOTAL):
                value = _DOUBLE.unpack(content)[0]
            elif not is_number and number == _COUNT:
                times = _SIGNED.unpack(content)[0]
    return DataPoint(name, attributes, value, times)


def _attribute(content: int | bytes) -> tuple[str, str]:
    key, value = "", ""
    for number, inner in _fields(_require_bytes(content)):
        if number == _KEY:
            key = _text(inner)
        elif number == _VALUE:
            value = _any_value(_require_bytes(inner))
    return key, value


def _any_value(data: bytes) -> str:
    for number, content in _fields(data):
        if isinstance(content, int):
            return str(content)
        if number == _DOUBLE_VALUE and len(content) == 8:
            return f"{_DOUBLE.unpack(content)[0]:g}"
        return content.decode(errors="replace")
    return ""


# The wire format.


def _messages(data: bytes, wanted: int) -> Iterator[bytes]:
    for number, content in _fields(data):
        if number == wanted:
            yield _require_bytes(content)


def _require_bytes(content: int | bytes) -> bytes:
    if isinstance(content, int):
        raise InvalidRecord("the metrics are not OTLP: a number where a message belongs")
    return content


def _text(content: int | bytes) -> str:
    return _require_bytes(content).decode(errors="replace")


def _fields(data: bytes) -> Iterator[Field]:
    """Numbers and contents: a varint as int, everything else as its bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            number, position = _varint(data, position)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind == _FIXED64:
            size = 8
        elif kind == _FIXED32:
            size = 4
        else:
            raise InvalidRecord(f"the metrics are not OTLP: a field of wire type {kind}")
        if position + size > end:
            raise InvalidRecord("the metrics are cut off")
        yield tag >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift <= _VARINT_BITS_MAX:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise InvalidRecord("the metrics are cut off or have a number that is too long")
