"""docs/reference/spark-options.md has every option of the format, as it is."""

from __future__ import annotations

from pathlib import Path

from millstream.spark.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark-options.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "docs/reference/spark-options.md is stale: python -m millstream.spark.reference prints it"
    )


def test_options_are_told_with_their_defaults() -> None:
    assert "| `startingOffsetsByTimestampStrategy` | `error` |" in render()
    assert "| `idleWaitMs` | `200` ms |" in render()
