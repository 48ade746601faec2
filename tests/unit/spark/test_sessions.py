"""The settings of a session, without starting one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from unittest.mock import MagicMock

import pytest

import millstream.spark
from millstream.errors import InvalidArgument
from millstream.spark import local_files, sessions, worker_daemon


def test_what_the_caller_sets_wins() -> None:
    chosen = sessions.settings(
        "local[2]", {"spark__ui__enabled": True, "spark.sql.session.timeZone": "Europe/Berlin"}
    )

    assert chosen["spark.ui.enabled"] == "true"
    assert chosen["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert chosen["spark.python.unix.domain.socket.enabled"] == "true"


@pytest.mark.parametrize(("master", "is_local"), [("local", True), ("spark://host:7077", False)])
def test_only_local_sessions_are_tuned_for_local_disks(master: str, is_local: bool) -> None:
    chosen = sessions.settings(master, {})

    assert ("spark.sql.streaming.checkpointFileManagerClass" in chosen) is is_local
    assert ("spark.python.daemon.module" in chosen) is is_local


def test_batches_of_large_records_fit_a_jvm() -> None:
    chosen = sessions.settings("local", {})

    assert int(chosen["spark.sql.execution.arrow.maxBytesPerBatch"]) <= 64 << 20


@pytest.mark.parametrize(
    ("master", "asked", "is_done"),
    [("local[2]", None, False), ("local[2]", True, True), ("spark://host:7077", True, False)],
)
def test_permissions_are_set_directly_only_where_it_is_asked_for(
    master: str, asked: bool | None, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {} if asked is None else {local_files.SETTING: asked}
    settings = {"spark.master": master, **sessions.settings(master, given)}
    spark = MagicMock()
    spark.conf.get.side_effect = settings.get
    builder = MagicMock()
    builder.builder.config.return_value = builder
    builder.config.return_value = builder
    builder.getOrCreate.return_value = spark
    monkeypatch.setattr(sessions, "start_jvm", lambda *_, **__: None)
    monkeypatch.setattr(sessions, "_spark_session_class", lambda: builder)
    monkeypatch.setattr(sessions, "_variables", lambda master: {})
    changed: list[object] = []
    monkeypatch.setattr(sessions, "set_permissions_directly", changed.append)

    sessions.session(master=master, **given)

    assert bool(changed) is is_done


def test_a_missing_pyspark_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(InvalidArgument, match=r"needs PySpark 4\.2.*pip install 'millstream"):
        sessions.session()


def test_an_old_pyspark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark", reason="whose version is looked at")
    monkeypatch.setattr(pyspark, "__version__", "3.5.6")

    with pytest.raises(InvalidArgument, match=r"found 3\.5\.6"):
        sessions.session()


def test_the_package_imports_no_spark() -> None:
    code = "import sys, millstream.spark; sys.exit('pyspark' in sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)
    assert millstream.spark.session is sessions.session
    assert "session" in dir(millstream.spark)
    with pytest.raises(AttributeError, match="no attribute 'sesion'"):
        _ = millstream.spark.sesion


def test_the_daemon_preloads_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    frozen: list[bool] = []

    def load(name: str) -> None:
        asked.append(name)
        raise ImportError(name)

    monkeypatch.setattr(worker_daemon, "import_module", load)
    monkeypatch.setattr("gc.freeze", lambda: frozen.append(True))

    worker_daemon.preload()

    assert asked == list(worker_daemon.PRELOADED)
    assert frozen == [True]
