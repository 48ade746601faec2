"""Every fault of a definition is told at once, with its place and the nearest known name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidPipeline
from millstream.spark.pipelines.loading import load
from tests.unit.spark.pipelines.project import SMALL, problems, write

if TYPE_CHECKING:
    from pathlib import Path


def only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


def test_all_faults_are_told_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
        name: orders
        clustr: {}
        sources:
          raw: {format: topc, topic: orders}
          ticks: {format: rate, rows_per_second: many, partitions: 0}
        views:
          sums:
            from: ticks
            aggregate: {window: {duration: 1 parsec}, select: {n: count(*)}}
          again: {from: smus, deduplicate: {columns: [id]}}
        sinks:
          out: {from: suns, format: console}
          late: {from: raw, format: console}
    """

    assert problems(tmp_path, text) == [
        "2:1 the pipeline has no key 'clustr'; did you mean 'cluster'?",
        "4:17 source 'raw': there is no format 'topc'; did you mean 'topic'?",
        "5:42 `rows_per_second` of source 'ticks' (rate) must be a whole number, not 'many'",
        "5:60 `partitions` of source 'ticks' (rate): 0 is not above 0",
        "9:36 `duration` of `window` of `aggregate` of view 'sums': '1 parsec' is no duration; "
        "write it as 10 seconds, 5 minutes or 1 hour",
        "10:3 view 'again' reads 'smus', which is no source and no view; did you mean 'sums'?",
        "12:3 sink 'out' reads 'suns', which is no source and no view; did you mean 'sums'?",
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "the file is empty"),
        ("name: [", "this is no YAML"),
        ("- a", "the pipeline must be a mapping"),
        ("name: a\nname: b\n", "'name' is here twice, first in line 1"),
        ("? [a]\n: b\n", "a key must be a word"),
        ("name: ${NOPE}", "the variable NOPE is not set; set it, or write ${NOPE:-default}"),
        ("name: ${1}", "'${' begins no variable"),
        ("sources: 3", "`sources` must be a mapping of names to definitions"),
        ("sources: {a: 3}", "source 'a' must be a mapping of keys to values"),
        ("sources: {a: {}}", "source 'a' needs a `format`:"),
        ("sources: {a: {format: [b]}}", "there is no format ''"),
        ("libraries: [nowhere.py]", "there is no library 'nowhere.py'"),
        ("name: a b", "becomes part of topics and groups"),
        ("name: a", "the pipeline has no sink"),
        ("name: a\nstorage: s3://bucket/x", "`storage` is a directory of this machine"),
        ("cluster: 3", "`cluster` of the pipeline must be a mapping"),
        ("configuration: 3", "must be a mapping of names to values"),
        ("configuration: {a: [b]}", "must be a text, not what is here"),
        ("configuration: {a: f(b, c)}", "has no value; within braces, put a text that has a"),
        ("storage: ", "must be a text, not what is here"),
        ("configuration: &all {x: *all}", "nested too deep, or an alias stands for itself"),
        ("[" * 5000 + "]" * 5000, "nested too deep"),
        ("libraries: [/etc/hosts]", "library '/etc/hosts': give a path from the definition on"),
        ("libraries: ['']", "library '': give a path from the definition on"),
        ("libraries: [.]", "library '.'"),
        ("libraries: ['**a/*.py']", "library '**a/*.py'"),
        ("restart: {backoff: .inf}", "`backoff` of `restart` of the pipeline: inf is not"),
        ("name: ..", "becomes part of topics and groups"),
        ("name: a\nsinks: {'..': {format: console, from: a}}", "sink '..': use letters"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole(tmp_path: Path, given: str, problem: str) -> None:
    assert any(problem in each for each in problems(tmp_path, given))


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        ("{}", "does nothing: give it one of sql, python"),
        ("{sql: SELECT 1 FROM raw, python: f}", "has sql and python; one is enough"),
        ("{sql: SELECT 1}", "reads no source and no view"),
        ("{from: raw, sql: SELECT 1 FROM raw}", "says itself what it reads"),
        ("{python: f}", "no library has a function 'f'"),
        ("{from: raw, python: naem}", "no library has a function 'naem'; did you mean 'name'?"),
        ("{from: [raw, raw2], python: name}", "name() takes 1 datasets, `from` has 2"),
        ("{deduplicate: {columns: [a]}}", "needs one dataset in `from`, not 0"),
        ("{from: raw, deduplicate: {columns: []}}", "`columns` has no column"),
        ("{from: raw, aggregate: {select: {}}}", "`select` has no column"),
        (
            "{from: raw, aggregate: {window: {duration: 1 hour}, session_gap: 1 hour, "
            "select: {n: count(*)}}}",
            "give `window` or `session_gap`, not both",
        ),
        (
            "{from: raw, aggregate: {window: {duration: 1 hour}, select: {n: count(*)}}}",
            "has windows but no time: give raw a watermark, or the window a column",
        ),
        ("{join: {left: raw, right: raw2, on: a, how: outr}}", "'outr' is not one of inner"),
        (
            "{from: raw, stateful: {processor: Contr, group_by: a, schema: a int}}",
            "no library has a class 'Contr'; did you mean 'Counter'?",
        ),
        (
            "{from: raw, stateful: {processor: Counter, group_by: [], schema: a int}}",
            "`group_by` has no column",
        ),
        ("{sql: SELECT * FROM v}", "view 'v' is made from itself, by way of v"),
        (
            "{sql: SELECT * FROM raw, expectations: [{name: a, condition: b, topic: c}]}",
            "has a topic but no dead letters",
        ),
        (
            "{sql: SELECT * FROM raw, expectations: "
            "[{name: a, condition: b, on_violation: dead-letter, topic: a b}]}",
            "cannot be a topic's name",
        ),
        (
            "{sql: SELECT * FROM raw, expectations: "
            "[{name: a, condition: b}, {name: a, condition: c}]}",
            "has two expectations 'a'",
        ),
    ],
)
def test_a_view_that_cannot_be(tmp_path: Path, view: str, problem: str) -> None:
    text = f"""\
name: orders
cluster: {{bootstrap_servers: "localhost:9092"}}
libraries: [lib.py]
sources:
  raw: {{format: topic, topic: orders}}
  raw2: {{format: topic, topic: orders}}
views:
  v: {view}
sinks:
  out: {{from: raw, format: console}}
"""

    found = problems(tmp_path, text, lib_py="def name(raw): ...\nclass Counter: ...\n")

    assert any(problem in each for each in found), found


