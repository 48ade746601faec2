"""docs/reference/pipeline.md has every key of definitions, as it is."""

from __future__ import annotations

from pathlib import Path

from millstream.spark.pipelines.reference import render

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "pipeline.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "docs/reference/pipeline.md is stale: "
        "python -m tests.unit.spark.pipelines.test_reference writes it"
    )


def test_keys_have_their_types_and_defaults() -> None:
    page = render()

    assert "| `backoff` | number | `1` |" in page
    assert "| `truncate` | true or false | `true` |" in page
    assert "| `expectations` | list: see expectation |" in page
    assert "| `select` | names to texts | must be given |" in page


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
