"""A definition becomes frozen values, with paths, variables and libraries in their places."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidPipeline
from millstream.spark.pipelines.definition import (
    Aggregate,
    Deduplicate,
    Join,
    PythonFunction,
    Sql,
    Stateful,
)
from millstream.spark.pipelines.loading import load
from millstream.spark.pipelines.topics import TopicSink, TopicSource
from tests.unit.spark.pipelines.project import SMALL, defined, write

if TYPE_CHECKING:
    from pathlib import Path

EVERYTHING = """
name: orders
libraries: [functions.py, views.sql]
cluster:
  bootstrap_servers: b1:9092
  client: {security.protocol: PLAINTEXT, fetch.max.bytes: 1000, linger.ms: 7}
restart: {limit: 2, backoff: 0.5}
sources:
  raw: {format: topic, topic: [orders, returns], watermark: {column: timestamp, delay: 1 minute}}
  prices: {format: csv, path: prices, stream: false, options: {header: true}}
views:
  priced: {join: {left: raw, right: prices, on: raw.key = prices.id, how: left}}
  taxed: {from: priced, python: with_tax}
  sums:
    from: taxed
    aggregate:
      window: {column: timestamp, duration: 5 minutes, slide: 1 minute}
      group_by: [customer]
      select: {total: sum(amount)}
  first: {from: taxed, deduplicate: {columns: id}}
  counted:
    from: first
    stateful: {processor: Counter, group_by: customer, schema: "customer string, n bigint"}
sinks:
  out: {from: sums, format: topic, topic: sums, key: customer, trigger: 10 seconds}
  files: {from: named, format: parquet, path: out, partition_by: customer}
  shown: {from: counted, format: console, output_mode: update}
"""
FUNCTIONS = """
    from millstream.spark.pipelines import view

    def with_tax(frame): ...

    @view(name="named")
    def naming(spark, taxed, from_sql): ...

    class Counter: ...
"""
VIEWS = """
    -- A comment; with a semicolon.
    CREATE OR REPLACE TEMPORARY VIEW from_sql AS SELECT 'a;b' AS text FROM taxed;
