"""Every Python example in the README and the docs runs as it is printed.

Pages that use Spark are in test_spark_pages, those of the tutorial in test_tutorial.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, blocks_of, pages, pages_with_spark

if TYPE_CHECKING:
    from pathlib import Path


def examples_of(page: str) -> list[str]:
    return [each.text for each in blocks_of(ROOT / page) if each.language == "python"]


def pages_with_examples() -> list[str]:
    elsewhere = set(pages_with_spark())
    return [
        page
        for page in pages()
        if examples_of(page) and page not in elsewhere and not page.startswith("docs/tutorial/")
    ]


@pytest.mark.parametrize("page", pages_with_examples())
def test_the_examples_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n\n".join(examples_of(page))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
