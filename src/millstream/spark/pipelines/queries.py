"""A streaming query of Spark as `runner` sees it: is it there, what did it do, let it end well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from millstream.spark.pipelines.progress import batch_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.spark.pipelines.progress import BatchProgress


class RunningQuery:
    """One start of a query."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self._last_told = ""
        self._batch_at_stop: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return bool(self._query.isActive)

    @property
    def exception(self) -> Exception | None:
        """Why it ended, if it failed."""
        error: Exception | None = self._query.exception()
        return error

    def new_progress(self) -> Iterator[BatchProgress]:
        """What Spark said since the last call, in order."""
        last = self._query.lastProgress
        if last is None or _key(last) == self._last_told:
            return
        recent = list(self._query.recentProgress)
        known = [_key(each) for each in recent]
        begin = known.index(self._last_told) + 1 if self._last_told in known else 0
        for each in recent[begin:]:
            self._last_told = _key(each)
            yield batch_progress(_as_mapping(each))

    def note_batch(self) -> None:
        """It is to stop: remember where it is."""
        self._batch_at_stop = self._last_batch()

    @property
    def is_between_batches(self) -> bool:
        """Whether the batch of `note_batch` is done, or there was none."""
        if not self.is_active or not self._query.status["isTriggerActive"]:
            return True
        return self._last_batch() != self._batch_at_stop

    def _last_batch(self) -> int | None:
        last = self._query.lastProgress
        return None if last is None else int(_as_mapping(last)["batchId"])

    def stop(self) -> None:
        """End it now."""
        self._query.stop()


def _as_mapping(told: Any) -> dict[str, Any]:
    """PySpark gives an object that knows its JSON."""
    mapping: dict[str, Any] = json.loads(told.json)
    return mapping


def _key(told: Any) -> str:
    """Names one report: batches may be told more than once while nothing arrives."""
    mapping = _as_mapping(told)
    return f"{mapping['runId']}/{mapping['batchId']}/{mapping['timestamp']}"
