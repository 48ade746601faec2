"""How the process writes its log: lines for people, or one JSON object per line.

`main` calls `configure` once. Users of the library configure Python's logging as they like and
never come here.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing import TextIO

_PREFIX: Final = "millstream."


class HumanFormatter(logging.Formatter):
    """`2026-03-01 12:00:00.123 INFO  node: formatted data for the new cluster ...`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(part)s: %(message)s")
        self.default_time_format = "%Y-%m-%d %H:%M:%S"
        self.datefmt = self.default_time_format

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback if there is one."""
        record.part = _part_of(record)
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, part, message, the line's own `fields`, a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname,
            "part": _part_of(record),
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(log_format: str, level: str, stream: TextIO | None = None) -> None:
    """Write the log of this process to a stream, standard error unless told otherwise."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else HumanFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def _part_of(record: logging.LogRecord) -> str:
    """The part of Millstream that speaks, such as `storage`."""
    return record.name.removeprefix(_PREFIX).partition(".")[0]
