"""`make demo`: it ends well, by itself, and a page shows what it prints."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import _accel
from millstream.client.admin import Admin

pytest.importorskip("confluent_kafka", reason="the independent client of the demo")
pytest.importorskip("pyarrow", reason="the demo shows Arrow tables")

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tools.demo", "--quick"]
SHOWN = re.compile(r"^```text\n(Millstream .*?)^```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d[\d.,]*")

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]


def without_numbers(text: str) -> list[str]:
    """The lines, whatever the machine was able to do."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.splitlines()]


@pytest.fixture(scope="module")
def run() -> subprocess.CompletedProcess[str]:
    return subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_demo_ends_well(run: subprocess.CompletedProcess[str]) -> None:
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.skipif(not _accel.COMPILED, reason="the page shows the compiled kernel")
def test_the_page_shows_what_the_demo_prints(run: subprocess.CompletedProcess[str]) -> None:
    shown = SHOWN.search((ROOT / "docs/howto/run-the-demo.md").read_text(encoding="utf-8"))
    assert shown is not None
    assert without_numbers(shown[1]) == without_numbers(run.stdout)


def test_the_broker_can_be_kept_and_used() -> None:
    demo = subprocess.Popen([*COMMAND, "--keep"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        said = iter(demo.stdout.readline, "")
        line = next(line for line in said if line.startswith("The broker is at "))
        while "perf produce" not in next(said):
            pass  # that is the last line before it waits

        with Admin(line.split()[4]) as admin:
            assert len(admin.describe_topics(["readings"])["readings"].partitions) == 4

        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
    finally:
        demo.kill()
        demo.communicate()
