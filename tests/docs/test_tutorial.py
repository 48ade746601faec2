"""docs/tutorial runs as it is printed, page by page; the Spark pages are in test_spark_pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import DOCS, Reader, pages_with_spark

if TYPE_CHECKING:
    from pathlib import Path

PAGES: Final = (
    "start-a-broker",
    "send-and-read",
    "share-the-work",
    "tables",
    "test-your-code",
    "what-next",
)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_runs_from_its_first_page_to_its_last(tmp_path: Path) -> None:
    reader = Reader.with_a_free_port(tmp_path)

    with reader.cleaning_up("data"):
        for page in PAGES:
            reader.follow(DOCS / "tutorial" / f"{page}.md")


def test_no_page_of_the_tutorial_is_left_out() -> None:
    with_spark = {page for page in pages_with_spark() if page.startswith("docs/tutorial/")}
    written = {f"docs/tutorial/{path.name}" for path in (DOCS / "tutorial").glob("*.md")}

    followed = {f"docs/tutorial/{page}.md" for page in PAGES} | with_spark
    assert followed == written - {"docs/tutorial/index.md"}
