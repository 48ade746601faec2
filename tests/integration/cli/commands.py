"""Commands as a person runs them, in a process of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS_MAX = 60
_LIBRDKAFKA_LINE = re.compile(r"^%\d\|[^\n]*\n", re.MULTILINE)


class Outcome(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its output, which must be one JSON document, after nothing went wrong."""
        assert (self.code, self.err) == (0, ""), self
        return json.loads(self.out)


def own_words(err: str) -> str:
    """What a command in this process printed, without a client of an earlier test.

    librdkafka writes to the process's stderr by itself when the broker of its test is gone.
    """
    return _LIBRDKAFKA_LINE.sub("", err)


def command_line(*arguments: str) -> list[str]:
    """The arguments of a process that runs a command."""
    return [sys.executable, "-m", "millstream", *arguments]


def run_command(
    *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run a command to its end."""
    done = subprocess.run(
        command_line(*arguments),
        input=stdin,
        capture_output=True,
        timeout=SECONDS_MAX,
        env={**os.environ, **(environment or {})},
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
