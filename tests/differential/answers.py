"""Answers as plain values, without what differs from run to run, and what differs between two."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from millstream.protocol.layout import fields_of
from millstream.protocol.message import Struct
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.protocol.message import Message

    Answer = dict[str, Any] | str
    """The fields that are not their defaults, or the word that says that there was no answer."""

CLOSED: Final = "the connection was closed"

_OWN_WORDS: Final = frozenset({"error_message", "documentation"})
"""Texts for people: each side has its own."""
_OF_THIS_RUN: Final = frozenset(
    {
        "throttle_time_ms",
        "host",
        "port",
        "cluster_id",
        "session_id",
        "acquisition_lock_timeout_ms",
        "producer_id",
        "start_offset_ms",
    }
)
"""Fields that have another value in every run."""
_CHANCE: Final = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![\w-])[\w-]{22}(?![\w-])", re.ASCII
)


def plain(response: Message | None) -> Answer:
    """An answer without its defaults, without order, without what chance made."""
    return CLOSED if response is None else _plain_struct(response)


def _plain_struct(struct: Struct) -> dict[str, Any]:
    blank = type(struct)()
    fields = {}
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if field.name in _OWN_WORDS | _OF_THIS_RUN or value == getattr(blank, field.name):
            continue
        fields[field.name] = _plain_value(value)
    return fields


def _plain_value(value: object) -> Any:
    match value:
        case Struct():
            return _plain_struct(value)
        case Uuid():
            return "an id"
        case list():
            return sorted((_plain_value(each) for each in value), key=_in_order)
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case str():
            return _CHANCE.sub("an id", value)
        case _:
            return value


def _in_order(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def differing(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """The paths at which two answers differ; items of lists share the path of their list."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            below = f"{path}.{name}" if path else name
            yield from differing(one.get(name), other.get(name), below)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for mine, yours in zip(one, other, strict=True):
            yield from differing(mine, yours, path)
    elif one != other:
        yield path
