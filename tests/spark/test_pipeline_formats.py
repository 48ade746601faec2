"""Pipelines in Spark with what every definition may name: formats of files, windows, state, joins.

Each test is one pipeline whose sinks are the cases, so that one start serves many of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.spark.pipeline_project import Project

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing import EmbeddedBroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FILES = ("parquet", "orc", "json", "csv")
DERBY = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


@pytest.fixture
def project(tmp_path: Path, millstream_broker: EmbeddedBroker, spark: SparkSession) -> Project:
    return Project(tmp_path, millstream_broker, spark)


def at(minute: int, second: int = 0) -> str:
    return f"2026-01-01T12:{minute:02}:{second:02}Z"


def test_every_format_of_files_is_written_and_read(project: Project) -> None:
    lines = project.directory / "lines"
    lines.mkdir()
    (lines / "one.txt").write_text("1 DE\n2 FR\n3 DE\n")
    project.define(
        """
sources:
  lines: {format: text, path: lines}
views:
  words: {sql: "SELECT split(value, ' ') AS words FROM lines"}
  rows: {sql: "SELECT CAST(words[0] AS INT) AS id, words[1] AS country FROM words"}
sinks:
"""
        + "".join(
            f"  {kind}: {{from: rows, format: {kind}, path: {kind}, partition_by: country}}\n"
            for kind in FILES
        )
    )
    project.run()
    for kind in FILES:
        made = {each.name for each in (project.directory / kind).glob("country=*")}
        assert made == {"country=DE", "country=FR"}, kind

    selects = " UNION ALL ".join(f"SELECT '{kind}' AS kind, * FROM {kind}_files" for kind in FILES)
    keys = "schema: 'id INT, country STRING', max_files_per_trigger: 1"
    project.define(
        "storage: reading\nsources:\n"
        + "".join(f"  {kind}_files: {{format: {kind}, path: {kind}, {keys}}}\n" for kind in FILES)
        + f"""
views:
  together: {{sql: "{selects}"}}
sinks:
  together: {{from: together, format: topic, topic: '@together@'}}
"""
    )
    project.run()

    expected = [
        {"kind": kind, "id": number, "country": country}
        for kind in FILES
        for number, country in ((1, "DE"), (2, "FR"), (3, "DE"))
    ]
    assert sorted(project.rows("together"), key=str) == sorted(expected, key=str)


CLICKS = """
sources:
  raw:
    format: topic
    topic: '@clicks@'
    value_format: json
    value_schema: id BIGINT, visitor STRING, at TIMESTAMP
views:
  clicks:
    sql: SELECT value.*, unix_millis(value.at) AS at_ms FROM raw
    watermark: {column: at, delay: 1 minute}
"""


def click(number: int, visitor: str, minute: int, second: int = 0) -> Any:
    return {"id": number, "visitor": visitor, "at": at(minute, second)}


def test_windows_slide_sessions_end_and_duplicates_may_be_remembered_for_ever(
    project: Project,
) -> None:
    project.define(
        CLICKS
        + """
  sliding:
    from: clicks
    aggregate:
      window: {duration: 2 minutes, slide: 1 minute}
      select: {clicks: count(*)}
  visits:
    from: clicks
    aggregate: {session_gap: 2 minutes, group_by: [visitor], select: {clicks: count(*)}}
  sliding_flat: {sql: "SELECT minute(window.start) AS minute, clicks FROM sliding"}
  visits_flat:
    sql: >
      SELECT visitor, clicks, minute(window.start) AS first, minute(window.end) AS end FROM visits
  seen: {from: clicks, deduplicate: {columns: [id], within_watermark: false}}
sinks:
  sliding: {from: sliding_flat, format: topic, topic: '@sliding@'}
  visits: {from: visits_flat, format: topic, topic: '@visits@'}
  seen: {from: seen, format: topic, topic: '@seen@', value: id}
