"""Why a query failed, in a sentence, and whether starting it again may help."""

from __future__ import annotations

import re
from typing import Final

from millstream.spark.pipelines.expectations import FAILED_MARK

_LINES_MAX: Final = 3
_CHARACTERS_MAX: Final = 2_000
_NOISE: Final = re.compile(r"^(Traceback|\s+File |\s+at |=== |\s*$)")
_PYTHON_ERROR: Final = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w+): (.+)$")
_SQL_STATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_FINAL: Final = frozenset({"AnalysisException", "ParseException", "IllegalArgumentException"})
_NEVER_HELPS: Final = (
    FAILED_MARK,
    "[PARSE_SYNTAX_ERROR]",
    "UNSUPPORTED_STREAMING",
    "millstream.errors.base.InvalidArgument",
)


def may_help_to_restart(error: BaseException) -> bool:
    """Whether the same may go well another time: not what follows from the rows or the plan."""
    text = str(error)
    is_final = type(error).__name__ in _FINAL
    return not is_final and not any(each in text for each in _NEVER_HELPS)


def explain(error: BaseException) -> str:
    """The heart of an error: the last error of Python in it, or its first lines."""
    text = re.split(r"JVM stacktrace:|=== Streaming Query ===", str(error), maxsplit=1)[0]
    text = _SQL_STATE.sub("", text)
    mark = text.find(FAILED_MARK)
    if mark >= 0:
        begin = max(text.rfind("\n", 0, mark), text.rfind("] ", 0, mark) + 1) + 1
        return text[begin:].splitlines()[0].strip()[:_CHARACTERS_MAX]
    python = [match for line in text.splitlines() if (match := _PYTHON_ERROR.match(line.strip()))]
    if "Traceback" in text and python:
        return f"{python[-1][1]}: {python[-1][2]}"[:_CHARACTERS_MAX]
    lines = [line.strip() for line in text.splitlines() if not _NOISE.match(line)]
    return " ".join(lines[:_LINES_MAX])[:_CHARACTERS_MAX] or type(error).__name__
