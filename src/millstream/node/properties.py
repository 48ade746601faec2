"""Where settings come from: a properties file, the environment, `--set key=value`.

Later ones win over earlier ones. Texts only: what they mean is for the settings classes. The
environment names a key in capitals with underscores: MILLSTREAM_LOG_RETENTION_MS is
`log.retention.ms`, MILLSTREAM_DURABILITY is `millstream.durability`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENVIRONMENT_PREFIX: Final = "MILLSTREAM_"
_NOT_SETTINGS: Final = frozenset(
    {"MILLSTREAM_IMPL", "MILLSTREAM_BOOTSTRAP_SERVER", "MILLSTREAM_SCHEMA_REGISTRY"}
)
"""Variables that choose how the library itself runs, and what its commands connect to."""

_PAIR = re.compile(r"\s*((?:[^=:\s\\]|\\.)+)(?:\s*[=:]\s*|\s+|\Z)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Read Java's properties syntax: comments, continuation lines, escapes. The last value wins."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match is not None:
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def read_properties(path: str) -> dict[str, str]:
    """Read a file; InvalidConfig if that cannot be."""
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not a text file: {error.reason}") from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Read `key=value` arguments."""
    found = {}
    for each in assignments:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise InvalidConfig(f"--set {each}: write it as key=value")
        found[name.strip()] = value
    return found


def from_environment(
    environment: Mapping[str, str], known: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    """Settings by key, and the variables that look like settings and are none."""
    by_variable = {}
    for name in known:
        variable = re.sub(r"[^A-Z0-9]", "_", name.upper())
        by_variable[ENVIRONMENT_PREFIX + variable] = name
        if variable.startswith(ENVIRONMENT_PREFIX):
            by_variable[variable] = name
    found, unknown = {}, []
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NOT_SETTINGS:
            continue
        name = by_variable.get(variable, "")
        if name:
            found[name] = value
        else:
            unknown.append(variable)
    return found, unknown


def _logical_lines(text: str) -> Iterable[str]:
    """Lines that mean something, with those that end in a backslash joined to the next."""
    pending = ""
    for line in text.splitlines():
        stripped = line.lstrip()
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        pending += stripped
        backslashes = len(pending) - len(pending.rstrip("\\"))
        if backslashes % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_escape_value, text)


def _escape_value(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    return _CONTROL.get(escaped, escaped)