"""
    )
    project.create("clicks")
    project.send(
        "clicks",
        [click(1, "anna", 0), click(2, "anna", 1), click(3, "anna", 9), click(3, "ben", 10)],
    )
    project.run()
    # An hour later the first one comes again: by the watermark it would be forgotten long ago.
    project.send("clicks", [click(4, "anna", 59), click(1, "anna", 59, 1)])
    project.run()

    # Rows of the last hour wait for their windows to close.
    sliding = {each["minute"]: each["clicks"] for each in project.rows("sliding")}
    assert sliding == {59: 1, 0: 2, 1: 1, 8: 1, 9: 2, 10: 1}
    assert project.rows("visits") == [
        {"visitor": "anna", "clicks": 1, "first": 9, "end": 11},
        {"visitor": "anna", "clicks": 2, "first": 0, "end": 3},
        {"visitor": "ben", "clicks": 1, "first": 10, "end": 12},
    ]
    assert project.rows("seen") == [1, 2, 3, 4]


PROCESSOR = """
    from datetime import datetime, timezone

    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor


    class Absent(StatefulProcessor):
        '''Counts clicks from what is known, and says who was away for five minutes.'''

        def init(self, handle):
            self._handle = handle
            self._seen = handle.getValueState("seen", "clicks long, last_ms long")

        def handleInitialState(self, key, row, timers):
            self._seen.update((row["clicks"], 0))

        def handleInputRows(self, key, rows, timers):
            clicks, last_ms = self._seen.get() if self._seen.exists() else (0, 0)
            for row in rows:
                clicks, last_ms = clicks + 1, max(last_ms, row["at_ms"])
            self._seen.update((clicks, last_ms))
            self._handle.registerTimer(last_ms + 300_000)
            return iter(())

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
            clicks, _ = self._seen.get()
            # What is told must not be older than the watermark.
            now = timerValues.getCurrentWatermarkInMs() / 1000 + 1
            at = datetime.fromtimestamp(now, timezone.utc)
            yield Row(visitor=key[0], clicks=clicks, told_at=at)

        def close(self):
            pass
"""


def test_a_processor_of_rows_has_timers_a_first_state_and_a_time_of_its_own(
    project: Project,
) -> None:
    (project.directory / "known.csv").write_text("visitor,clicks\nanna,40\n")
    project.define(
        "libraries: [processor.py]\n"
        + CLICKS.replace(
            "views:",
            "    max_offsets_per_trigger: 3\n"
            "  known: {format: csv, path: known.csv, stream: false,"
            " schema: 'visitor STRING, clicks LONG', options: {header: true}}\nviews:",
        )
        + """
  absent:
    from: clicks
    stateful:
      processor: Absent
      group_by: [visitor]
      schema: visitor STRING, clicks BIGINT, told_at TIMESTAMP
      rows: row
      output_mode: append
      time_mode: event_time
      event_time_column: told_at
      initial_state: known
  in_windows:
    from: absent
    aggregate:
      window: {column: told_at, duration: 10 minutes}
      select: {visitors: count(*), clicks: sum(clicks)}
  flat: {sql: "SELECT minute(window.start) AS minute, visitors, clicks FROM in_windows"}
  told: {sql: "SELECT visitor, clicks FROM absent"}
sinks:
  told: {from: told, format: topic, topic: '@told@'}
  in_windows: {from: flat, format: topic, topic: '@in-windows@'}
""",
        processor_py=PROCESSOR,
    )
    project.create("clicks")
    # The first three are a batch, then each is: its time decides what the next one hears of.
    project.send("clicks", [click(1, "anna", 0), click(2, "anna", 1), click(3, "ben", 2)])
    project.send("clicks", [click(4, "cara", 40)] * 3 + [click(5, "dan", 59)] * 3)
    project.run()

    assert project.rows("told") == [
        {"visitor": "anna", "clicks": 42},
        {"visitor": "ben", "clicks": 1},
        {"visitor": "cara", "clicks": 3},
    ]
    assert project.rows("in-windows") == [{"minute": 30, "visitors": 2, "clicks": 43}]


@pytest.mark.interop  # Six queries, twice: `make interop` has the time for it.
def test_streams_and_tables_are_joined_in_every_way_that_spark_has(
    project: Project, postgres: str
) -> None:
    url = f"jdbc:derby:{project.directory}/derby;create=true"
    make_tables(project, postgres, url)
    project.define(
        CLICKS.replace(
            "views:",
            f"""
  payments_raw:
    format: topic
    topic: '@payments@'
    value_format: json
    value_schema: click BIGINT, paid_at TIMESTAMP
  names_raw:
    format: topic
    topic: '@names@'
    stream: false
    value_format: json
    value_schema: name STRING, city STRING
  of_postgres: {{format: postgres, connection: '{postgres}', table: customers, stream: false}}
  of_jdbc: {{format: jdbc, url: '{url}', table: customers, options: {{driver: {DERBY}}}}}
