"""Runs many seeds of a simulation, and names those that fail; each subject has its `run` module."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TRACE_LINES_MAX = 400


class Play(Protocol):
    """One simulation of one seed."""

    def run(self) -> None:
        """Play it; raises if a promise was broken."""
        ...

    def begin_trace(self) -> None:
        """Keep the messages from now on."""
        ...

    @property
    def trace(self) -> Sequence[str]:
        """The messages that were kept."""
        ...


def fix_hashes(module: str) -> None:
    """Start a module anew unless strings are hashed alike in every run: sets have that order."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})


def run_seeds(description: str | None, make: Callable[[int], Play], logger: str) -> int:
    """Run the seeds that the command line names; 1 if one fails. `logger` is to be quiet."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--trace", action="store_true", help="print the messages of a failure")
    arguments = parser.parse_args()
    logging.getLogger(logger).setLevel(logging.ERROR)
    began = time.perf_counter()
    failed = []
    for seed in range(arguments.start, arguments.start + arguments.seeds):
        play = make(seed)
        if arguments.trace:
            play.begin_trace()
        try:
            play.run()
        except Exception:
            failed.append(seed)
            traceback.print_exc()
            for line in play.trace[-TRACE_LINES_MAX:]:
                print(line)  # noqa: T201  # The output of a command.
            print(f"seed {seed} failed")  # noqa: T201
    seconds = time.perf_counter() - began
    print(f"{arguments.seeds} seeds in {seconds:.1f} s, failed: {failed or 'none'}")  # noqa: T201
    return 1 if failed else 0
