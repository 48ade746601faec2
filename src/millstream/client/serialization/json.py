"""JSON without a schema, by orjson when it is installed and by the standard library otherwise.

Both write compact UTF-8 and refuse NaN, so it does not matter to a reader which one wrote. The
standard library's also knows dates, UUIDs, enums and dataclasses, as orjson does.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.client.serialization.base import Serde

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    _orjson: Any = import_module("orjson")
except ImportError:  # It comes with the extra "fast".
    _orjson = None


def plain_value(value: object) -> object:
    """What JSON can hold of a value that it does not know; TypeError if there is nothing."""
    match value:
        case enum.Enum():
            return value.value
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON; give default=")


def _dump_with_standard_library(value: object, default: Callable[[Any], Any]) -> bytes:
    text = json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=default
    )
    return text.encode()


class JsonSerde(Serde[Any]):
    """Any value that JSON can hold."""

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        """`default` makes something that JSON knows from a value it does not know."""
        self._default = default or plain_value

    def encode(self, value: Any) -> bytes:
        """Compact UTF-8."""
        if _orjson is None:
            return _dump_with_standard_library(value, self._default)
        encoded: bytes = _orjson.dumps(value, self._default)
        return encoded

    def decode(self, data: bytes) -> Any:
        """Dictionaries, lists, text, numbers, booleans."""
        return json.loads(data) if _orjson is None else _orjson.loads(data)
