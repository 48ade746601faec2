"""The page that follows a record names functions that are where it says."""

from __future__ import annotations

import re

import pytest

from tools import tidy

PAGE = tidy.ROOT / "docs" / "internals" / "the-way-of-a-record.md"
_ROW = re.compile(
    r"^\| [^|]+ \| `([\w.]+)` \| `(src/[\w/.]+)` \|(?: (?:`([\w.]+)` \|)?)?", re.MULTILINE
)
STEPS = [(match[1], match[2]) for match in _ROW.finditer(PAGE.read_text())]
IN_FULL = sorted({match[3] for match in _ROW.finditer(PAGE.read_text()) if match[3]})


def defines(text: str, name: str) -> bool:
    """Whether a source in Python, Cython or C has a function, in its class if one is named."""
    owner, _, function = name.rpartition(".")
    if owner:
        start = re.search(rf"^(?:cdef )?class {owner}\b", text, re.MULTILINE)
        if start is None:
            return False
        end = re.search(r"^(?:cdef )?class \w", text[start.end() :], re.MULTILINE)
        text = text[start.end() :][: end.start() if end else None]
    python = rf"^ *(?:def|cdef|cpdef) (?:[\w *]+ )?\*?{function}\("
    c = rf"^[\w *]+\b\*?{function}\("
    return re.search(python, text, re.MULTILINE) is not None or (
        not owner and re.search(c, text, re.MULTILINE) is not None
    )


def test_the_page_has_steps_of_both_ways() -> None:
    assert len(STEPS) > 20
    assert len(IN_FULL) > 8


@pytest.mark.parametrize(("name", "path"), STEPS)
def test_each_step_is_a_function_of_its_file(name: str, path: str) -> None:
    assert defines((tidy.ROOT / path).read_text(), name)


@pytest.mark.parametrize("name", IN_FULL)
def test_each_step_of_the_full_path_is_a_function(name: str) -> None:
    sources = [
        *(tidy.ROOT / "src" / "millstream").rglob("*.py"),
        *(tidy.ROOT / "src" / "millstream").rglob("*.pyx"),
    ]
    assert any(defines(path.read_text(), name) for path in sources)


def test_a_function_that_is_gone_is_noticed() -> None:
    text = "class A:\n    def b(self) -> None: ...\n\n\nclass C:\n    def d(self) -> None: ..."

    assert defines(text, "A.b")
    assert not defines(text, "A.d")
    assert not defines(text, "A.e")
    assert not defines(text, "E.b")
