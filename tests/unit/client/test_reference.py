"""docs/reference/client-settings.md has every setting of the clients, as it is."""

from __future__ import annotations

from pathlib import Path

from millstream.client.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "client-settings.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "docs/reference/client-settings.md is stale: python -m tests.unit.client.test_reference "
        "writes it"
    )


def test_a_setting_is_told_in_seconds_with_both_names() -> None:
    assert "| `linger` | `linger.ms` | 0.005 s |" in render()
    assert "| `value_serializer` | `value.serializer` |" in render()


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
