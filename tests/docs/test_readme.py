"""README.md says what is: its commands run, and its figures were measured."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import ROOT, Reader, blocks_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docs.pages import Block

README: Final = ROOT / "README.md"
RESULTS: Final = ROOT / "benchmarks" / "RESULTS.md"
_ROW: Final = re.compile(
    r"^\| ([^|*]+) \| ([\d,.]+) (\S+) \| ([\d,.]+) (\S+) \| \**([\d.]+)\** \|$"
)
_REVISION: Final = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{7}\b")


def compared() -> str:
    text = README.read_text(encoding="utf-8")
    return text[text.index("## Compared with") : text.index("## Limits")]


def rows() -> list[tuple[str, ...]]:
    return [found.groups() for line in compared().splitlines() if (found := _ROW.match(line))]


def test_the_comparison_has_some_rows_and_each_can_be_read() -> None:
    written = re.findall(r"^\| [^|*]", compared(), re.MULTILINE)

    assert 8 <= len(written) <= 14
    assert len(rows()) == len(written)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_figure_of_the_comparison_is_a_measured_one(row: tuple[str, ...]) -> None:
    measured = set(re.findall(r"[\d,.]*\d", RESULTS.read_text(encoding="utf-8")))

    assert {row[1], row[3]} <= measured, "take the figures from benchmarks/RESULTS.md"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_ratio_of_the_comparison_follows_from_its_figures(row: tuple[str, ...]) -> None:
    ours, theirs = (float(text.replace(",", "")) for text in (row[1], row[3]))
    is_rate = row[2].endswith("/s")
    told = row[5]
    decimals = len(told.partition(".")[2])

    assert row[2] == row[4]
    assert told == f"{ours / theirs if is_rate else theirs / ours:.{decimals}f}"


def test_the_comparison_names_revisions_that_the_results_name() -> None:
    named = set(_REVISION.findall(compared()))

    assert named
    assert named <= set(_REVISION.findall(RESULTS.read_text(encoding="utf-8")))


@pytest.mark.integration
@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    reader = Reader.with_a_free_port(tmp_path)
    commands_of_a_shell = (each for each in blocks_of(README) if each.language == "sh")
    start, commands = (each for each in commands_of_a_shell if "millstream server" in each.text)

    with reader.cleaning_up("data"):
        reader.run(here(start, tmp_path, after=" &"), ["bash", "-euo", "pipefail", "-c"])
        told = reader.run(
            here(commands, tmp_path, before="shopt -s expand_aliases\n"),
            ["bash", "-euo", "pipefail", "-c"],
        )

    assert "orders: 2 records" in told
    assert told.rstrip().endswith("stopped")


def here(block: Block, directory: Path, before: str = "", after: str = "") -> Block:
    """The block with the reader's directory instead of the one in /tmp."""
    text = block.text.replace("/tmp/millstream", str(directory / "data"))
    text = text.replace("127.0.0.1:9092", "localhost:9092")
    return block.with_text(f"{before}{text.rstrip()}{after}\n")
