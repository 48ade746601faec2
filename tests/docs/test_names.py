"""What the pages name is there: files, modules, storeys, targets of make."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import Final

import pytest

from tests.docs.pages import ROOT, blocks_of, pages

BESIDE: Final = ("ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")
SOURCES: Final = ("src", "tests", "tools", "benchmarks", "schema", "docs")
_FILE: Final = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:pyx?|pxd|h|md|toml|txt|yaml))`")
_FOLDER: Final = re.compile(r"`((?:[\w-]+/)+)`")
_MODULE: Final = re.compile(r"python -m ((?:tools|tests|benchmarks)(?:\.\w+)+)")
_TARGET: Final = re.compile(r"(?:`|^|\$ )make ([a-z][a-z-]+)", re.MULTILINE)
WRITTEN_BY_INIT: Final = {"pipeline.yaml", "functions.py"}
"""Files of the reader's own, which `millstream pipeline init` writes."""
PROSE: Final = [*pages(), *BESIDE]


@cache
def known_places() -> frozenset[str]:
    """Every file and folder by each ending of its path: `a/b.py` and `b.py`."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for source in SOURCES:
        found += [path for path in (ROOT / source).rglob("*") if "__pycache__" not in path.parts]
        found.append(ROOT / source)
    paths = [("/".join(path.relative_to(ROOT).parts), path.is_dir()) for path in found]
    return frozenset(
        "/".join(path.split("/")[start:]) + ("/" if is_folder else "")
        for path, is_folder in paths
        for start in range(path.count("/") + 1)
    )


@pytest.mark.parametrize("page", PROSE)
def test_files_and_folders_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {*_FILE.findall(text), *_FOLDER.findall(text)}
    of_the_reader = {block.file_name for block in blocks_of(ROOT / page)} | WRITTEN_BY_INIT

    assert sorted(named - of_the_reader - known_places()) == []


@pytest.mark.parametrize("page", PROSE)
def test_commands_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    modules = {module.replace(".", "/") for module in _MODULE.findall(text)}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert [m for m in modules if not {f"{m}.py", f"{m}/__main__.py"} & known_places()] == []
    assert sorted(set(_TARGET.findall(text)) - targets) == []


def test_the_architecture_draws_the_storeys_that_the_imports_are_held_to() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn = re.search(r"```text\n( cli\n.*?)```", page, re.DOTALL)

    assert drawn is not None
    assert [line.strip() for line in drawn[1].splitlines()] == [
        re.sub(r"[()]", "", layer) for layer in layers if layer != "__main__"
    ]


def test_the_architecture_has_every_package() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "src" / "millstream").glob("*/__init__.py")}

    assert {name for name in packages if f"`{name}/`" not in page} == set()
