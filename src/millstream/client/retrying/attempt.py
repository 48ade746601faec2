"""One attempt to handle a record, and the headers that carry its history from topic to topic.

The headers are text, so that any tool shows them. Those of the last failure replace those of the
failure before; where the record came from and when it first failed stay.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import TypeVar

    from millstream.types import Headers

    # A handler that says no more than `Attempt` takes what any deserializer makes.
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

PREFIX: Final = "millstream.retry."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
TIMESTAMP: Final = PREFIX + "timestamp"
GROUP: Final = PREFIX + "group"
FAILURES: Final = PREFIX + "failures"
NOT_BEFORE: Final = PREFIX + "not.before"
FIRST_FAILED: Final = PREFIX + "first.failed"
LAST_FAILED: Final = PREFIX + "last.failed"
ERROR_TYPE: Final = PREFIX + "error.type"
ERROR_MESSAGE: Final = PREFIX + "error.message"
ERROR_TRACE: Final = PREFIX + "error.trace"

_MESSAGE_CHARACTERS_MAX: Final = 4_000
_TRACE_CHARACTERS_MAX: Final = 16_000


@dataclass(frozen=True, slots=True)
class Attempt(Generic[K, V]):
    """A record as its handler sees it, wherever it was read this time."""

    topic: str
    """The topic it was first read from, and its place there."""
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    """None for a tombstone: a handler that may get some takes `Attempt[str, Order | None]`."""
    headers: Headers
    """Its own headers; those of the retries are left out."""
    number: int
    """1 for the first attempt."""

    @property
    def id(self) -> str:
        """Names the record in all attempts and after restarts: topic, partition and offset."""
        return f"{self.topic}-{self.partition}@{self.offset}"


def own_headers(headers: Headers) -> Headers:
    """The headers that the record had before it ever failed."""
    return tuple(each for each in headers if not each[0].startswith(PREFIX))


def history(headers: Headers) -> dict[str, str]:
    """What is told of earlier failures: header to text, the last one of a name."""
    return {
        name: (value or b"").decode("utf-8", "replace")
        for name, value in headers
        if name.startswith(PREFIX)
    }


def number_in(told: Mapping[str, str], name: str, default: int) -> int:
    """A number of the history; the default if it is absent or somebody has spoilt it."""
    try:
        return int(told[name])
    except (KeyError, ValueError):
        return default


def failure_headers(
    attempt: Attempt,
    told: Mapping[str, str],
    group: str,
    error: BaseException,
    now_ms: int,
    not_before_ms: int | None,
) -> list[tuple[str, bytes | None]]:
    """The record's own headers, and its history with one more failure."""
    history_now = {
        TOPIC: attempt.topic,
        PARTITION: str(attempt.partition),
        OFFSET: str(attempt.offset),
        TIMESTAMP: str(attempt.timestamp),
        GROUP: group,
        FAILURES: str(attempt.number),
        FIRST_FAILED: told.get(FIRST_FAILED, str(now_ms)),
        LAST_FAILED: str(now_ms),
        ERROR_TYPE: f"{type(error).__module__}.{type(error).__qualname__}",
        ERROR_MESSAGE: str(error)[:_MESSAGE_CHARACTERS_MAX],
        # The end of a trace says where it happened.
        ERROR_TRACE: "".join(traceback.format_exception(error))[-_TRACE_CHARACTERS_MAX:],
    }
    if not_before_ms is not None:
        history_now[NOT_BEFORE] = str(not_before_ms)
    return [
        *attempt.headers,
        *((name, text.encode("utf-8", "replace")) for name, text in history_now.items()),
    ]
