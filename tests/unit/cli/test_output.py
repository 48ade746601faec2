"""How things are printed: for people, for pipes, for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.cli.output import (
    counted,
    note,
    show_facts,
    show_json_line,
    show_long_table,
    show_rows,
)

ROWS: list[dict[str, Any]] = [
    {"name": "a", "ids": [1, 2], "on": True},
    {"name": "longer", "ids": [], "on": None},
]
COLUMNS = {"name": "NAME", "ids": "IDS", "on": "ON"}


def test_a_pipe_gets_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, COLUMNS, as_json=False)

    assert capsys.readouterr().out == "NAME    IDS  ON\na       1,2  yes\nlonger  -    -\n"


def test_a_terminal_gets_the_same_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    show_rows([{"name": "[red]not markup[/]"}], {"name": "NAME"}, as_json=False)

    assert "[red]not markup[/]" in capsys.readouterr().out


def test_programs_get_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(ROWS, {"name": "NAME"}, as_json=True)
    assert json.loads(capsys.readouterr().out) == ROWS

    show_json_line(ROWS)
    assert capsys.readouterr().out.count("\n") == 1


def test_facts_stand_under_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    show_facts({"cluster_id": "x", "on": False}, as_json=False)
    assert capsys.readouterr().out == "cluster id: x\non:         no\n"

    show_facts({"cluster_id": "x"}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"cluster_id": "x"}


def test_a_long_table_is_printed_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ({"n": number} for number in range(450))

    show_long_table(rows, {"n": "N"}, lambda row: ["  last"] if row["n"] == 449 else [])

    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == ("N", "0", "449", "  last")
    assert len(lines) == 452


def test_an_empty_long_table_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_long_table([], {"n": "N"})

    assert capsys.readouterr().out == ""


def test_programs_are_spared_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    note("done", as_json=True)
    assert capsys.readouterr().out == ""
    note("done", as_json=False)
    assert capsys.readouterr().out == "done\n"


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 records"), (1, "1 record"), (1234, "1,234 records")]
)
def test_counts_agree_with_their_nouns(count: int, expected: str) -> None:
    assert counted(count, "record") == expected
    assert counted(2, "batch", "batches") == "2 batches"