@pytest.mark.parametrize(
    ("gap", "problem"),
    [
        ("soon", "`gap` of `session_gap` of `aggregate` of view 'v': 'soon' is no duration"),
        ("{column: at}", "needs the key 'gap'"),
        ("1 hour", "has windows but no time: give raw a watermark, or the window a column"),
    ],
)
def test_sessions_that_cannot_be(tmp_path: Path, gap: str, problem: str) -> None:
    view = f"{{from: raw, aggregate: {{session_gap: {gap}, select: {{n: count(*)}}}}}}"
    found = problems(tmp_path, SMALL + f"views:\n  v: {view}\n")

    assert any(problem in each for each in found), found


def test_a_view_with_a_fault_of_its_own_is_not_said_to_do_nothing(tmp_path: Path) -> None:
    text = SMALL + "views: {v: {from: raw, aggregate: {group_by: [key]}}}\n"

    assert "`aggregate` of view 'v' needs the key 'select'" in only(problems(tmp_path, text))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{format: topic}", "give `topic` or `pattern`"),
        ("{format: topic, topic: a, pattern: b}", "give `topic` or `pattern`"),
        (
            "{format: topic, topic: a, options: {failOnDataLos: true}}",
            "failOnDataLos: there is no such option; did you mean failOnDataLoss?",
        ),
        ("{format: topic, topic: a, starting: soon}", "'soon' is not a time"),
        ("{format: json, path: a}", "a stream of files needs `schema`"),
        ("{format: rate, stream: false}", "rate never ends"),
    ],
)
def test_a_source_that_cannot_be(tmp_path: Path, source: str, problem: str) -> None:
    text = SMALL.replace("{format: topic, topic: orders}", source)

    assert any(problem in each for each in problems(tmp_path, text))


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ("{from: raw, format: topic, topic: a b}", "cannot be a topic's name"),
        ("{from: raw, format: topic, topic: a, output_mode: complete}", "cannot write with"),
        ("{from: raw, format: topic, topic: a, options: {acks: 1}}", "acks: there is no such"),
        ("{from: raw, format: console, trigger: soon}", "'soon' is no duration"),
        ("{format: console}", "needs the key 'from'"),
    ],
)
def test_a_sink_that_cannot_be(tmp_path: Path, sink: str, problem: str) -> None:
    text = SMALL.replace("{from: raw, format: topic, topic: copies}", sink)

    assert any(problem in each for each in problems(tmp_path, text))


