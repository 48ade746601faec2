"""The generated files on disk: what they should contain, and making it so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.generate_messages.classes import module_source
from tools.generate_messages.indexes import api_keys_source, package_source, record_types_source
from tools.generate_messages.schema import ROOT, read_schema

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = ROOT / "src/millstream/protocol/messages"


def expected_files() -> dict[str, str]:
    """Every generated file by name."""
    files = read_schema()
    return {
        "__init__.py": package_source(files),
        "api_keys.py": api_keys_source(files),
        "record_types.py": record_types_source(files),
        **{f"{file.module}.py": module_source(file) for file in files},
    }


def stale_files(folder: Path = MESSAGES) -> list[str]:
    """The names of files that are missing, differ, or should not be there."""
    expected = expected_files()
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    names = expected.keys() | found.keys()
    return sorted(name for name in names if expected.get(name) != found.get(name))


def write_files(folder: Path = MESSAGES) -> list[str]:
    """Bring the folder up to date; returns the names that changed."""
    stale = stale_files(folder)
    expected = expected_files()
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in expected:
            (folder / name).write_text(expected[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return stale