views:
  names: {{sql: SELECT value.* FROM names_raw}}
  payments:
    sql: SELECT value.* FROM payments_raw
    watermark: {{column: paid_at, delay: 1 minute}}
""".strip("\n"),
        )
        + views_of_joins()
    )
    project.create("clicks", "payments", "names")
    project.send("names", [{"name": "anna", "city": "Bonn"}, {"name": "nobody", "city": "Ulm"}])
    project.send("clicks", [click(1, "anna", 0), click(2, "ben", 0)])
    project.send("payments", [{"click": n, "paid_at": at(1)} for n in (1, 7)])
    project.run()
    # What had no partner is told when none can come any more.
    project.send("clicks", [click(9, "zoe", 50)])
    project.send("payments", [{"click": 9, "paid_at": at(50)}])
    project.run()

    found = {name: project.rows(name) for name in JOINS}
    assert found == {name: expected for name, (_, expected) in JOINS.items()}


WITHIN = "clicks.id = payments.click AND paid_at BETWEEN at AND at + INTERVAL 5 MINUTES"
BOTH = "{id: clicks.id, click: payments.click}"
PAID = [{"id": 1, "click": 1}, {"id": 9, "click": 9}]
JOINS: dict[str, tuple[str, list[Any]]] = {
    "right": (
        f"left: clicks, right: payments, how: right, on: {WITHIN}, select: {BOTH}",
        [{"click": 7}, *PAID],
    ),
    "full": (
        f"left: clicks, right: payments, how: full, on: {WITHIN}, select: {BOTH}",
        [{"click": 7}, *PAID[:1], {"id": 2}, *PAID[1:]],
    ),
    "semi": (
        f"left: clicks, right: payments, how: left_semi, on: {WITHIN}, select: {{id: id}}",
        [{"id": 1}, {"id": 9}],
    ),
    "anti": (
        "left: clicks, right: names, how: left_anti, on: visitor = name, select: {id: id}",
        [{"id": 2}, {"id": 9}],
    ),
    "of-postgres": (
        "left: clicks, right: of_postgres, how: left, on: visitor = name,"
        " select: {id: id, city: city}",
        [{"id": 1, "city": "Köln"}, {"id": 2}, {"id": 9}],
    ),
    "of-jdbc": (
        "left: of_jdbc, right: clicks, how: right, on: visitor = NAME,"
        " select: {id: id, city: CITY}",
        [{"id": 1, "city": "Rom"}, {"id": 2}, {"id": 9}],
    ),
}
"""The join, and the rows that it gives, by the topic they go to."""


def views_of_joins() -> str:
    views = "".join(
        f"  join_{name.replace('-', '_')}: {{join: {{{join}}}}}\n"
        for name, (join, _) in JOINS.items()
    )
    sinks = "".join(
        f"  {name}: {{from: join_{name.replace('-', '_')}, format: topic, topic: '@{name}@'}}\n"
        for name in JOINS
    )
    return f"{views}sinks:\n{sinks}"


def make_tables(project: Project, postgres: str, url: str) -> None:
    """A table of customers in PostgreSQL, and one where Spark has a driver for JDBC."""
    with psycopg.connect(postgres, autocommit=True) as database:
        database.execute("CREATE TABLE customers (name text, city text)")
        database.execute("INSERT INTO customers VALUES ('anna', 'Köln')")
    spark: Any = project.spark
    frame = spark.createDataFrame([("anna", "Rom")], "name STRING, city STRING")
    frame.write.format("jdbc").options(url=url, driver=DERBY, dbtable="customers").save()
