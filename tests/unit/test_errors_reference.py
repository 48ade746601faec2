"""docs/reference/errors.md has every exception, as it is."""

from __future__ import annotations

from pathlib import Path

from millstream.errors.reference import render

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), (
        "docs/reference/errors.md is stale: python -m tests.unit.test_errors_reference writes it"
    )


def test_an_exception_is_told_with_its_code_and_whether_a_retry_helps() -> None:
    assert "| `NotLeaderOrFollower` | 6 `NOT_LEADER_OR_FOLLOWER` | yes |" in render()
    assert "| `DeliveryTimeout` | `OperationTimeout` |  |" in render()


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
