"""A session as `millstream.spark.session` makes it."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.spark import local_files, session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_executors_import_millstream_and_the_settings_hold(spark: SparkSession) -> None:
    def versions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        import millstream

        for batch in batches:
            yield pyarrow.record_batch({"v": [millstream.__version__] * batch.num_rows})

    found = spark.range(3).mapInArrow(versions, "v string").distinct().collect()

    assert [row.v for row in found] == ["0.1.0"]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_local_files_are_left_to_hadoop_unless_asked_otherwise(spark: SparkSession) -> None:
    assert _local_file_system(spark).getRaw().getClass().getName().startswith("org.apache.hadoop.")


@pytest.fixture
def direct_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with permissions set directly, for one test."""
    # It is the session of all tests, which goes on with the settings that it is asked for again.
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    settings: dict[str, Any] = {
        local_files.SETTING: True,
        "spark.sql.shuffle.partitions": partitions,
    }
    yield session(master="local[2]", **settings)
    spark.conf.unset(local_files.SETTING)
    _local_file_system(spark).close()  # The JVM makes another, Hadoop's own, for the next user.


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_local_files_are_made_without_a_process_and_as_hadoop_makes_them(
    direct_spark: SparkSession, tmp_path: Path
) -> None:
    jvm: Any = direct_spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    files = _local_file_system(direct_spark)
    pid = jvm.java.lang.ProcessHandle.current().pid()

    def faults_of_making(name: str) -> int:
        before = _faults_of_ended_children(pid)
        made = hadoop.Path(str(tmp_path / name))
        files.create(made).close()
        files.setPermission(made, hadoop.permission.FsPermission("640"))
        return _faults_of_ended_children(pid) - before

    assert _is_direct(files)
    # Python workers of other tests may end meanwhile; a chmod would show every time.
    assert 0 in [faults_of_making(f"made-{number}") for number in range(5)]
    assert stat.S_IMODE((tmp_path / "made-0").stat().st_mode) == 0o640
    assert (tmp_path / ".made-0.crc").exists()


def test_directories_keep_their_group_for_what_is_made_in_them(
    direct_spark: SparkSession, tmp_path: Path
) -> None:
    jvm: Any = direct_spark._jvm
    made = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "made"))
    tmp_path.chmod(0o2755)

    _local_file_system(direct_spark).mkdirs(made)

    assert (tmp_path / "made").stat().st_mode & stat.S_ISGID


def test_permissions_are_set_directly_again_when_the_file_system_is_made_anew(
    direct_spark: SparkSession,
) -> None:
    for _ in range(2):
        assert _is_direct(_local_file_system(direct_spark))
        _local_file_system(direct_spark).close()
        assert not _is_direct(_local_file_system(direct_spark))
        session(master="local[2]", spark__sql__shuffle__partitions=2)


def _is_direct(files: Any) -> bool:
    return str(files.getRaw().getClass().getName()).startswith("millstream.DirectLocalFileSystem")


def _local_file_system(spark: Any) -> Any:
    """The one of Hadoop that all of the JVM shares."""
    return spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())


def _faults_of_ended_children(pid: int) -> int:
    """Page faults of processes that a process has waited for: more if it has run another."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[8])