"""


def test_a_definition_has_every_kind_of_view(tmp_path: Path) -> None:
    pipeline = defined(tmp_path, EVERYTHING, functions_py=FUNCTIONS, views_sql=VIEWS)

    kinds = {name: type(view.transformation) for name, view in pipeline.views.items()}
    assert kinds == {
        "priced": Join,
        "taxed": PythonFunction,
        "sums": Aggregate,
        "first": Deduplicate,
        "counted": Stateful,
        "from_sql": Sql,
        "named": PythonFunction,
    }
    assert pipeline.views["named"].inputs == ("taxed", "from_sql")
    assert pipeline.views["priced"].inputs == ("raw", "prices")
    assert pipeline.upstream_of("named") == (
        "named",
        "taxed",
        "from_sql",
        "priced",
        "raw",
        "prices",
    )


def test_values_have_the_types_of_their_keys(tmp_path: Path) -> None:
    pipeline = defined(tmp_path, EVERYTHING, functions_py=FUNCTIONS, views_sql=VIEWS)

    assert (pipeline.restart.limit, pipeline.restart.backoff) == (2, 0.5)
    assert pipeline.views["first"].deduplicate == Deduplicate(columns=("id",))
    assert pipeline.sinks["out"].trigger == "10 seconds"
    assert pipeline.sources["prices"].is_streaming is False
    assert pipeline.sources["raw"].is_streaming is True


def test_paths_are_relative_to_the_definition(tmp_path: Path) -> None:
    pipeline = defined(tmp_path, EVERYTHING, functions_py=FUNCTIONS, views_sql=VIEWS)

    assert pipeline.storage == str(tmp_path / "state")
    assert getattr(pipeline.sinks["files"], "path", None) == str(tmp_path / "out")


def test_topics_have_the_brokers_of_the_pipeline_and_the_settings_that_are_theirs(
    tmp_path: Path,
) -> None:
    pipeline = defined(tmp_path, EVERYTHING, functions_py=FUNCTIONS, views_sql=VIEWS)

    source, sink = pipeline.sources["raw"], pipeline.sinks["out"]
    assert isinstance(source, TopicSource)
    assert isinstance(sink, TopicSink)
    reading = source.reader_options(True, now_ms=0)
    assert reading["kafka.bootstrap.servers"] == "b1:9092"
    assert reading["kafka.security.protocol"] == "PLAINTEXT"
    assert reading["kafka.fetch.max.bytes"] == "1000"
    assert reading["subscribe"] == "orders,returns"
    assert "kafka.linger.ms" not in reading
    writing = sink.writer_options()
    assert writing["kafka.linger.ms"] == "7"
    assert writing["delivery"] == "exactly-once"
    assert "kafka.fetch.max.bytes" not in writing


def test_a_definition_is_loaded_without_spark_and_arrow(tmp_path: Path) -> None:
    write(tmp_path)
    code = (
        "import sys; from millstream.spark.pipelines import load; load(sys.argv[1]); "
        "sys.exit(', '.join({'pyspark', 'pyarrow', 'numpy'} & sys.modules.keys()) or 0)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_topic_is_read_committed_and_from_its_beginning(tmp_path: Path) -> None:
    source = defined(tmp_path).sources["raw"]

    assert isinstance(source, TopicSource)
    options = source.reader_options(True, now_ms=0)
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["startingOffsets"] == "earliest"


def test_other_brokers_keep_their_own_settings(tmp_path: Path) -> None:
    text = """
        name: copy
        cluster: {bootstrap_servers: "near:1", client: {security.protocol: PLAINTEXT}}
        sources:
          raw: {format: topic, topic: orders, bootstrap_servers: "far:1"}
        sinks:
          out: {from: raw, format: topic, topic: copies}
    """

    source = defined(tmp_path, text).sources["raw"]

    assert isinstance(source, TopicSource)
    options = source.reader_options(True, now_ms=0)
    assert options["kafka.bootstrap.servers"] == "far:1"
    assert "kafka.security.protocol" not in options


def test_variables_come_from_the_environment(tmp_path: Path) -> None:
    text = """
        name: ${NAME}
        restart:
          limit: ${LIMIT:-3}
        cluster: {bootstrap_servers: "${BROKERS:-here:9092}"}
        sources:
          ticks: {format: rate, rows_per_second: "${RATE:-5}"}
        views:
          shown: {sql: "SELECT '$${x}' AS text FROM ticks"}
        sinks:
          out: {from: shown, format: console, truncate: "${CUT:-false}"}
    """
    directory = write(tmp_path, text)

    pipeline = load(directory, environment={"NAME": "n1", "RATE": "7", "BROKERS": ""})

    assert pipeline.name == "n1"
    assert pipeline.restart.limit == 3
    assert pipeline.cluster.bootstrap_servers == "here:9092"
    assert getattr(pipeline.sources["ticks"], "rows_per_second", 0) == 7
    assert getattr(pipeline.sinks["out"], "truncate", None) is False
    assert pipeline.views["shown"].sql == "SELECT '${x}' AS text FROM ticks"


def test_a_missing_file_says_how_to_get_an_example(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="millstream pipeline init"):
        load(tmp_path / "nothing")


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(InvalidPipeline, match="cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("mine", "{}/mine"), ("/mine", "/mine"), ("hdfs://h/c", "hdfs://h/c"), ("file:/c", "file:/c")],
)
def test_checkpoints_are_where_the_definition_is_wherever_it_is_run_from(
    tmp_path: Path, given: str, kept: str
) -> None:
    pipeline = defined(tmp_path, f"{SMALL}checkpoints: {given}\n")

    assert pipeline.checkpoints == kept.format(tmp_path)
