"""The directory of a pipeline: one process at a time, its status, and the request to stop."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from millstream.errors import MillstreamError, PipelineAlreadyRunning
from millstream.spark.pipelines.state_directory import Owner, StateDirectory

if TYPE_CHECKING:
    from pathlib import Path


def test_one_process_at_a_time(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    assert not directory.is_running

    with directory.held():
        directory.write_status({"pid": 12})
        assert directory.is_running
        assert directory.owner() == Owner(os.getpid(), os.uname().nodename)
        with pytest.raises(
            PipelineAlreadyRunning, match=f"process {os.getpid()} runs this pipeline"
        ):
            StateDirectory(tmp_path / "state").held().__enter__()
        with pytest.raises(PipelineAlreadyRunning):
            directory.require_free()

    assert not directory.is_running
    assert directory.owner() is None
    directory.require_free()


def test_who_only_looks_whether_it_runs_keeps_nobody_from_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = StateDirectory(tmp_path)
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        monkeypatch.setattr(
            "millstream.spark.pipelines.state_directory.time.sleep", lambda _: looked_at.close()
        )

        with directory.held():
            assert directory.is_running


def test_a_wish_to_stop_is_for_the_run_that_it_was_meant_for(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    directory.request_stop()

    with directory.held():
        assert not directory.is_stop_requested
        directory.request_stop()
        assert directory.is_stop_requested

    assert not directory.is_stop_requested


def test_status_is_what_was_said_last(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    assert directory.read_status() is None

    directory.write_status({"state": "running"})
    directory.write_status({"state": "stopped"})

    assert directory.read_status() == {"state": "stopped"}


def test_a_damaged_status_is_told(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("{")

    with pytest.raises(MillstreamError, match="is damaged"):
        StateDirectory(tmp_path).read_status()


def test_checkpoints_are_beneath_it_or_elsewhere(tmp_path: Path) -> None:
    assert StateDirectory(tmp_path).checkpoint("q") == str(tmp_path / "checkpoints" / "q")
    assert StateDirectory(tmp_path, "hdfs://h/c/").checkpoint("q") == "hdfs://h/c/q"
