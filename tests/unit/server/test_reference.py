"""docs/reference/apis.md says what is really served."""

from __future__ import annotations

from pathlib import Path

from millstream.server.reference import render_apis
from tests.unit.server.harness import Broker
from tests.unit.server.test_controller_apis import Node

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "apis.md"


def rendered() -> str:
    """The page as it should be."""
    return render_apis(Broker().apis.apis, Node().apis.apis)


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), (
        "docs/reference/apis.md is stale: python -m tests.unit.server.test_reference writes it"
    )


def test_the_page_names_what_is_missing() -> None:
    assert "StreamsGroupHeartbeat" in rendered().split("Not yet:")[1]


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
