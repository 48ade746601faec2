"""When the JVM's way of setting permissions is changed, and that a session never depends on it."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # It has no types.

from millstream.spark.local_files import set_permissions_directly

RAW = "org.apache.hadoop.fs.RawLocalFileSystem"


@pytest.fixture
def spark() -> MagicMock:
    """A session on Hadoop's own local files, without its native library."""
    spark = MagicMock()
    spark._jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable.return_value = False
    getting = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal
    getting.return_value.getRaw().getClass().getName.return_value = RAW
    return spark


def is_changed(spark: MagicMock) -> bool:
    return bool(spark._jvm.org.codehaus.janino.ClassBodyEvaluator.called)


def test_permissions_are_set_directly_where_hadoop_would_start_processes(spark: MagicMock) -> None:
    set_permissions_directly(spark)

    assert is_changed(spark)


def test_the_native_library_is_left_alone(spark: MagicMock) -> None:
    spark._jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable.return_value = True

    set_permissions_directly(spark)

    assert not is_changed(spark)


def test_what_is_changed_or_another_is_left_alone(spark: MagicMock) -> None:
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal.return_value
    local.getRaw().getClass().getName.return_value = "com.example.QuickLocalFileSystem"

    set_permissions_directly(spark)

    assert not is_changed(spark)


def test_other_systems_than_posix_are_left_alone(
    spark: MagicMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.name", "nt")

    set_permissions_directly(spark)

    assert not is_changed(spark)


def test_a_session_goes_on_without_it(spark: MagicMock, caplog: pytest.LogCaptureFixture) -> None:
    evaluator = spark._jvm.org.codehaus.janino.ClassBodyEvaluator
    evaluator.return_value.createInstance.side_effect = Py4JError("no such compiler")

    set_permissions_directly(spark)

    assert "a process for each local file" in caplog.text
    assert "no such compiler" in caplog.text
    assert "spark.millstream.directPermissions is not in effect" in caplog.text


def test_a_session_without_a_jvm_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    set_permissions_directly(MagicMock(spec=["sql"]))

    assert "a process for each local file" in caplog.text
