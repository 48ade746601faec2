"""How a pipeline that runs is shown."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from millstream.cli.pipeline_view import LiveTable, PlainLines, cells
from millstream.spark.pipelines.definition import Restart
from millstream.spark.pipelines.progress import BatchProgress
from millstream.spark.pipelines.supervision import QuerySupervisor

if TYPE_CHECKING:
    import pytest


def batch(number: int = 2, lag: int | None = 3, late: int = 0) -> BatchProgress:
    return BatchProgress(number, "", 10, 5.0, 20.0, 500, lag, None, 4, late)


def test_a_line_of_the_table() -> None:
    query = QuerySupervisor("totals", Restart())
    assert cells(query) == ("totals", "waiting", "0", *["-"] * 6)

    query.failed("x", 0)
    query.progressed(batch(lag=None))

    assert cells(query) == (
        ("totals", "backing off (restart 1)", "10", "5", "20", "-", "2", "500", "4")
    )


def test_late_rows_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines()
    query = QuerySupervisor("totals", Restart())

    lines.progressed(query, batch(late=2))

    assert "2 too late" in capsys.readouterr().out


def test_a_terminal_has_a_table_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    query = QuerySupervisor("totals", Restart())
    query.started(0)

    with LiveTable("orders") as table:
        query.progressed(batch())
        table.progressed(query, batch())
        table.looked({"totals": query})
        query.failed("no broker", 0, may_restart=False)
        table.changed(query)
        table.looked({"totals": query})

    assert "totals: failed: no broker" in screen.getvalue()
    assert "DONE/S" in screen.getvalue()
