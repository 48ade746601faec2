"""A session as `millstream.spark.session` makes it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


# A JVM of its own: the setting changes the file system that all sessions of a JVM share.
_DIRECT = """
import json, pathlib, stat, sys
from millstream.spark import local_files, session

made = pathlib.Path(sys.argv[1])
spark = session(master="local[1]", **{local_files.SETTING: True, "spark.ui.enabled": False})
jvm = spark._jvm
hadoop = jvm.org.apache.hadoop.fs
files = hadoop.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
stat_of = pathlib.Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat")
# Page faults of processes that the JVM has waited for: more if it has run another.
faults = lambda: int(stat_of.read_text().rpartition(")")[2].split()[8])
before = faults()
path = hadoop.Path(str(made / "file"))
files.create(path).close()
files.setPermission(path, hadoop.permission.FsPermission("640"))
found = {"faults": faults() - before, "mode": stat.S_IMODE((made / "file").stat().st_mode)}
files.mkdirs(hadoop.Path(str(made / "directory")))
found["keeps_group"] = bool((made / "directory").stat().st_mode & stat.S_ISGID)
found["class"] = files.getRaw().getClass().getName()
print(json.dumps(found))
spark.stop()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_local_files_are_made_without_a_process_and_as_hadoop_makes_them_if_asked(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o2755)

    done = subprocess.run(
        [sys.executable, "-c", _DIRECT, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "faults": 0,
        "mode": 0o640,
        "keeps_group": True,
        "class": "millstream.DirectLocalFileSystem",
    }
    assert (tmp_path / ".file.crc").exists()


def _local_file_system(spark: Any) -> Any:
    """The one of Hadoop that all of the JVM shares."""
    return spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
