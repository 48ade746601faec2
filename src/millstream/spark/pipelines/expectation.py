"""What rows must fulfil, and what becomes of those that do not: the words of a definition.

`expectations` does it with Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from millstream.spark.pipelines.schema import one_of, setting

DROP: Final = "drop"
FAIL: Final = "fail"
DEAD_LETTER: Final = "dead-letter"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def a_topic(value: Any) -> str | None:
    """The value can name a topic."""
    if _TOPIC.fullmatch(str(value)):
        return None
    return f"{value!r} cannot be a topic's name: use letters, digits, '.', '_' and '-'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A condition that every row must fulfil; a row for which it is null does not."""

    name: str = setting("Names the expectation in causes and errors.")
    condition: str = setting("What must be true: an expression of SQL over the row's columns.")
    on_violation: str = setting(
        "What becomes of other rows: `drop` leaves them out, `fail` fails the query, "
        "`dead-letter` sends them to a topic with their cause.",
        DROP,
        check=one_of(DROP, FAIL, DEAD_LETTER),
    )
    topic: str | None = setting(
        "The dead letters' topic; else the name of the pipeline, that of the dataset and `dead`, "
        "joined by dots.",
        None,
        check=a_topic,
    )
