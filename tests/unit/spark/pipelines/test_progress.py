"""What Spark says of a batch, in the numbers that people want."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.spark.pipelines.progress import batch_progress

TOLD: dict[str, Any] = {
    "batchId": 4,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "numInputRows": 12,
    "inputRowsPerSecond": 3.14159,
    "processedRowsPerSecond": 24.0,
    "durationMs": {"triggerExecution": 500, "addBatch": 400},
    "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 7, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 1, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {
            "endOffset": {"orders": {"0": 10, "1": 4}},
            "latestOffset": '{"orders": {"0": 15, "1": 4, "2": 3}}',
        },
        {"endOffset": {"logOffset": 3}, "latestOffset": None},
    ],
}


def test_a_batch_in_numbers() -> None:
    found = batch_progress(TOLD)

    assert (found.batch, found.rows, found.duration_ms) == (4, 12, 500)
    assert (found.rows_per_second, found.processed_per_second) == (3.1, 24.0)
    assert (found.state_rows, found.late_rows) == (8, 2)
    assert found.watermark == "2026-01-01T00:00:00.000Z"
    assert found.offsets == {"orders": {"0": 10, "1": 4}}


def test_lag_is_what_the_topics_have_and_was_not_read() -> None:
    assert batch_progress(TOLD).lag == 8


@pytest.mark.parametrize("offset", [None, 5, "no json", '"text"', {"orders": 3}])
def test_sources_that_are_no_topics_have_no_lag(offset: Any) -> None:
    sources = [{"endOffset": offset, "latestOffset": offset}]

    found = batch_progress({**TOLD, "sources": sources})

    assert found.lag is None
    assert found.offsets == {}


def test_numbers_that_spark_cannot_tell_are_nought() -> None:
    bare = batch_progress(
        {"batchId": 0, "inputRowsPerSecond": float("nan"), "processedRowsPerSecond": float("inf")}
    )

    assert (bare.rows, bare.rows_per_second, bare.processed_per_second) == (0, 0.0, 0.0)
    assert bare.watermark is None
