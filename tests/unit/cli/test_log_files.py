"""Files of a log are found by their names, in an order that people expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.log_files import find_files


def test_files_are_found_segment_by_segment(tmp_path: Path) -> None:
    (tmp_path / "orders-1").mkdir()
    for name in ("5.log", "0.timeindex", "0.index", "0.log"):
        number, _, extension = name.partition(".")
        (tmp_path / "orders-1" / f"{int(number):020d}.{extension}").touch()
    (tmp_path / "orders-1" / "unrelated").touch()
    (tmp_path / "meta.properties").touch()

    found = find_files([str(tmp_path)])

    assert [Path(file.path).name.lstrip("0") for file in found] == [
        "meta.properties", ".log", ".index", ".timeindex", "5.log",
    ]  # fmt: skip
    assert found[1].topic == "orders"
    assert found[0].topic is None


def test_what_is_no_file_of_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()

    with pytest.raises(UsageFault, match="no kind of file that is known"):
        find_files([str(tmp_path / "notes.txt")])
    with pytest.raises(CommandFailed, match="does not exist"):
        find_files([str(tmp_path / "gone.log")])
    with pytest.raises(CommandFailed, match="no files of a log"):
        find_files([str(tmp_path)])
