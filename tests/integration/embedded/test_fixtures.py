"""The pytest plugin as a user's test suite has it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

SUITE = """
import pytest

seen = set()

@pytest.mark.parametrize("number", range(2))
def test_topics_have_names_of_their_own(millstream_broker, millstream_topic, number):
    names = {millstream_topic(), millstream_topic("orders", partitions=3)}
    assert set(millstream_broker.topics()) == names
    assert not names & seen
    seen.update(names)

@pytest.mark.parametrize("number", range(2))
def test_a_reset_leaves_nothing(millstream_reset, number):
    assert millstream_reset.topics() == []
    millstream_reset.create_topic("always-the-same")
    if number:
        millstream_reset.stop()

def test_a_cluster_goes_on_without_one_of_its_nodes(millstream_cluster):
    active = millstream_cluster.controller_id()
    millstream_cluster.kill(active)
    millstream_cluster.restart(next(each for each in (1, 2, 3) if each != active))
    assert sorted(millstream_cluster.running) == sorted({1, 2, 3} - {active})

def test_clusters_are_made_as_they_are_asked_for(millstream_clusters):
    cluster = millstream_clusters(1, controllers=1, settings={"num.partitions": 5})
    assert cluster.running == [1, 2]
    assert cluster._settings["num.partitions"] == "5"

def test_settings_come_from_the_command_line(millstream_broker, millstream_reset):
    assert millstream_broker._settings == {"num.partitions": "3"}
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_the_fixtures_work_in_another_test_suite(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    # Not by its entry point, so that it is loaded once whether or not this environment has that.
    plugin = ["-p", "no:millstream", "-p", "millstream.testing.pytest_plugin"]
    settings = ["--millstream-settings", "num.partitions=3"]
    pytest_command = [sys.executable, "-W", "error", "-m", "pytest", "-q"]
    run = subprocess.run(
        [*pytest_command, *plugin, *workers, *settings, "test_suite.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert "7 passed" in run.stdout, run.stdout + run.stderr
