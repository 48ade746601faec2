"""A pipeline as its files define it: frozen values, checked, and without Spark.

`loading` makes them; `graph`, `assembly` and `runner` read them. A pipeline has sources, views
between, and sinks; each sink is one streaming query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from millstream.errors import InvalidPipeline
from millstream.spark.pipelines.expectations import DEAD_LETTER, Expectation
from millstream.spark.pipelines.schema import (
    Named,
    an_interval,
    not_negative,
    one_of,
    positive,
    setting,
    unset,
)
from millstream.spark.pipelines.sources import Source, Watermark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from millstream.spark.pipelines.sinks import Sink

JOINS: Final = ("inner", "left", "right", "full", "left_semi", "left_anti")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Spans of time that rows are gathered in."""

    column: str | None = setting(
        "The column with the time of the event; else that of the watermark.", None
    )
    duration: str = setting("How long a window is.", check=an_interval)
    slide: str | None = setting(
        "Begin a window this often; else one begins where the one before ends.",
        None,
        check=an_interval,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGap:
    """What ends a session. A duration alone, without keys, is its `gap`."""

    only_key: ClassVar[str] = "gap"

    column: str | None = setting(
        "The column with the time of the event; else that of the watermark.", None
    )
    gap: str = setting("The time without a row that ends a session.", check=an_interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Rows gathered in groups and windows, with a value or more for each."""

    window: Window | None = setting("Gather by time; the result has a column `window`.", None)
    session_gap: SessionGap | None = setting(
        "Gather in sessions instead: a window that ends after this long without a row.", None
    )
    group_by: tuple[str, ...] = setting("Columns or expressions to group by.", ())
    select: Mapping[str, str] = setting(
        "The result's columns: name to expression of SQL, such as `sum(amount)`."
    )

    @property
    def has_time(self) -> bool:
        """Whether it gathers by time."""
        return self.window is not None or self.session_gap is not None

    @property
    def time_column(self) -> str | None:
        """The column with the time to gather by; None if the watermark says it."""
        by_time = self.window or self.session_gap
        return None if by_time is None else by_time.column

    def faults(self) -> Iterable[str]:
        """Something must make the groups, and only one kind of window."""
        if self.window is not None and self.session_gap is not None:
            yield "give `window` or `session_gap`, not both"
        if not self.select:
            yield "`select` has no column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Two datasets side by side: two streams, or a stream and a table."""

    left: str = setting("A source or view; in the condition it goes by its name.")
    right: str = setting("The other one.")
    on: str = setting(
        "What belongs together: an expression of SQL. For two streams it should bound the time "
        "between the rows, or their state grows for ever."
    )
    how: str = setting("The kind of join.", "inner", check=one_of(*JOINS))
    select: Mapping[str, str] = setting(
        "The result's columns: name to expression. Else all, and names that both have are a fault.",
        {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stateful:
    """A processor that keeps state for each group, as Spark's transformWithState runs it."""

    processor: str = setting("A class of a library, a StatefulProcessor of PySpark.")
    group_by: tuple[str, ...] = setting("Columns that make a group.")
    schema: str = setting("Columns of the result, as in `customer string, orders bigint`.")
    rows: str = setting(
        "What the processor is given and gives: `pandas` frames, or `row` by row.",
        "pandas",
        check=one_of("pandas", "row"),
    )
    output_mode: str = setting(
        "The mode of the result.", "update", check=one_of("append", "update")
    )
    time_mode: str = setting(
        "What its timers go by: `event_time` needs a watermark.",
        "none",
        check=one_of("none", "processing_time", "event_time"),
    )
    event_time_column: str | None = setting(
        "The result's column with the time of the event, if a watermark is to go on from it.", None
    )
    initial_state: str | None = setting(
        "A table whose rows are the state of the first batch, by the same columns.", None
    )

    def faults(self) -> Iterable[str]:
        """Groups are made by columns."""
        if not self.group_by:
            yield "`group_by` has no column"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate:
    """Of rows that are alike, the first."""

    columns: tuple[str, ...] = setting("What makes rows alike.")
    within_watermark: bool = setting(
        "Forget rows when they are older than the watermark, whatever column it has. Without it "
        "the watermark's column must be among the columns, or the state grows for ever.",
        True,
    )

    def faults(self) -> Iterable[str]:
        """Something must make rows alike."""
        if not self.columns:
            yield "`columns` has no column"


@dataclass(frozen=True, slots=True)
class Sql:
    """A query over other datasets by their names."""

    query: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of a library: data frames in, data frame out."""

    function: str
    inputs: tuple[str, ...]


Transformation: TypeAlias = Sql | PythonFunction | Aggregate | Join | Stateful | Deduplicate


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Named):
    """A dataset made from others. It has one of `sql`, `python`, `aggregate` …, and is not kept."""

    from_: tuple[str, ...] = setting(
        "What it is made from. A query of SQL says so itself; a function's parameters do unless "
        "this is given; a join has `left` and `right`.",
        (),
    )
    sql: str | None = setting("A SELECT over sources and views by their names.", None)
    python: str | None = setting(
        "A function of a library that is given data frames and gives one. Its parameters are "
        "named for datasets; one called `spark` is the session.",
        None,
    )
    aggregate: Aggregate | None = setting("Groups and windows of rows.", None)
    join: Join | None = setting("Two datasets side by side.", None)
    stateful: Stateful | None = setting("A processor with state.", None)
    deduplicate: Deduplicate | None = setting("Of rows that are alike, the first.", None)
    watermark: Watermark | None = setting("How late the view's rows may be.", None)
    expectations: tuple[Expectation, ...] = setting("What every row of the view must fulfil.", ())
    inputs: tuple[str, ...] = unset(())
    """What it is made from, wherever that was said."""

    @property
    def transformation(self) -> Transformation:
        """What makes it."""
        if self.sql is not None:
            return Sql(self.sql, self.inputs)
        if self.python is not None:
            return PythonFunction(self.python, self.inputs)
        found = self.aggregate or self.join or self.stateful or self.deduplicate
        assert found is not None
        return found


Dataset: TypeAlias = Source | View


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The brokers of all topics, unless one says otherwise."""

    bootstrap_servers: str | None = setting("Brokers to ask first: host:port, several.", None)
    client: Mapping[str, str] = setting(
        "Settings of the clients by Kafka's names, such as `request.timeout.ms`.", {}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What happens when a query fails."""

    limit: int = setting(
        "Start it again at most so many times in a row; then the pipeline ends with its error.",
        5,
        check=not_negative,
    )
    backoff: float = setting(
        "Seconds before the first restart; twice as many before each more.", 1.0, check=positive
    )
    backoff_max: float = setting("Seconds before a restart at most.", 60.0, check=positive)
    healthy_after: float = setting(
        "A query that ran this many seconds and finished a batch counts its failures anew.",
        60.0,
        check=positive,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The whole definition."""

    name: str = setting("Names the pipeline, its queries and its consumer groups.")
    storage: str = setting(
        "The directory of everything that it must remember: checkpoints, state, status.", "state"
    )
    checkpoints: str | None = setting(
        "Where checkpoints and state are kept if not in `storage`: an address of Spark's such as "
        "`hdfs://…`, which a cluster needs.",
        None,
    )
    libraries: tuple[str, ...] = setting(
        "Files of Python (functions, processors, `@view`) and SQL (`CREATE TEMPORARY VIEW`).", ()
    )
    configuration: Mapping[str, str] = setting("Settings of Spark, before those of the tuning.", {})
    master: str | None = setting("The Spark cluster; else `local[*]`.", None)
    cluster: Cluster = setting("The brokers.", Cluster())
    restart: Restart = setting("What happens when a query fails.", Restart())
    stop_timeout: float = setting(
        "Seconds that batches may still take when the pipeline is to stop. One that takes longer "
        "is stopped in the middle, and the next run does it again.",
        600.0,
        check=not_negative,
    )
    sources: Mapping[str, Source] = setting("What is read, by name.", {})
    views: Mapping[str, View] = setting("What is made of it, by name.", {})
    sinks: Mapping[str, Sink] = setting("Where it goes, by name.", {})
    file: Path | None = unset(None)
    library_paths: tuple[Path, ...] = unset(())
    is_first_run: bool = unset(False)
    """Whether the run is to begin where it is told to, and no checkpoint may say otherwise."""

    def starting_at(self, time_ms: int) -> Pipeline:
        """The same for a first run that reads topics from a time on; InvalidPipeline if none is."""
        sources = {name: each.starting_at(time_ms) for name, each in self.sources.items()}
        if sources == self.sources:
            raise InvalidPipeline("the pipeline reads no topic as a stream, so no time to begin at")
        return replace(self, sources=sources, is_first_run=True)

    @property
    def datasets(self) -> dict[str, Dataset]:
        """Sources and views by name."""
        return {**self.sources, **self.views}

    def inputs_of(self, dataset: str) -> tuple[str, ...]:
        """What a dataset is made from."""
        view = self.views.get(dataset)
        return () if view is None else view.inputs

    def upstream_of(self, dataset: str) -> tuple[str, ...]:
        """A dataset and all that it comes from, the nearest first."""
        found = dict.fromkeys([dataset])
        pending = [dataset]
        while pending:
            for each in self.inputs_of(pending.pop()):
                if each not in found:
                    found[each] = None
                    pending.append(each)
        return tuple(found)

    def dead_letter_topic(self, dataset: str, expectation: Expectation) -> str:
        """Where the rows go that fail an expectation of a dataset."""
        assert expectation.on_violation == DEAD_LETTER
        return expectation.topic or f"{self.name}.{dataset}.dead"
