"""`millstream pipeline run` as a process of its own: killed, started again, told to stop.

Beside the topics it has made-up rows on the terminal, which only a process of its own shows.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import millstream
from tests.spark.pipeline_project import Project
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing import EmbeddedBroker

# Three sessions of Spark start, in processes of their own.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 400
DEFINITION = """
sources:
  raw: {format: topic, topic: '@numbers@', max_offsets_per_trigger: 40}
  ticks: {format: rate, rows_per_second: 4}
views:
  counted: {sql: "SELECT value AS tick FROM ticks"}
sinks:
  copies: {from: raw, format: topic, topic: '@copies@', partitions: 2}
  shown: {from: counted, format: console, rows: 1}
"""


def millstream_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "millstream", "pipeline", *map(str, arguments)]


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for something that a process does; its end comes first if it fails."""

    def holds_by_now() -> bool:
        assert process.poll() is None, (
            f"the pipeline ended with {process.returncode}, see errors.txt"
        )
        return holds()

    # Looking costs what the process that starts could use.
    until(holds_by_now, limit_seconds=500, look_seconds=0.25)


@contextmanager
def running(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process group of its own, none of which outlives the block."""
    with (
        (project.directory / "lines.json").open("ab") as lines,
        (project.directory / "errors.txt").open("ab") as errors,
    ):
        process = subprocess.Popen(
            millstream_command("run", project.directory, "--master", "local[2]", "--json"),
            stdout=lines,
            stderr=errors,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def told(project: Project) -> list[dict[str, Any]]:
    text = (project.directory / "lines.json").read_text()
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def has_progressed(project: Project, query: str) -> bool:
    """Whether a query has rows behind it, and a batch that this process began."""
    return any(
        (each["event"], each.get("query")) == ("progress", query)
        and each["batch"] > 1
        and each["rows"]
        for each in told(project)
    )


def status_of(project: Project) -> tuple[int, str, set[str]]:
    """What `status` says: its exit code, the state of the run, and those of its queries."""
    said = subprocess.run(
        millstream_command("status", project.directory, "--json"), capture_output=True, check=False
    )
    status = json.loads(said.stdout)
    return said.returncode, status["state"], {each["state"] for each in status["queries"]}


def test_a_signal_to_the_process_group_ends_a_run_after_its_batches(
    tmp_path: Path, millstream_broker: EmbeddedBroker
) -> None:
    project = Project(tmp_path, millstream_broker)
    project.define(DEFINITION)
    project.create("numbers")
    project.send("numbers", [str(each) for each in range(ROWS)])

    with running(project) as process:
        wait_until(lambda: has_progressed(project, "copies"), process)
        os.killpg(process.pid, signal.SIGTERM)  # As `timeout` and systemd send it.
        assert process.wait() == 0

    assert status_of(project) == (3, "stopped", {"stopped"})
    assert {each["restarts"] for each in told(project) if "restarts" in each} == {0}
    assert (project.directory / "errors.txt").read_text() == ""
    copies = sorted(int(each["value"]) for each in project.records("copies"))
    assert copies == list(range(len(copies)))


def test_what_was_killed_and_stopped_is_written_exactly_once_in_the_end(
    tmp_path: Path, millstream_broker: EmbeddedBroker, spark: SparkSession
) -> None:
    project = Project(tmp_path, millstream_broker, spark)
    project.define(DEFINITION)
    project.create("numbers")
    project.send("numbers", [str(each) for each in range(ROWS)])

    def copied() -> int:
        with millstream.Admin(project.brokers) as admin:
            if project.topic("copies") not in {each.name for each in admin.list_topics()}:
                return 0
        return len(project.records("copies"))

    with running(project) as process:
        wait_until(lambda: copied() > 0, process)
        process.kill()
    assert status_of(project) == (3, "died", {"died"})

    with running(project) as process:
        wait_until(
            lambda: has_progressed(project, "copies") and has_progressed(project, "shown"),
            process,
        )
        assert status_of(project) == (0, "running", {"running"})
        subprocess.run(
            millstream_command("stop", project.directory), capture_output=True, check=True
        )
        assert process.wait() == 0

    assert told(project)[-1]["event"] == "end"
    assert told(project)[-1]["state"] == "stopped"
    # A table for each batch, of one row, though there were more. Lines of JSON are for programs, so
    # that the terminal's part goes to the log.
    table = r"\|tick\|\n\+-+\+\n\|\s*\d+\|\n\+-+\+\nonly showing top 1 row"
    assert re.search(table, (project.directory / "state" / "spark.log").read_text())
    project.run()
    assert sorted(int(each["value"]) for each in project.records("copies")) == list(range(ROWS))
