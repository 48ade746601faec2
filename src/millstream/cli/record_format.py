"""Records into text, for `consume` and `log dump`. Bytes out; nothing here writes or connects.

The JSON form is the one that `produce --input json` takes: bytes that are no text become
`{"base64": …}`, and with an encoding asked for all of them do.
"""

from __future__ import annotations

import base64
import json
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.cli.faults import UsageFault
from millstream.cli.record_text import unescape

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.cli.value_types import TypedRecord
    from millstream.records import Record
    from millstream.records.kernel import ConsumerRecord

    AnyRecord: TypeAlias = Record | ConsumerRecord | TypedRecord

    Render: TypeAlias = Callable[[str, int, AnyRecord], bytes]
    """A record of a topic's partition as it is printed."""
    Show: TypeAlias = Callable[[bytes | None], bytes]
    """A key or a value as it is printed."""


class Encoding(Enum):
    """How the bytes of keys, values and headers are written."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"


FORMAT_TOKENS: Final = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp in ms",
    "k": "key",
    "s": "value",
    "K": "bytes of the key, -1 if null",
    "S": "bytes of the value, -1 if null",
    "h": "headers as name=value,…",
    "%": "a percent sign",
}
"""What may stand behind `%` in a format, as in kcat."""


def value_show(encoding: Encoding, null: str = "null", *, is_for_terminal: bool = False) -> Show:
    """How keys and values are written: with an encoding, null as a text, safe for a terminal."""
    shown_null = null.encode()

    def show(data: bytes | None) -> bytes:
        if data is None:
            return shown_null
        match encoding:
            case Encoding.HEX:
                return data.hex().encode()
            case Encoding.BASE64:
                return base64.b64encode(data)
            case Encoding.TEXT:
                return terminal_text(data).encode() if is_for_terminal else data

    return show


def terminal_text(data: bytes) -> str:
    r"""Bytes as text that does no harm to a terminal: what cannot be printed becomes `\x1b`."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text
    )


def value_lines(show: Show, key_separator: str | None) -> Render:
    """Values, one to a line; with a separator `key SEP value`."""
    if key_separator is None:
        return lambda _, __, record: show(record.value) + b"\n"
    separator = unescape(key_separator).encode()
    return lambda _, __, record: show(record.key) + separator + show(record.value) + b"\n"


def json_lines(encoding: Encoding) -> Render:
    """One JSON object to a line."""

    def render(topic: str, partition: int, record: AnyRecord) -> bytes:
        found = {"topic": topic, "partition": partition} | record_as_json(record, encoding)
        return json.dumps(found, ensure_ascii=False).encode() + b"\n"

    return render


def record_as_json(record: AnyRecord, encoding: Encoding = Encoding.TEXT) -> dict[str, Any]:
    """A record as a JSON object."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": bytes_as_json(record.key, encoding),
        "value": bytes_as_json(record.value, encoding),
        "headers": [[name, bytes_as_json(value, encoding)] for name, value in record.headers],
    }


def bytes_as_json(data: object, encoding: Encoding = Encoding.TEXT) -> object:
    """Text as a string; other bytes, or all if asked for, as `{"base64": …}` or `{"hex": …}`.

    What is not bytes has a type of its own and stays.
    """
    if not isinstance(data, bytes):
        return data
    if encoding is Encoding.HEX:
        return {"hex": data.hex()}
    if encoding is Encoding.TEXT:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": base64.b64encode(data).decode()}


def compile_format(template: str, show: Show) -> Render:
    r"""A function that writes a record by a template such as `%p:%o %k=%s\n`."""
    pieces: list[bytes | Render] = []
    position = 0
    for match in re.finditer(r"%(.?)", template, re.DOTALL):
        pieces.append(unescape(template[position : match.start()]).encode())
        if match[1] not in FORMAT_TOKENS:
            listed = ", ".join(f"%{each}" for each in FORMAT_TOKENS)
            raise UsageFault(f"--format: %{match[1]} means nothing; there are {listed}")
        pieces.append(_token(match[1], show))
        position = match.end()
    pieces.append(unescape(template[position:]).encode())

    def render(topic: str, partition: int, record: AnyRecord) -> bytes:
        return b"".join(
            each if isinstance(each, bytes) else each(topic, partition, record) for each in pieces
        )

    return render


def _token(token: str, show: Show) -> Render:
    renderers: dict[str, Render] = {
        "t": lambda topic, _, __: topic.encode(),
        "p": lambda _, partition, __: b"%d" % partition,
        "o": lambda _, __, record: b"%d" % record.offset,
        "T": lambda _, __, record: b"%d" % record.timestamp,
        "k": lambda _, __, record: show(record.key),
        "s": lambda _, __, record: show(record.value),
        "K": lambda _, __, record: b"%d" % _size(record.key),
        "S": lambda _, __, record: b"%d" % _size(record.value),
        "h": lambda _, __, record: b",".join(
            name.encode() + b"=" + show(value) for name, value in record.headers
        ),
        "%": lambda _, __, ___: b"%",
    }
    return renderers[token]


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
