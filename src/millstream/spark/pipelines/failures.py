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
    "millstream.errors.sinks.SinkRefused",
)
_LACKING: Final = re.compile(r"ModuleNotFoundError: No module named '(?:pyspark_)?(\w+)")
_NO_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)"')
_SAME_EVERYWHERE: Final = (
    "Spark's executors need what the driver has: the same Python at the same path, or at the one "
    "that the environment variable PYSPARK_PYTHON names on both, with 'millstream[spark]' installed"
)


def may_help_to_restart(error: BaseException) -> bool:
    """Whether the same may go well another time: not what follows from the rows or the plan."""
    text = str(error)
    is_final = type(error).__name__ in _FINAL or _what_executors_lack(text) is not None
    return not is_final and not any(each in text for each in _NEVER_HELPS)


def explain(error: BaseException) -> str:
    """The heart of an error: the last error of Python in it, or its first lines."""
    text = re.split(r"JVM stacktrace:|=== Streaming Query ===", str(error), maxsplit=1)[0]
    text = _SQL_STATE.sub("", text)
    if (lacking := _what_executors_lack(text)) is not None:
        return lacking
    mark = text.find(FAILED_MARK)
    if mark >= 0:
        begin = max(text.rfind("\n", 0, mark), text.rfind("] ", 0, mark) + 1) + 1
        return text[begin:].splitlines()[0].strip()[:_CHARACTERS_MAX]
    python = [match for line in text.splitlines() if (match := _PYTHON_ERROR.match(line.strip()))]
    if "Traceback" in text and python:
        return f"{python[-1][1]}: {python[-1][2]}"[:_CHARACTERS_MAX]
    lines = [line.strip() for line in text.splitlines() if not _NOISE.match(line)]
    return " ".join(lines[:_LINES_MAX])[:_CHARACTERS_MAX] or type(error).__name__


def _what_executors_lack(text: str) -> str | None:
    """What is not installed where tasks run, if that is the cause."""
    if (module := _LACKING.search(text)) is not None:
        return f"the Python of a task has no module {module[1]}. {_SAME_EVERYWHERE}"
    if (program := _NO_PROGRAM.search(text)) is not None:
        return f"there is no {program[1]} where a task runs. {_SAME_EVERYWHERE}"
    return None
