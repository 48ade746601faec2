"""The threads that receive large frames, as the system shows them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.waiting import until

THREAD = "frame receiver"


def receiving_threads() -> set[str]:
    """Those of the whole process, other tests' brokers among them."""
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # It has ended since.
            if path.read_text().strip() == THREAD:
                found.add(path.parent.name)
    return found


def until_ended(others: set[str]) -> None:
    """The system shows a thread for a moment after it was joined."""
    until(lambda: receiving_threads() <= others, lambda: "the thread goes on")
