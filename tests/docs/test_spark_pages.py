"""The examples that use Spark run as they are printed, all pages in one session's JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, pages_with_spark

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_examples_that_use_spark_run_as_printed(tmp_path: Path) -> None:
    pages = pages_with_spark()

    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.docs.one_session", *pages],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-8000:]
    assert [line for line in run.stdout.splitlines() if line.startswith("at ")] == [
        f"at {page}" for page in pages
    ]
