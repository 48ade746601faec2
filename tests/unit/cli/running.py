"""How tests run commands in their own process, and read what they print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.cli.faults import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

Run: TypeAlias = "Callable[..., tuple[int, str, str]]"
"""Takes a command line; the exit code, stdout and stderr."""


def as_json(result: tuple[int, str, str]) -> Any:
    """What a command printed that had nothing to complain about."""
    code, out, err = result
    assert (code, err) == (ExitCode.OK, "")
    return json.loads(out)
