"""`millstream`: where every command line begins.

`server` goes straight to the node, which needs neither typer nor rich and is ready sooner without
them; only its help looks like that of all others. Everything else goes to `app`.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code, whose meanings `faults.ExitCode` has."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_server = given[:1] == ["server"]
    if is_server and not _asks_for_help(given):
        return _run_node(given)
    from millstream.cli.app import run

    return run(given)


def _run_node(given: Sequence[str]) -> int:
    # What is imported and made by a start stays: to look for garbage meanwhile costs a tenth of it.
    # A node that is ready looks again.
    gc.disable()
    try:
        from millstream.node.main import main as run_node

        return run_node(given)
    finally:
        gc.enable()


def _asks_for_help(given: Sequence[str]) -> bool:
    return "--help" in given or "-h" in given or len(given) == 1
