"""The documentation as a site: every page has a place in it, and every link leads somewhere.

Without mkdocs, so that it is part of every run; `make docs` builds the site itself.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT, pages

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURATION: Final = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
BESIDE: Final = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")
_FENCE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def pages_in_navigation(entries: list[Any]) -> list[str]:
    found: list[str] = []
    for entry in entries:
        for target in entry.values():
            found += pages_in_navigation(target) if isinstance(target, list) else [target]
    return found


def prose_of(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors_of(path: Path) -> set[str]:
    """What the headings are called in a link, in the site and where Markdown is shown as it is."""
    return {anchor for title in _HEADING.findall(prose_of(path)) for anchor in _slugs(title)}


def _slugs(title: str) -> set[str]:
    words = re.sub(r"[^\w\s-]", "", title.lower()).strip()
    in_the_site, as_it_is = re.sub(r"[\s-]+", "-", words), re.sub(r"\s", "-", words)
    return {in_the_site} & {as_it_is}


def links_of(path: Path) -> list[str]:
    links = _LINK.findall(_CODE.sub("", prose_of(path)))
    return [link for link in links if not re.match(r"[a-z]+:", link)]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = Counter(pages_in_navigation(CONFIGURATION["nav"]))

    assert listed == Counter(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


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
    """mkdocs knows nothing outside of docs."""
    targets = [(path.parent / link.partition("#")[0]).resolve() for link in links_of(path)]

    assert [each for each in targets if DOCS not in each.parents] == []


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_lists_and_tables_stand_apart(path: Path) -> None:
    """Without an empty line before it, the site shows a list or a table as running text."""
    lines = prose_of(path).splitlines()
    stuck = [
        line
        for before, line in pairwise(lines)
        if re.match(r"([-*] |\d+\. |\|)", line) and re.match(r"[^\s|*\-#\d>]", before)
    ]

    assert stuck == []
