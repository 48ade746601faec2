"""What Spark says about a batch, as the few numbers that people want: rates, lag, state.

`runner` reads them for every batch that ends. Lag is how many records the sources have that were
not read yet, where their offsets are numbers of records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One batch of a query."""

    batch: int
    timestamp: str
    rows: int
    rows_per_second: float
    """That arrived."""
    processed_per_second: float
    duration_ms: int
    lag: int | None
    """None if no source tells."""
    watermark: str | None
    state_rows: int
    late_rows: int
    """Left out by the state's operators because they were behind the watermark."""
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Where the batch ends in topics: topic, partition, offset."""

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def batch_progress(told: Mapping[str, Any]) -> BatchProgress:
    """Read what Spark tells as JSON."""
    state = told.get("stateOperators") or ()
    return BatchProgress(
        batch=int(told["batchId"]),
        timestamp=str(told.get("timestamp", "")),
        rows=int(told.get("numInputRows") or 0),
        rows_per_second=_rate(told.get("inputRowsPerSecond")),
        processed_per_second=_rate(told.get("processedRowsPerSecond")),
        duration_ms=int((told.get("durationMs") or {}).get("triggerExecution", 0)),
        lag=_lag_of(told.get("sources") or ()),
        watermark=(told.get("eventTime") or {}).get("watermark"),
        state_rows=sum(int(each.get("numRowsTotal") or 0) for each in state),
        late_rows=sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in state),
        offsets=_offsets_of(told.get("sources") or ()),
    )


def _offsets_of(sources: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        for (topic, partition), offset in _partitions(source.get("endOffset")).items():
            found.setdefault(topic, {})[partition] = offset
    return found


def _rate(value: Any) -> float:
    """Spark says NaN or Infinity where no time has passed."""
    number = 0.0 if value is None else float(value)
    return round(number, 1) if 0 <= number < float("inf") else 0.0


def _lag_of(sources: Any) -> int | None:
    lags = [lag for each in sources if (lag := _lag(each)) is not None]
    return sum(lags) if lags else None


def _lag(source: Mapping[str, Any]) -> int | None:
    end = _partitions(source.get("endOffset"))
    latest = _partitions(source.get("latestOffset"))
    if not latest:
        return None
    return sum(max(offset - end.get(place, 0), 0) for place, offset in latest.items())


def _partitions(offset: Any) -> dict[tuple[str, str], int]:
    """Offsets as `{topic: {partition: offset}}`, the shape of Kafka's and of ours."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, dict):
        return {}
    return {
        (topic, partition): value
        for topic, partitions in offset.items()
        if isinstance(partitions, dict)
        for partition, value in partitions.items()
        if isinstance(value, int)
    }
