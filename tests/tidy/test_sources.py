"""The tree keeps to its own rules: lengths, docstrings, names, generated code."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from setuptools.config.pyprojecttoml import read_configuration

import millstream
from tools import tidy

if TYPE_CHECKING:
    from pathlib import Path

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70


def test_no_file_is_longer_than_the_hard_limit() -> None:
    too_long = {
        tidy.relative(path): tidy.line_count(path)
        for path in tidy.source_files(".py", ".pyx", ".pxd", ".pyi", ".c", ".h")
        if tidy.line_count(path) > FILE_LINES_MAX
    }

    assert too_long == {}


def test_no_function_is_longer_than_the_limit() -> None:
    too_long = [
        function
        for path in tidy.source_files(".py", ".pyx", ".c", ".h")
        for function in tidy.functions(path)
        if function.lines > FUNCTION_LINES_MAX
    ]

    assert too_long == []


def test_functions_of_c_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "wire.h"
    source.write_text(
        "typedef struct {\n    int kind;\n} ms_fault;\n\n"
        "static inline int ms_one(void) { return 1; }\n\n"
        "int ms_two(\n    int n)\n{\n    if (n) {\n        n++;\n    }\n    return n;\n}\n"
    )
    monkeypatch.setattr(tidy, "ROOT", tmp_path)

    assert list(tidy.functions(source)) == [tidy.Function("wire.h", "int ms_two( int n)", 8)]


def test_every_module_says_what_lives_in_it() -> None:
    silent = [tidy.relative(p) for p in tidy.source_files(".py") if tidy.lacks_docstring(p)]

    assert silent == []


def test_every_public_name_of_the_package_has_a_docstring() -> None:
    missing = {
        tidy.relative(path): names
        for path in tidy.source_files(".py")
        if tidy.relative(path).startswith("src/")
        and (names := tidy.undocumented_public_names(path))
    }

    assert missing == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [
        tidy.relative(path)
        for path in tidy.source_files(".py", ".pyx")
        if path.stem in tidy.BANNED_MODULE_NAMES or path.parent.name in tidy.BANNED_MODULE_NAMES
    ]

    assert vague == []


OF_THE_TRADE = {
    # A checksum is computed in several lanes at once; that is what everybody calls them.
    "src/millstream/_accel/codec/checksum.c": {"lane", "lanes"},
    "src/millstream/records/plain/crc32c.py": {"lane", "lanes"},
}
ABOUT_WORDS = frozenset({"tools/tidy.py", "tests/tidy/test_sources.py"})


def test_words_that_were_given_up_stay_away() -> None:
    files = [*tidy.source_files(".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".txt")]
    found = {
        name: words
        for path in [*files, *tidy.prose_files()]
        if (name := tidy.relative(path)) not in ABOUT_WORDS
        and (words := tidy.banned_words(path) - OF_THE_TRADE.get(name, set()))
    }

    assert found == {}


@pytest.mark.parametrize("line", ["class FetchLane:", "ms_kick_all(", "measured in\nturns"])
def test_words_are_found_in_names_and_sentences(line: str, tmp_path: Path) -> None:
    source = tmp_path / "source.pyx"
    source.write_text(line)

    assert tidy.banned_words(source)


@pytest.mark.parametrize("package", ["millstream", "millstream.errors", "millstream.protocol"])
def test_exported_names_exist(package: str) -> None:
    code = f"import {package} as p; [getattr(p, name) for name in getattr(p, '__all__', [])]"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_of_the_package_stands_in_one_place() -> None:
    project = read_configuration(tidy.ROOT / "pyproject.toml")["project"]

    assert project["version"] == millstream.__version__
    assert f'"{millstream.__version__}"' not in (tidy.ROOT / "pyproject.toml").read_text()


def test_generated_messages_are_current() -> None:
    subprocess.run([sys.executable, "-m", "tools.generate_messages", "--check"], check=True)
