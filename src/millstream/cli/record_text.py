"""Lines into records, for `produce`. Nothing here reads, writes or connects.

In JSON a key, a value or a header may be `{"base64": …}` or `{"hex": …}`, for bytes that are no
text. `record_format` is the other direction.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.faults import UsageFault

if TYPE_CHECKING:
    from millstream.types import Headers


class NewRecord(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    timestamp: int | None = None


class LineParser(NamedTuple):
    """How a line becomes a record."""

    key_separator: bytes | None = None
    null_marker: bytes | None = None
    headers: Headers = ()
    key: bytes | None = None
    """For lines that have none of their own."""

    def parse(self, line: bytes) -> NewRecord:
        """Read `value`, or `key<separator>value`."""
        key, value = self.key, line
        if self.key_separator is not None:
            own_key, found, rest = line.partition(self.key_separator)
            if not found:
                shown = self.key_separator.decode(errors="replace")
                raise UsageFault(f"a line without the key separator {shown!r}: {_shown(line)}")
            key, value = own_key, rest
        return NewRecord(self._or_null(key), self._or_null(value), self.headers)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data is not None and data == self.null_marker else data


def parse_json_line(line: bytes) -> NewRecord:
    """Read `{"key": …, "value": …, "headers": {name: value}, "partition": …, "timestamp": …}`."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise UsageFault(f"not JSON ({error}): {_shown(line)}") from error
    if not isinstance(found, dict):
        raise UsageFault(f"not a JSON object: {_shown(line)}")
    try:
        return NewRecord(
            _from_json(found.get("key")),
            _from_json(found.get("value")),
            _headers(found.get("headers")),
            _integer(found.get("partition")),
            _integer(found.get("timestamp")),
        )
    except (TypeError, ValueError) as error:
        raise UsageFault(f"{error}: {_shown(line)}") from error


def parse_header(text: str) -> tuple[str, bytes]:
    """Read `name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageFault(f"{text!r}: write a header as name=value")
    return name, value.encode()


def unescape(text: str) -> str:
    r"""Read `\t`, `\n`, `\r`, `\0`, `\\` and `\x41`."""
    return _ESCAPE.sub(_unescaped, text)


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SIMPLE: Final = {"t": "\t", "n": "\n", "r": "\r", "0": "\0"}


def _unescaped(match: re.Match[str]) -> str:
    token = match[1]
    return chr(int(token[1:], 16)) if len(token) == 3 else _SIMPLE.get(token, token)


def _from_json(value: object) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded), **rest} if not rest:
            return base64.b64decode(encoded, validate=True)
        case {"hex": str(encoded), **rest} if not rest:
            return bytes.fromhex(encoded)
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(given: object) -> Headers:
    match given:
        case None:
            return ()
        case list() if all(isinstance(each, list) and len(each) == 2 for each in given):
            return tuple((str(name), _from_json(value)) for name, value in given)
        case dict():
            return tuple((name, _from_json(value)) for name, value in given.items())
    raise ValueError("headers are an object, or a list of [name, value] pairs")


def _integer(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{value!r} is not a whole number")


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
