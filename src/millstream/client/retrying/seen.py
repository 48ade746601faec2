"""What was handled already: so that a record that comes twice is handled once.

A record's id is remembered after its handler has returned. A crash between the two handles it
again; only a handler that writes the id together with its own result can exclude that.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from os import PathLike


class SeenStore(Protocol):
    """Remembers ids. One thread uses it."""

    def __contains__(self, record_id: str) -> bool:
        """Whether the id was added and not forgotten."""
        ...

    def add(self, record_id: str, now_ms: int) -> None:
        """Remember an id."""
        ...

    def close(self) -> None:
        """No more calls follow."""
        ...


class MemorySeen:
    """Remembers the last ids until the process ends."""

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, record_id: str) -> bool:
        """Whether the id is among the last."""
        return record_id in self._ids

    def add(self, record_id: str, now_ms: int) -> None:
        """Remember an id, and forget the oldest if there are too many."""
        self._ids[record_id] = None
        self._ids.move_to_end(record_id)
        if len(self._ids) > self._capacity:
            self._ids.popitem(last=False)

    def close(self) -> None:
        """Forget all."""
        self._ids.clear()


class SqliteSeen:
    """Remembers ids in a file, for some days, across restarts."""

    def __init__(self, path: str | PathLike[str], *, keep_days: float = 7.0) -> None:
        self._keep_ms = int(keep_days * 86_400_000)
        self._swept_ms = 0
        # autocommit: an id is on disk before the next record is handled.
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL)"
            " WITHOUT ROWID"
        )

    def __contains__(self, record_id: str) -> bool:
        """Whether the id is in the file."""
        found = self._database.execute("SELECT 1 FROM seen WHERE id = ?", (record_id,))
        return found.fetchone() is not None

    def add(self, record_id: str, now_ms: int) -> None:
        """Write an id; once an hour, remove those that are old."""
        self._database.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (record_id, now_ms))
        if now_ms - self._swept_ms > 3_600_000:
            self._swept_ms = now_ms
            self._database.execute("DELETE FROM seen WHERE at_ms < ?", (now_ms - self._keep_ms,))

    def close(self) -> None:
        """Close the file."""
        self._database.close()
