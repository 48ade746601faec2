"""The Python files of a pipeline are imported, and nothing else is touched."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidPipeline

pytest.importorskip("pyspark", reason="what libraries define travels as PySpark sends it")

from millstream.spark.pipelines.modules import import_libraries

if TYPE_CHECKING:
    from pathlib import Path


def test_the_program_that_runs_beside_its_libraries_stays_the_main_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ModuleType("__main__")
    program.__file__ = str(tmp_path / "run.py")
    monkeypatch.setitem(sys.modules, "__main__", program)
    library = tmp_path / "functions.py"
    library.write_text("def double(rows): return rows\n")

    names = import_libraries([library])

    assert sys.modules.get("__main__") is program
    assert callable(names["double"])


def test_files_of_one_name_do_not_take_each_others_place(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files.append(tmp_path / name / "functions.py")
        files[-1].write_text(f"def of_{name}(rows): return rows\n")

    names = import_libraries(files)

    modules = {sys.modules[names[each].__module__].__file__ for each in ("of_a", "of_b")}
    assert modules == {str(each) for each in files}


def test_what_cannot_be_imported_says_why(tmp_path: Path) -> None:
    library = tmp_path / "functions.py"
    library.write_text("1 / 0\n")

    with pytest.raises(InvalidPipeline, match=r"functions\.py cannot be imported: ZeroDivision"):
        import_libraries([library])
