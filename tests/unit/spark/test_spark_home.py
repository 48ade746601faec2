"""A SPARK_HOME without archives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.spark import sessions, spark_home


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something that looks like PySpark, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = tmp_path / "pyspark"
    for each in ("bin", "jars", "python/lib", "python/pyspark"):
        (package / each).mkdir(parents=True)
    (package / "python/lib/pyspark.zip").touch()
    return package


def test_everything_is_linked_but_the_archives(package: Path) -> None:
    home = spark_home.home_without_archives(package)

    assert home is not None
    assert (home / "jars").resolve() == package / "jars"
    assert (home / "python" / "pyspark").is_dir()
    assert not (home / "python" / "lib").exists()
    assert spark_home.home_without_archives(package) == home


def test_links_to_a_package_that_is_gone_are_made_anew(package: Path) -> None:
    home = spark_home.home_without_archives(package)
    assert home is not None
    (home / "jars").unlink()

    assert spark_home.home_without_archives(package) == home
    assert (home / "jars").is_dir()


def test_of_two_that_make_it_at_once_one_wins(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def rename_late(made: Path, home: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        spark_home.home_without_archives(package)
        return rename(made, home)

    monkeypatch.setattr(Path, "rename", rename_late)

    home = spark_home.home_without_archives(package)

    assert home is not None
    assert [each.name for each in home.parent.iterdir()] == [home.name]


def test_without_a_cache_to_write_to_spark_starts_as_it_is(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(package / "file"))

    assert spark_home.home_without_archives(package) is None


def test_a_spark_that_was_not_installed_with_pip_stays_as_it_is(tmp_path: Path) -> None:
    assert spark_home.home_without_archives(tmp_path) is None


def test_variables_of_the_user_stay_and_ours_last_only_for_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="whose home it is")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", "/their/spark")
    monkeypatch.setenv("JAVA_HOME", "/their/java")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr("millstream.spark.java.environment", lambda: {"JAVA_HOME": "/our/java"})

    with sessions._environment(sessions._variables("local[2]")):
        assert os.environ["SPARK_HOME"] == "/their/spark"
        assert os.environ["JAVA_HOME"] == "/our/java"
        assert "PYSPARK_PYTHON" in os.environ

    assert os.environ["JAVA_HOME"] == "/their/java"
    assert "PYSPARK_PYTHON" not in os.environ
    assert "SPARK_HOME" not in sessions._variables("spark://host:7077")
