"""What goes wrong on the command line, in one line that says what to do; and the exit codes.

`app` prints the line and leaves with the code. Commands raise `CommandFailed`; errors of the client
library and of brokers come with a text of their own.
"""

from __future__ import annotations

import difflib
from enum import IntEnum
from typing import TYPE_CHECKING

from millstream.errors import BootstrapFailed, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterable


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    """The cluster refused, or a file could not be read; stderr says which and why."""
    USAGE = 2
    """The command line is wrong; nothing was done."""
    UNREACHABLE = 3
    """No broker answered in time."""
    INTERRUPTED = 130
    """Ctrl-C."""
    BROKEN_PIPE = 141
    """Whoever read the output stopped reading."""


class CommandFailed(MillstreamError):
    """A command could not do what it was asked to; the message is the whole line."""

    exit_code = ExitCode.FAILED


class UsageFault(CommandFailed):
    """An argument cannot be used."""

    exit_code = ExitCode.USAGE


def nearest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` if there is something close, else nothing."""
    matches = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def unreachable_line(error: MillstreamError) -> str:
    """What to say when no broker answered, and what to do about it."""
    if isinstance(error, BootstrapFailed):
        way = "start one with `millstream server start`, or name another with --bootstrap-server"
    else:
        way = "look at the broker, or give more time with --timeout"
    return f"{one_line(str(error)).rstrip('.')}; {way}"


def one_line(text: str) -> str:
    """A message as it fits on one line."""
    return " ".join(text.split())
