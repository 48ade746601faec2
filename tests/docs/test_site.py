"""The documentation as a site: every page has a place in it, and every link leads somewhere.

Without Sphinx, so that it is part of every run; `make docs` builds the site itself.
"""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import DOCS, ROOT, pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST: Final = DOCS / "index.md"
SECTIONS: Final = sorted(path for path in DOCS.rglob("index.md") if path != FIRST)
BESIDE: Final = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_TOCTREE: Final = re.compile(r"^```\{toctree\}\n(?::\w+:\n)*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TARGET: Final = re.compile(r"(?:.+ <)?([\w/-]+)>?")
_API: Final = re.compile(r"^\.\. (currentmodule|autoclass|autofunction):: ([\w.]+)$", re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def entries_of(page: Path) -> list[Path]:
    """The pages that a page's table of contents names, in order."""
    return [
        (page.parent / f"{named[1]}.md").resolve()
        for table in _TOCTREE.findall(page.read_text(encoding="utf-8"))
        for line in table.splitlines()
        if line and (named := _TARGET.fullmatch(line))
    ]


def navigation(page: Path) -> Iterator[Path]:
    """A page, and whatever is reached from it by tables of contents."""
    yield page
    for entry in entries_of(page):
        yield from navigation(entry)


def names_in_the_reference() -> set[tuple[str, str]]:
    """The modules of docs/reference/api.md, each with the names that are described under it."""
    text = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    module, found = "", set()
    for directive, name in _API.findall(text):
        if directive == "currentmodule":
            module = name
        elif "." not in name:
            found.add((module, name))
    return found


def prose_of(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors_of(path: Path) -> set[str]:
    """What the headings are called in a link, in the site and where Markdown is shown as it is."""
    return {_slug(title) for title in _HEADING.findall(prose_of(path))}


def _slug(title: str) -> str:
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


def links_of(path: Path) -> list[str]:
    links = _LINK.findall(_CODE.sub("", prose_of(path)))
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def test_every_page_is_in_the_navigation_once() -> None:
    assert Counter(navigation(FIRST)) == Counter(DOCS.rglob("*.md"))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda path: path.parent.name)
def test_a_section_links_to_its_pages_in_the_order_of_the_navigation(section: Path) -> None:
    """So that it can be read where nobody knows what a toctree is."""
    linked = [(section.parent / link).resolve() for link in links_of(section)]

    assert linked == entries_of(section)


@pytest.mark.parametrize("module", ["millstream", "millstream.testing", "millstream.spark"])
def test_every_public_name_is_in_the_reference_of_the_api(module: str) -> None:
    public = {name for name in import_module(module).__all__ if not name.startswith("__")}

    assert {name for place, name in names_in_the_reference() if place == module} == public


@pytest.mark.parametrize("page", [*pages(), *BESIDE])
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    path = ROOT / page
    broken = []
    for link in links_of(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.is_file() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_a_page_of_the_site_links_to_pages_of_the_site_only(path: Path) -> None:
    """Sphinx knows nothing outside of docs."""
    targets = [(path.parent / link.partition("#")[0]).resolve() for link in links_of(path)]

    assert [each for each in targets if DOCS not in each.parents] == []


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_lists_and_tables_stand_apart(path: Path) -> None:
    """Without an empty line before it, a list or a table may be shown as running text."""
    lines = prose_of(path).splitlines()
    stuck = [
        line
        for before, line in pairwise(lines)
        if re.match(r"([-*] |\d+\. |\|)", line) and re.match(r"[^\s|*\-#\d>]", before)
    ]

    assert stuck == []
