"""The graph of a pipeline, its pictures, and the order in which available data goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.spark.pipelines.graph import as_dot, as_mermaid, as_text, graph_of, stages
from tests.unit.spark.pipelines.project import SMALL, defined

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
name: shop
cluster: {bootstrap_servers: "localhost:9092"}
sources:
  files: {format: text, path: /data/in}
  raw: {format: topic, topic: orders}
  prices: {format: parquet, path: /data/prices, stream: false}
views:
  checked:
    sql: SELECT * FROM raw JOIN prices ON raw.key = prices.id
    expectations: [{name: paid, condition: 'note = "paid"', on_violation: dead-letter}]
    watermark: {column: timestamp, delay: 1 minute}
  sums: {from: checked, aggregate: {window: {duration: 1 hour}, select: {n: count(*)}}}
  visits: {from: checked, aggregate: {session_gap: 1 hour, select: {n: count(*)}}}
  first: {from: checked, deduplicate: {columns: [id]}}
sinks:
  import: {from: files, format: topic, topic: orders}
  totals: {from: sums, format: topic, topic: totals}
  shown: {from: first, format: console}
"""


def test_as_a_tree(tmp_path: Path) -> None:
    assert as_text(graph_of(defined(tmp_path, TEXT))).splitlines() == [
        "files (source: text /data/in)",
        "└─ import (sink: topic orders)",
        "raw (source: topic orders)",
        '└─ checked (view: sql; expects note = "paid" or dead-letter)',
        "   ├─ sums (view: aggregate in windows of 1 hour)",
        "   │  └─ totals (sink: topic totals)",
        "   ├─ visits (view: aggregate in sessions, gap 1 hour)",
        "   ├─ first (view: first of each id)",
        "   │  └─ shown (sink: console)",
        "   └─ checked.dead (dead letters: topic shop.checked.dead)",
        "prices (table: parquet /data/prices)",
        "└─ checked (see above)",
    ]


def test_for_mermaid(tmp_path: Path) -> None:
    drawn = as_mermaid(graph_of(defined(tmp_path, TEXT)))

    assert drawn.startswith("flowchart LR\n")
    assert '    source_raw[("raw<br/>topic orders")]' in drawn
    assert "note = #quot;paid#quot;" in drawn
    assert "    view_checked --> dead_letters_checked_dead" in drawn


def test_for_graphviz(tmp_path: Path) -> None:
    drawn = as_dot(graph_of(defined(tmp_path, TEXT)))

    assert '    "source_raw" [shape=cylinder, label="raw\\ntopic orders"];' in drawn
    assert '    "view_first" -> "sink_shown";' in drawn
    assert '\\"paid\\"' in drawn


def test_what_reads_a_topic_comes_after_what_writes_it(tmp_path: Path) -> None:
    assert stages(defined(tmp_path, TEXT)) == [["import"], ["totals", "shown", "checked.dead"]]


def test_what_reads_topics_by_a_pattern_comes_after_them_too(tmp_path: Path) -> None:
    text = TEXT.replace("topic: orders}\n  prices", "pattern: 'ord.*'}\n  prices")

    assert stages(defined(tmp_path, text))[0] == ["import"]


def test_a_circle_of_topics_has_no_first(tmp_path: Path) -> None:
    text = SMALL.replace("topic: copies", "topic: orders") + (
        "  back: {from: raw, format: topic, topic: orders}\n"
    )

    assert stages(defined(tmp_path, text)) == [["out", "back"]]


def test_dead_letters_of_what_nobody_uses_are_not_written(tmp_path: Path) -> None:
    text = (
        SMALL
        + """
views:
  unused:
    sql: SELECT * FROM raw
    expectations: [{name: a, condition: b, on_violation: dead-letter}]
"""
    )

    assert stages(defined(tmp_path, text)) == [["out"]]


def test_functions_processors_and_joins_are_named(tmp_path: Path) -> None:
    text = (
        SMALL
        + """
libraries: [lib.py]
views:
  a: {from: raw, python: f}
  b: {from: raw, stateful: {processor: C, group_by: key, schema: k int}}
  c: {join: {left: a, right: b, on: a.k = b.k}}
"""
    )

    drawn = as_text(graph_of(defined(tmp_path, text, lib_py="def f(x): ...\nclass C: ...")))

    assert "a (view: python f())" in drawn
    assert "b (view: state of C)" in drawn
    assert drawn.count("c (view: inner join on a.k = b.k)") == 1
    assert drawn.count("c (see above)") == 1
