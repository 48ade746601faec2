"""How one query fares: it waits, runs, fails, is started again, and ends. It is told the time.

`runner` has one for each query and does what it says. It has neither clock nor Spark.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.spark.pipelines.definition import Restart
    from millstream.spark.pipelines.progress import BatchProgress


class QueryState(Enum):
    """Where a query is in its life."""

    WAITING = "waiting"
    """For the queries whose topics it reads."""
    RUNNING = "running"
    BACKING_OFF = "backing off"
    """It failed and is started again in a while."""
    FINISHED = "finished"
    """All available data is done."""
    STOPPED = "stopped"
    FAILED = "failed"
    """It failed too often."""


_ENDS: Final = frozenset({QueryState.FINISHED, QueryState.STOPPED, QueryState.FAILED})
ENDS_OF_QUERIES: Final = frozenset(each.value for each in _ENDS)
_DOUBLINGS_MAX: Final = 64


class QuerySupervisor:
    """The life of one query."""

    def __init__(self, name: str, restart: Restart) -> None:
        self.name = name
        self.state = QueryState.WAITING
        self.restarts = 0
        """In all, for people."""
        self.rows = 0
        self.batches = 0
        self.last: BatchProgress | None = None
        self.error: str | None = None
        self._restart = restart
        self._failures_in_a_row = 0
        self._started_ms = 0
        self._due_ms = 0
        self._has_worked = False

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again."""
        return self.state in _ENDS

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time to start it again."""
        return self.state is QueryState.BACKING_OFF and now_ms >= self._due_ms

    def started(self, now_ms: int) -> None:
        """It was started, for the first time or again."""
        self.state = QueryState.RUNNING
        self._started_ms = now_ms
        self._has_worked = False

    def progressed(self, batch: BatchProgress) -> None:
        """A batch is done, or Spark says that there is none."""
        if self.last is None or batch.batch > self.last.batch or batch.rows:
            self.batches += 1
            self.rows += batch.rows
        self.last = batch
        self._has_worked = True

    def failed(self, error: str, now_ms: int, *, may_restart: bool = True) -> None:
        """It failed: start it again later, or give up."""
        ran_s = (now_ms - self._started_ms) / 1000
        if self._has_worked and ran_s >= self._restart.healthy_after:
            self._failures_in_a_row = 0
        self._failures_in_a_row += 1
        self.error = error
        if not may_restart or self._failures_in_a_row > self._restart.limit:
            self.state = QueryState.FAILED
            return
        self.state = QueryState.BACKING_OFF
        self.restarts += 1
        self._due_ms = now_ms + int(self._backoff_s() * 1000)

    def _backoff_s(self) -> float:
        # More doublings lead nowhere, and too many to no float.
        doublings = min(self._failures_in_a_row - 1, _DOUBLINGS_MAX)
        return min(self._restart.backoff * float(1 << doublings), self._restart.backoff_max)

    def finished(self) -> None:
        """It did all that was there."""
        self.state = QueryState.FINISHED

    def stopped(self) -> None:
        """It was asked to stop; what has ended before stays as it is."""
        if not self.has_ended:
            self.state = QueryState.STOPPED

    def facts(self) -> Mapping[str, Any]:
        """For the status and for programs."""
        return {
            "query": self.name,
            "state": self.state.value,
            "rows": self.rows,
            "batches": self.batches,
            "restarts": self.restarts,
            "error": self.error,
            "last": None if self.last is None else self.last.facts(),
        }
