"""Log lines about what peers do wrong, at a rate that peers cannot raise.

Anyone who can open a connection can send garbage; the log must stay readable then. Used by every
part of `network`, and by handlers of requests, for lines a peer causes; lines about ourselves go to
the logger directly.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.clock import Clock

logger = logging.getLogger("millstream.network")

INTERVAL_MS: Final = 10_000


class LogLimiter:
    """Writes the first line of each kind, then one per interval that counts the others.

    Fields, such as `peer`, are what a line in JSON has besides its message.
    """

    __slots__ = ("_clock", "_counts", "_logger", "_written_ms")

    def __init__(self, clock: Clock, to: logging.Logger = logger) -> None:
        self._clock = clock
        self._logger = to
        self._written_ms: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def failure(
        self, kind: str, message: str, *arguments: object, error: Exception, **fields: object
    ) -> None:
        """A line about a fault of ours that a peer brought to light, with its traceback."""
        self._write(logging.ERROR, kind, message, arguments, fields, error)

    def warning(self, kind: str, message: str, *arguments: object, **fields: object) -> None:
        """A line that an operator may have to act on."""
        self._write(logging.WARNING, kind, message, arguments, fields)

    def info(self, kind: str, message: str, *arguments: object, **fields: object) -> None:
        """A line that explains what a client sees."""
        self._write(logging.INFO, kind, message, arguments, fields)

    def _write(
        self,
        level: int,
        kind: str,
        message: str,
        arguments: tuple[object, ...],
        fields: dict[str, object],
        error: Exception | None = None,
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        written_ms = self._written_ms.get(kind)
        if written_ms is not None and now_ms - written_ms < INTERVAL_MS:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            return
        self._written_ms[kind] = now_ms
        unwritten = self._counts.pop(kind, 0)
        if unwritten:
            message += " (%d more like it since the last such line)"
            arguments = (*arguments, unwritten)
            fields["unwritten"] = unwritten
        self._logger.log(level, message, *arguments, exc_info=error, extra={"fields": fields})
