"""Measures of the source tree that keep the drawing true: lengths, docstrings, names.

`tests/tidy` holds the tree to them. This module only measures; it never changes a file.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("src", "tools", "tests", "benchmarks")
_PAGES = (ROOT / "docs", ROOT / "tests", ROOT / "benchmarks")
GENERATED = "src/millstream/protocol/messages/"
BANNED_MODULE_NAMES = frozenset({"utils", "util", "common", "helpers", "misc"})
BANNED_WORDS = frozenset(
    {"face", "faces", "haste", "hasten", "headroom", "kick", "lane", "lanes", "loan", "nudge"}
    | {"passer", "recall", "scout", "scouts", "twin", "twins", "unshut"}
)
"""Words that once had meanings of our own; `docs/internals/glossary.md` says what stands there."""
BANNED_PHRASES = ("measured in turns", "short way", "standing order")

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CYTHON_FUNCTION = re.compile(r"^(?P<indent>\s*)(?:async\s+def|def|cdef|cpdef)\b.*\(.*")
_C_FUNCTION = re.compile(r"^(?P<signature>\w[^;{}#]*\))\s*\{\n.*?^\}", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Function:
    """One function and how many lines it takes, decorators and docstring included."""

    path: str
    name: str
    lines: int


def source_files(*suffixes: str) -> list[Path]:
    """Hand-written sources with these suffixes, sorted."""
    found = (
        path
        for folder in SOURCES
        for suffix in suffixes
        for path in (ROOT / folder).rglob(f"*{suffix}")
        if "__pycache__" not in path.parts and ".egg-info" not in str(path)
    )
    return sorted(path for path in found if not relative(path).startswith(GENERATED))


def relative(path: Path) -> str:
    """The path as messages show it."""
    return path.relative_to(ROOT).as_posix()


def prose_files() -> list[Path]:
    """Pages of the project, sorted; not those that tell of the past."""
    found = [*ROOT.glob("*.md"), *(path for folder in _PAGES for path in folder.rglob("*.md"))]
    return sorted(path for path in found if path.name not in {"CHANGELOG.md", "RESULTS.md"})


def banned_words(path: Path) -> set[str]:
    """Which of the words that the tree has given up a file uses, also as parts of names."""
    text = path.read_text(encoding="utf-8")
    words = {word.lower() for word in _WORD.findall(text)}
    line = " ".join(text.lower().split())
    phrases = {phrase for phrase in BANNED_PHRASES if re.search(rf"\b{phrase}\b", line)}
    return (words & BANNED_WORDS) | phrases


def line_count(path: Path) -> int:
    """How many lines a file has."""
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> Iterator[Function]:
    """Every function of a Python, Cython or C source."""
    text = path.read_text(encoding="utf-8")
    return _READERS[path.suffix](path, text)


def _python_functions(path: Path, text: str) -> Iterator[Function]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield Function(relative(path), node.name, (node.end_lineno or first) - first + 1)


def _cython_functions(path: Path, text: str) -> Iterator[Function]:
    """By indentation: Cython is not Python, but its blocks are."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _CYTHON_FUNCTION.match(line)
        if match is None or line.lstrip().startswith(("cdef extern", "cdef class")):
            continue
        length = _block_length(lines[number:], len(match["indent"]))
        if length > 1:
            yield Function(relative(path), line.strip(), length)


def _c_functions(path: Path, text: str) -> Iterator[Function]:
    """By braces: a function's last one stands alone at the start of a line."""
    for match in _C_FUNCTION.finditer(text):
        name = " ".join(match["signature"].split())
        yield Function(relative(path), name, match[0].count("\n") + 1)


_READERS = {
    ".py": _python_functions,
    ".pyx": _cython_functions,
    ".c": _c_functions,
    ".h": _c_functions,
}


def _block_length(lines: list[str], indent: int) -> int:
    last = 0
    for number, line in enumerate(lines[1:], start=1):
        body = line.strip()
        closes_signature = body.startswith(")")
        if body and not closes_signature and len(line) - len(line.lstrip()) <= indent:
            break
        if body:
            last = number
    return last + 1


def lacks_docstring(path: Path) -> bool:
    """Whether a module does not say what lives in it."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None


def undocumented_public_names(path: Path) -> list[str]:
    """Public functions, classes and methods of a module without a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [name for name, node in _public_definitions(tree) if ast.get_docstring(node) is None]


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _public_definitions(
    parent: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, _Definition]]:
    for node in parent.body:
        if isinstance(node, _Definition) and not (
            node.name.startswith("_") or _speaks_elsewhere(node)
        ):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public_definitions(node, f"{prefix}{node.name}.")


def _speaks_elsewhere(node: _Definition) -> bool:
    """An overload or a setter: the definition it belongs to has the docstring."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name == "overload" or name.endswith(".setter") for name in decorators)
