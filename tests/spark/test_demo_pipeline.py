"""The pipeline of `make demo`: every order that is sent comes out once, and the exit code tells."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from millstream.spark.pipelines.runner import SilentWatcher
from tests.docs.pages import ROOT
from tools import demo_pipeline
from tools.demo_orders import Ledger, OrderGenerator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

PNG = b"\x89PNG\r\n"
LONG_SECONDS = 500.0
"""The machine of the tests does other things besides."""


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> list[demo_pipeline.Result]:
    """What the demo has seen when it ran, in the session of the tests."""
    found: list[demo_pipeline.Result] = []
    follow = demo_pipeline.follow

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    def noting(
        pipeline: Any, here: Any, address: str, shown: Any, pace: Any, directory: Path
    ) -> demo_pipeline.Result:
        patient = replace(pace, seconds_max=LONG_SECONDS)
        found.append(follow(pipeline, here, address, shown, patient, directory))
        return found[-1]

    monkeypatch.setattr(demo_pipeline, "spark_session", session)
    monkeypatch.setattr(demo_pipeline, "follow", noting)
    return found


def shape(line: str) -> str:
    """A line without its numbers."""
    return re.sub(r"[\d,]*\d", "N", line).strip()


def test_the_demo_accounts_for_every_order_as_the_readme_shows(
    results: list[demo_pipeline.Result],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = tmp_path / "demo"

    code = demo_pipeline.main(["--quick", "--directory", str(directory)])

    printed = capfd.readouterr()
    assert code == 0, printed
    [result] = results
    assert result.ledger.sent == result.ledger.good + result.ledger.dead.total() == 4_000
    assert set(result.ledger.dead) == {"is_an_order", "is_in_time"}
    picture = (directory / "demo.png").read_bytes()
    assert picture.startswith(PNG)
    assert len(picture) > 10_000

    text = (printed.out + printed.err).replace(str(directory), "build/demo")
    block = next(
        each
        for each in re.findall(
            r"^```text\n(.*?)^```", (ROOT / "docs/howto/run-the-demo.md").read_text(), re.S | re.M
        )
        if each.startswith("A pipeline with Spark")
    )
    shown = {shape(line) for line in block.splitlines() if not line.startswith("...")}
    assert shown - {shape(line) for line in text.splitlines()} == set()

    # The same run, but an order is in no file.
    orders = result.files.orders - Counter([next(iter(result.files.orders))])
    lacking = replace(result, files=replace(result.files, orders=orders))
    monkeypatch.setattr(demo_pipeline, "follow", lambda *_: lacking)

    assert demo_pipeline.main(["--quick", "--directory", str(directory)]) == 1
    told = capfd.readouterr().out.splitlines()
    good = f"{result.ledger.good:,}"
    missing = f"{result.ledger.good - 1:,}"
    assert told[-2:] == [
        "Not everything is accounted for:",
        f"  orders in the files: {good} expected, {missing} found",
    ]


def test_an_order_that_is_missing_is_told() -> None:
    ledger = Ledger()
    ledger.orders[0, "DE"] = 2
    found = demo_pipeline.Outcome()
    found.orders[0, "DE"] = 1

    assert demo_pipeline.differences(ledger, found, found)[0] == (
        "orders in the topic: 2 expected, 1 found"
    )


def test_a_run_that_takes_too_long_is_ended_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession
) -> None:
    monkeypatch.setattr(demo_pipeline, "_LOOK_S", 0.0)
    generator = OrderGenerator("localhost:1", 1, 1.0)
    follower = demo_pipeline.Follower(SilentWatcher(), generator, "localhost:1", seconds_max=0.0)

    follower.looked({})

    assert (follower.stop.requests, follower.is_overdue) == (1, True)

    @contextmanager
    def session(*_: object) -> Iterator[SparkSession]:
        yield spark

    empty = demo_pipeline.Outcome()
    result = demo_pipeline.Result(Ledger(), empty, empty, [], None, is_overdue=True)
    monkeypatch.setattr(demo_pipeline, "spark_session", session)
    monkeypatch.setattr(demo_pipeline, "follow", lambda *_: result)
    pace = demo_pipeline.Pace(1, 1.0)
    assert demo_pipeline.show_pipeline(pace, tmp_path) == [
        "the pipeline was ended: it was not done after 150 s"
    ]
