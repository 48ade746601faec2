"""How a pipeline that runs is shown: a table that changes, or a line for whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from millstream.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from millstream.spark.pipelines.progress import BatchProgress
    from millstream.spark.pipelines.supervision import QuerySupervisor

COLUMNS: Final = ("QUERY", "STATE", "ROWS", "IN/S", "DONE/S", "LAG", "BATCH", "MS", "STATE ROWS")
_SHOW_MS: Final = 250
_STYLES: Final = {"running": "green", "backing off": "yellow", "failed": "red"}


def cells(query: QuerySupervisor) -> tuple[str, ...]:
    """A query as a line of the table."""
    last = query.last
    state = query.state.value
    if query.restarts:
        state += f" (restart {query.restarts})"
    if last is None:
        return (query.name, state, f"{query.rows:,}", *("-" for _ in COLUMNS[3:]))
    return (
        query.name,
        state,
        f"{query.rows:,}",
        f"{last.rows_per_second:,.0f}",
        f"{last.processed_per_second:,.0f}",
        "-" if last.lag is None else f"{last.lag:,}",
        str(last.batch),
        f"{last.duration_ms:,}",
        f"{last.state_rows:,}" if last.state_rows else "-",
    )


def batch_line(query: QuerySupervisor, batch: BatchProgress) -> str:
    """A batch in a line."""
    parts = [f"batch {batch.batch}", f"{batch.rows:,} rows", f"{batch.duration_ms:,} ms"]
    if batch.lag is not None:
        parts.append(f"lag {batch.lag:,}")
    if batch.late_rows:
        parts.append(f"{batch.late_rows:,} too late")
    return f"{query.name}: {', '.join(parts)}"


def change_line(query: QuerySupervisor) -> str:
    """A change in a line."""
    is_trouble = query.state.value in ("backing off", "failed")
    return f"{query.name}: {query.state.value}" + (f": {query.error}" if is_trouble else "")


class PlainLines:
    """For a file, or a terminal that is none."""

    def progressed(self, query: QuerySupervisor, batch: BatchProgress) -> None:
        """A line for a batch that had rows."""
        if batch.rows:
            typer.echo(batch_line(query, batch))

    def changed(self, query: QuerySupervisor) -> None:
        """A line for a change."""
        typer.echo(change_line(query))

    def looked(self, queries: Mapping[str, QuerySupervisor]) -> None:
        """Nothing: lines are for what happens."""


class LiveTable:
    """For a terminal, on stderr; troubles stay above the table."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._clock = SystemClock()
        self._shown_ms = 0
        self._live = Live(console=Console(stderr=True), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def progressed(self, query: QuerySupervisor, batch: BatchProgress) -> None:
        """The table has it."""

    def changed(self, query: QuerySupervisor) -> None:
        """Troubles are told."""
        if query.state.value in ("backing off", "failed"):
            self._live.console.print(change_line(query), style="red", markup=False)

    def looked(self, queries: Mapping[str, QuerySupervisor]) -> None:
        """Draw the table anew, some times a second."""
        now_ms = self._clock.monotonic_ms()
        has_ended = all(each.has_ended for each in queries.values())
        if now_ms - self._shown_ms >= _SHOW_MS or has_ended:
            self._shown_ms = now_ms
            self._live.update(self._table(queries), refresh=True)

    def _table(self, queries: Mapping[str, QuerySupervisor]) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False, title=self._title)
        for index, heading in enumerate(COLUMNS):
            table.add_column(heading, justify="left" if index < 2 else "right", no_wrap=True)
        for query in queries.values():
            name, state, *numbers = cells(query)
            style = _STYLES.get(query.state.value, "")
            table.add_row(Text(name), Text(state, style=style), *map(Text, numbers))
        return table
