"""Type checkers accept what users write rightly and find what they write wrongly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api as mypy

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SECONDS_MAX = 240

pytestmark = pytest.mark.slow


def mistakes(tmp_path: Path) -> tuple[Path, set[int]]:
    """The file of mistakes, and the lines that have one."""
    path = tmp_path / "mistakes.py"
    text = (HERE / "mistakes.py.txt").read_text()
    path.write_text(text)
    marked = {number for number, line in enumerate(text.splitlines(), 1) if "# mistake" in line}
    return path, marked


def mypy_lines(path: Path) -> set[int]:
    """The lines in which mypy finds an error."""
    out, _, _ = mypy.run(
        ["--strict", "--config-file=", "--no-error-summary", "--output=json", str(path)]
    )
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {each["line"] for each in found if each["file"].endswith(path.name)}


def pyright_lines(path: Path) -> set[int]:
    """The lines in which pyright finds an error; skips where it cannot be had."""
    if shutil.which("node") is None:
        pytest.skip("pyright needs Node.js")
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, path],
        capture_output=True,
        text=True,
        cwd=path.parent,
        timeout=SECONDS_MAX,
        check=False,
    )
    if not ran.stdout.startswith("{"):
        pytest.skip(f"pyright cannot be installed here: {ran.stderr[-200:]}")
    found = json.loads(ran.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


def test_mypy_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    path, marked = mistakes(tmp_path)

    assert mypy_lines(path) == marked


def test_pyright_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    path, marked = mistakes(tmp_path)

    assert pyright_lines(path) == marked


def test_pyright_finds_nothing_in_good_code(tmp_path: Path) -> None:
    path = tmp_path / "user_code.py"
    path.write_text((HERE / "user_code.py").read_text())

    assert pyright_lines(path) == set()


def test_mypy_finds_nothing_in_good_code() -> None:
    assert mypy_lines(HERE / "user_code.py") == set()