def test_a_sink_must_read_a_stream(tmp_path: Path) -> None:
    text = SMALL.replace("topic: orders}", "topic: orders, stream: false}")

    assert "reads no stream" in only(problems(tmp_path, text))


def test_topics_need_brokers(tmp_path: Path) -> None:
    text = SMALL.replace('cluster: {bootstrap_servers: "localhost:9092"}', "")

    found = problems(tmp_path, text)

    assert len(found) == 2
    assert all("topic of no brokers: give `cluster.bootstrap_servers`" in each for each in found)


def test_dead_letters_need_brokers(tmp_path: Path) -> None:
    text = """
        name: a
        sources:
          ticks:
            format: rate
            expectations: [{name: even, condition: value % 2 = 0, on_violation: dead-letter}]
        sinks:
          out: {from: ticks, format: console}
    """

    assert "dead letters of 'ticks' go to a topic" in only(problems(tmp_path, text))


def test_a_sink_cannot_be_called_as_the_query_of_dead_letters(tmp_path: Path) -> None:
    text = SMALL.replace(
        "topic: orders}",
        "topic: orders, expectations: [{name: a, condition: b, on_violation: dead-letter}]}",
    ).replace("  out:", "  raw.dead:")

    assert "'raw.dead' is the query of dead letters of 'raw'" in only(problems(tmp_path, text))


def test_names_must_be_usable_in_sql_and_as_files(tmp_path: Path) -> None:
    text = """
        name: a
        sources:
          my-ticks: {format: rate}
          ticks: {format: rate}
        views:
          ticks: {sql: SELECT * FROM ticks}
        sinks:
          a/b: {from: my-ticks, format: console}
    """

    found = "\n".join(problems(tmp_path, text))

    assert "source 'my-ticks' is to be used in SQL" in found
    assert "'ticks' is a source and a view" in found
    assert "sink 'a/b': use letters" in found


def test_faults_of_libraries_have_their_own_places(tmp_path: Path) -> None:
    text = "name: a\nlibraries: [v.sql, f.py, b.txt]\n" + SMALL.replace("name: orders", "")

    found = problems(
        tmp_path,
        text,
        v_sql="DROP TABLE orders;\nCREATE TEMPORARY VIEW v AS\n  SELECT * FROM rwa",
        f_py="def f(:\n",
        b_txt="",
    )

    assert any("1:1 write CREATE TEMPORARY VIEW" in each for each in found)
    assert any("2:1 view 'v' reads 'rwa', which is no source" in each for each in found)
    assert any("this is no Python" in each for each in found)
    assert any("a library is a file ending in .py or .sql" in each for each in found)


def test_a_view_is_defined_once(tmp_path: Path) -> None:
    text = SMALL + "views: {v: {sql: SELECT * FROM raw}}\nlibraries: [v.sql]\n"

    found = problems(tmp_path, text, v_sql="CREATE TEMP VIEW v AS SELECT 1 FROM raw")

    assert "view 'v' is defined in" in only(found)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("client.idd: me", "no client has a setting 'client.idd'; did you mean"),
        ("linger.ms: lots", "`client` of `cluster`: linger.ms='lots': must be a whole number"),
        ("sasl.password: ''", "no client has a setting 'sasl.password'"),
    ],
)
def test_settings_of_clients_are_checked_and_never_passed_over(
    tmp_path: Path, setting: str, problem: str
) -> None:
    text = SMALL.replace('9092"}', f'9092", client: {{{setting}}}}}')

    assert problem in only(problems(tmp_path, text))


def test_the_error_lists_what_its_faults_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline) as raised:
        load(write(tmp_path, "name: a b\n"), environment={})

    assert len(raised.value.faults) == 2
    assert str(raised.value).count("\n") == 1
