"""Spark's part in reading a stream, played by hand: offsets noted, batches done again.

The tests of the PostgreSQL source drive its reader with it, so that they can stop between any two
steps. It starts no Spark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from millstream.spark.pipelines.connectors.postgres.data_source import (
    PostgresDataSource,
    ReadSettings,
)

if TYPE_CHECKING:
    from pathlib import Path


class Query:
    """What Spark does with a reader: offsets in a log, batches again after a restart."""

    def __init__(self, address: str, staging: Path, **changes: Any) -> None:
        given: dict[str, Any] = {
            "connection": address,
            "table": "orders",
            "column": "id",
            "staging": str(staging),
            "rows_max": 100,
            "poll_seconds": 0.01,
        }
        self.settings = ReadSettings(**(given | changes))
        self.offsets: list[dict[str, Any]] = []
        self.reader: Any = None
        self.restart()

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.stop()

    def restart(self) -> None:
        self.stop()
        source = PostgresDataSource(self.settings.as_options())
        self.reader = source.streamReader(source.schema())

    @property
    def start(self) -> dict[str, Any]:
        return self.offsets[-1] if self.offsets else self.reader.initialOffset()

    def plan(self, limit: Any = None) -> bool:
        """Ask for a batch and note its offset, as Spark does before it runs a batch."""
        limit = limit or self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(self.start, limit)))
        if end == self.start:
            return False
        self.offsets.append(end)
        return True

    def rows(self, number: int = -1) -> list[dict[str, Any]]:
        """The rows of a batch that was planned."""
        end = self.offsets[number]
        before = self.offsets[number - 1] if len(self.offsets) > 1 else self.reader.initialOffset()
        return [
            row
            for partition in self.reader.partitions(before, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]

    def items(self) -> list[str]:
        """The items of all new batches."""
        found = []
        while self.plan():
            found += [row["item"] for row in self.rows()]
            self.reader.commit(self.offsets[-1])
        return found
