"""Internals, drawings included, and docstrings name only code that exists.

A name is checked if it looks like one of ours: `CamelCase`, `Class.member` or `snake_case` in
backticks, and CamelCase words in drawings. It exists if some source defines it, here or in the
kernel. Names of other people's code are listed with their owner.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCES: Final = ("src", "tests", "tools", "benchmarks")
COMPILED: Final = ("*.pyx", "*.pxd", "*.h", "*.c")
PAGES: Final = sorted(
    str(path.relative_to(ROOT))
    for path in [*(ROOT / "docs" / "internals").rglob("*.md"), ROOT / "ARCHITECTURE.md"]
)
FOREIGN: Final = frozenset(
    {
        # Hadoop's and Spark's.
        "FileContext",
        "FileSystemBasedCheckpointFileManager",
        "LocalFileSystem",
        "RawLocalFileSystem",
        "SparkContext.textFile",
        "python_streaming_sink_runner",
        "write_into_data_source",
        # Python's, pydantic's, Java's, Linux', PostgreSQL's.
        "AssertionError",
        "BufferedProtocol",
        "dump_json",
        "OutOfMemoryError",
        "epoll_pwait2",
        "format_type",
        "tcp_rmem",
        # Kafka's names of APIs and of records.
        "ShareAcknowledge",
        "ShareFetch",
        "ShareSnapshot",
        "ShareUpdate",
    }
)

_CAMEL: Final = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+\b")
_SNAKE: Final = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
_TICKED: Final = re.compile(r"`([A-Za-z_][\w.]*?)(?:\(.*?\))?`")
_DRAWING: Final = re.compile(r"```text\n(.*?)```", re.DOTALL)
_BLOCK: Final = re.compile(r"```.*?```", re.DOTALL)
_MEMBER: Final = re.compile(r"\b([A-Z]\w+\.[a-z]\w+)\b")
_FILE: Final = re.compile(r"\.(?:py|md|pyx|toml)$")


@cache
def defined_names() -> frozenset[str]:
    """Modules, and whatever a source defines: classes, functions, variables, parameters, keys."""
    found: set[str] = set()
    for source in SOURCES:
        for path in (ROOT / source).rglob("*.py"):
            found.update(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                found.update(_defined_by(node))
        for pattern in COMPILED:
            for path in (ROOT / source).rglob(pattern):
                found.update(path.relative_to(ROOT).with_suffix("").parts)
                found.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(found)


def _defined_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            for each in names:
                yield from each.name.split(".")
        case ast.Constant(value=str(text)) if text.isidentifier():
            yield text


def unknown(names: set[str]) -> list[str]:
    known = defined_names()
    return sorted(
        name for name in names - FOREIGN if not all(part in known for part in name.split("."))
    )


def named_in_prose(text: str) -> set[str]:
    """Names in backticks that look like code of ours."""
    return {
        name
        for name in _TICKED.findall(text)
        if not _FILE.search(name)
        and (_CAMEL.fullmatch(name.partition(".")[0]) or _SNAKE.fullmatch(name))
    }


@pytest.mark.parametrize("page", PAGES)
def test_code_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    drawings = "\n".join(_DRAWING.findall(text))
    drawn = {*_CAMEL.findall(drawings), *_MEMBER.findall(drawings)}

    assert unknown(named_in_prose(_BLOCK.sub("", text)) | drawn) == []


def test_code_that_docstrings_name_exists() -> None:
    faults: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        if path.parent.name != "messages" and (wrong := unknown(set(_named_in_docstrings(path)))):
            faults[str(path.relative_to(ROOT))] = wrong

    assert faults == {}


def _named_in_docstrings(path: Path) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, documented):
            yield from named_in_prose(ast.get_docstring(node) or "")
