"""Every Python example in the README and the docs runs as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages_with_examples() -> list[str]:
    return [
        page.relative_to(ROOT).as_posix()
        for page in PAGES
        if EXAMPLE.search(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("page", pages_with_examples())
def test_the_examples_of_a_page_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    examples = EXAMPLE.findall((ROOT / page).read_text(encoding="utf-8"))

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n\n".join(examples)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
