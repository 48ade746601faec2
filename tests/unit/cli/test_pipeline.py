"""`millstream pipeline`, as far as it goes without Spark."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli import pipeline as module
from millstream.cli import pipeline_run
from millstream.cli.app import run
from millstream.cli.faults import ExitCode
from millstream.spark.pipelines.definition import Restart
from millstream.spark.pipelines.progress import BatchProgress
from millstream.spark.pipelines.runner import RunResult, StopSwitch
from millstream.spark.pipelines.schema import Fault, Place
from millstream.spark.pipelines.state_directory import StateDirectory
from millstream.spark.pipelines.supervision import QuerySupervisor
from tests.unit.cli.running import as_json

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.running import Run

STATUS: dict[str, Any] = {
    "pipeline": "orders",
    "state": "running",
    "pid": 4711,
    "host": "here",
    "mode": "continuous",
    "master": "local[2]",
    "started_ms": 1_700_000_000_000,
    "updated_ms": 1_700_000_001_000,
    "error": None,
    "queries": [
        {
            "query": "totals",
            "state": "running",
            "rows": 12,
            "batches": 3,
            "restarts": 1,
            "error": None,
            "last": {"processed_per_second": 4.5, "lag": 7},
        },
        {
            "query": "late",
            "state": "waiting",
            "rows": 0,
            "batches": 0,
            "restarts": 0,
            "error": None,
            "last": None,
        },
    ],
}


@pytest.fixture
def pipeline(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command of the family; its exit code, stdout and stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = run(["pipeline", *map(str, arguments)])
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def example(tmp_path: Path, pipeline: Run) -> Path:
    """The example, written by the command."""
    code, _, _ = pipeline("init", tmp_path / "orders")
    assert code == ExitCode.OK
    return tmp_path / "orders"


def test_the_example_has_nothing_wrong(pipeline: Run, example: Path) -> None:
    code, out, err = pipeline("validate", example)

    assert (code, err) == (ExitCode.OK, "")
    assert out == "orders: 2 sources, 5 views, 3 sinks; nothing is wrong\n"


def test_an_example_overwrites_nothing(pipeline: Run, example: Path) -> None:
    code, _, err = pipeline("init", example)

    assert code == ExitCode.FAILED
    assert "has pipeline.yaml, functions.py" in err


def test_init_for_programs(pipeline: Run, tmp_path: Path) -> None:
    told = as_json(pipeline("init", tmp_path / "new", "--json"))

    assert told["files"][0] == "pipeline.yaml"


def test_init_with_a_template(pipeline: Run, tmp_path: Path) -> None:
    home = tmp_path / "made"

    code, _, _ = pipeline("init", home, "--template", "topic-to-postgres")

    assert (code, [each.name for each in home.iterdir()]) == (ExitCode.OK, ["pipeline.yaml"])
    assert pipeline("validate", home)[0] == ExitCode.OK


def test_every_fault_is_a_line_with_its_place(pipeline: Run, example: Path) -> None:
    file = example / "pipeline.yaml"
    file.write_text(file.read_text().replace("format: parquet", "format: parqet"))

    code, out, err = pipeline("validate", file)
    told = json.loads(pipeline("validate", file, "--json")[1])

    assert (code, out) == (ExitCode.FAILED, "")
    assert "sink 'archive': there is no format 'parqet'; did you mean 'parquet'?" in err
    assert told["valid"] is False
    assert told["faults"][0]["line"] > 1


def test_validation_for_programs(pipeline: Run, example: Path) -> None:
    assert as_json(pipeline("validate", example, "--json")) == {"valid": True, "faults": []}


def test_a_definition_that_is_not_there(pipeline: Run, tmp_path: Path) -> None:
    assert pipeline("validate", tmp_path / "x")[0] == ExitCode.USAGE
    code, _, err = pipeline("validate", tmp_path)

    assert code == ExitCode.FAILED
    assert "millstream pipeline init" in err


@pytest.mark.parametrize(
    ("form", "begin"),
    [("text", "files (source: text"), ("mermaid", "flowchart LR"), ("dot", "digraph pipeline")],
)
def test_graphs(pipeline: Run, example: Path, form: str, begin: str) -> None:
    code, out, _ = pipeline("graph", example, "--format", form)

    assert code == ExitCode.OK
    assert out.startswith(begin)


def test_a_graph_for_programs(pipeline: Run, example: Path) -> None:
    code, out, _ = pipeline("graph", example, "--json")

    assert code == ExitCode.OK
    graph = json.loads(out)
    kinds = {each["id"]: each["kind"] for each in graph["nodes"]}
    assert set(kinds.values()) >= {"source", "sink"}
    assert graph["edges"]
    assert all({each["from"], each["to"]} <= kinds.keys() for each in graph["edges"])


def test_status_of_what_never_ran(pipeline: Run, example: Path) -> None:
    code, _, err = pipeline("status", example)

    assert code == module.NOT_RUNNING
    assert "no pipeline ever ran in" in err


def test_status_of_a_run(pipeline: Run, example: Path) -> None:
    directory = StateDirectory(example / "state")
    with directory.held():
        directory.write_status(STATUS)
        code, out, _ = pipeline("status", example)
        told = as_json(pipeline("status", "--storage", directory.path, "--json"))

    assert code == ExitCode.OK
    assert "process:  4711 on here" in out
    assert "totals  running  12    3        4.5     7    1         -" in out
    assert told["is_running"] is True


def test_status_of_a_process_that_died(pipeline: Run, example: Path) -> None:
    directory = StateDirectory(example / "state")
    with directory.held():
        directory.write_status(STATUS)

    code, out, _ = pipeline("status", example)

    assert code == module.NOT_RUNNING
    assert "state:    died" in out
    assert "process" not in out
    assert "totals  died" in out
    assert "late    died" in out
    assert "running" not in out


@pytest.mark.parametrize("state", ["starting", "stopping", "ending"])
def test_status_of_a_process_that_died_on_its_way(pipeline: Run, example: Path, state: str) -> None:
    directory = StateDirectory(example / "state")
    done = {**STATUS["queries"][0], "state": "finished"}
    with directory.held():
        directory.write_status({**STATUS, "state": state, "queries": [done]})

    told = as_json((0, *pipeline("status", example, "--json")[1:]))

    assert told["state"] == "died"
    assert told["queries"][0]["state"] == "finished"


def test_stop_without_a_run(pipeline: Run, example: Path) -> None:
    code, _, err = pipeline("stop", example)

    assert code == ExitCode.FAILED
    assert "no pipeline runs in" in err


def test_stop_asks_and_waits(pipeline: Run, example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = StateDirectory(example / "state")
    held = directory.held()
    held.__enter__()

    def obey(_seconds: float) -> None:
        assert directory.is_stop_requested
        held.__exit__(None, None, None)

    monkeypatch.setattr("millstream.cli.pipeline.time.sleep", obey)
    code, out, _ = pipeline("stop", example)

    assert (code, out) == (ExitCode.OK, "stopped\n")


def test_stop_that_takes_too_long(pipeline: Run, example: Path) -> None:
    with StateDirectory(example / "state").held():
        code, _, err = pipeline("stop", example, "--timeout", "0")

    assert code == ExitCode.FAILED
    assert "end it with --force" in err


def test_stop_waits_for_as_long_as_the_pipeline_lets_batches_finish(
    pipeline: Run, example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def has_ended(_: StateDirectory, seconds: float) -> bool:
        waited.append(seconds)
        return False

    monkeypatch.setattr("millstream.cli.pipeline._has_ended", has_ended)
    directory = StateDirectory(example / "state")
    with directory.held():
        directory.write_status({**STATUS, "stop_timeout": 600.0})
        _, _, err = pipeline("stop", example)

    assert waited == [660.0]
    assert "it has not stopped in 660 s" in err


def test_stop_by_force(pipeline: Run, example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = StateDirectory(example / "state")
    held = directory.held()
    held.__enter__()
    directory.write_status(STATUS)  # Of an earlier run, whose number may be another's by now.
    killed = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        held.__exit__(None, None, None)

    monkeypatch.setattr("millstream.cli.pipeline.os.kill", kill)
    told = as_json(pipeline("stop", example, "--timeout", "0", "--force", "--json"))

    assert killed == [(os.getpid(), signal.SIGKILL)]
    assert told["stopped"] is True


def test_a_process_of_another_machine_cannot_be_forced(pipeline: Run, example: Path) -> None:
    directory = StateDirectory(example / "state")
    with directory.held():
        (directory.path / "lock").write_text('{"pid": 4711, "host": "elsewhere"}')
        code, _, err = pipeline("stop", example, "--timeout", "0", "--force")

    assert code == ExitCode.FAILED
    assert "it runs on elsewhere; end process 4711 there" in err


def test_a_process_that_is_gone_when_it_is_forced(
    pipeline: Run, example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = StateDirectory(example / "state").held()
    held.__enter__()

    def kill(pid: int, number: int) -> None:
        held.__exit__(None, None, None)
        raise ProcessLookupError

    monkeypatch.setattr("millstream.cli.pipeline.os.kill", kill)

    assert pipeline("stop", example, "--timeout", "0", "--force")[0] == ExitCode.OK


def test_a_second_run_is_refused_before_spark_starts(
    pipeline: Run, example: Path, spark: dict[str, Any]
) -> None:
    with StateDirectory(example / "state").held():
        code, _, err = pipeline("run", example)

    assert code == ExitCode.FAILED
    assert f"process {os.getpid()} runs this pipeline" in err
    assert not spark


# A run, with a Spark that is none.


class FakeSpark:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the session was asked for."""
    asked: dict[str, Any] = {}

    def session(
        app_name: str, master: str, conf: dict[str, object], log: Path, *, logs_stdout: bool
    ) -> FakeSpark:
        log.write_text("noise of the JVM")
        asked.update(app_name=app_name, master=master, log=log, logs_stdout=logs_stdout, **conf)
        return FakeSpark()

    monkeypatch.setattr("millstream.spark.sessions.logged_session", session)
    return asked


BATCH = BatchProgress(2, "", 10, 5.0, 20.0, 500, 3, None, 4, 0)


def fake_run(*_: Any, **options: Any) -> RunResult:
    query = QuerySupervisor("totals", Restart())
    watcher = options["watcher"]
    query.started(0)
    watcher.changed(query)
    query.progressed(BATCH)
    watcher.progressed(query, BATCH)
    query.failed("no broker", 0)
    watcher.changed(query)
    watcher.looked({"totals": query})
    signal.raise_signal(signal.SIGTERM)
    assert options["stop"].requests == 1
    return RunResult(is_stopped=True, rows={"totals": 10, "late": 10})


def test_a_run_tells_what_happens(
    pipeline: Run, example: Path, spark: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_run, "run", fake_run)

    code, out, err = pipeline(
        "run", example, "--master", "local[1]", "--conf", "spark.executor.memory=1g"
    )

    assert (code, err) == (ExitCode.OK, "starting Spark\n")
    assert out.splitlines() == [
        "totals: running",
        "totals: batch 2, 10 rows, 500 ms, lag 3",
        "totals: backing off: no broker",
        "orders: stopped; rows taken in: totals 10, late 10",
    ]
    assert spark["log"] == example / "state" / "spark.log"
    assert spark["logs_stdout"] is False
    assert spark["master"] == "local[1]"
    assert spark["spark.executor.memory"] == "1g"
    assert spark["spark.sql.shuffle.partitions"] == "2"


def test_a_run_begins_at_a_time(
    pipeline: Run, tmp_path: Path, spark: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "name: copies\ncluster: {bootstrap_servers: 'localhost:9092'}\n"
        "sources:\n"
        "  raw: {format: topic, topic: a}\n"
        "  table: {format: topic, topic: b, stream: false}\n"
        "sinks: {out: {from: raw, format: topic, topic: c}}\n"
    )
    run_with: list[Any] = []

    def note_run(*given: Any, **options: Any) -> RunResult:
        run_with.append(given[0])
        return fake_run(**options)

    monkeypatch.setattr(pipeline_run, "run", note_run)

    code, _, _ = pipeline("run", tmp_path, "--from-time", "2023-11-14T22:13:20Z")
    wrong = pipeline("run", tmp_path, "--from-time", "soon")

    assert code == ExitCode.OK
    assert run_with[0].is_first_run
    starts = {name: each.starting for name, each in run_with[0].sources.items()}
    assert starts == {"raw": "1700000000000", "table": "earliest"}
    assert wrong[0] == ExitCode.USAGE
    assert "'soon' is not a time" in wrong[2]


def test_a_run_without_topics_has_no_time_to_begin_at(
    pipeline: Run, example: Path, spark: dict[str, Any]
) -> None:
    (example / "pipeline.yaml").write_text(
        "name: copies\nsources: {raw: {format: rate}}\nsinks: {out: {from: raw, format: console}}\n"
    )

    code, _, err = pipeline("run", example, "--from-time", "2h")

    assert code == ExitCode.FAILED
    assert "the pipeline reads no topic as a stream" in err
    assert not spark


def test_a_run_for_programs(
    pipeline: Run, example: Path, spark: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_run, "run", fake_run)

    _, out, _ = pipeline("run", example, "--json", "--storage", example / "other")

    told = [json.loads(line) for line in out.splitlines()]
    assert [each["event"] for each in told] == ["state", "progress", "state", "end"]
    assert told[1]["lag"] == 3
    assert told[-1]["rows"] == {"totals": 10, "late": 10}
    assert spark["log"] == example / "other" / "spark.log"
    assert spark["logs_stdout"] is True
    assert spark["master"] == "local[*]"


def test_spark_is_asked_for_its_opinion(
    pipeline: Run, example: Path, spark: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Opinion:
        def __init__(self, *_: object) -> None: ...

        def faults(self) -> list[Fault]:
            return [Fault(Place("pipeline.yaml", 3, 1), "no such column")]

    monkeypatch.setattr("millstream.spark.pipelines.assembly.Assembly", Opinion)

    code, _, err = pipeline("validate", example, "--deep")

    assert code == ExitCode.FAILED
    assert err == "starting Spark\nmillstream: pipeline.yaml:3:1: no such column\n"
    assert spark["master"] == "local[1]"
    assert not (example / "state").exists()


def test_handlers_of_signals_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)

    with pipeline_run.stopped_by_signals(StopSwitch()):
        assert signal.getsignal(signal.SIGTERM) is not before

    assert signal.getsignal(signal.SIGTERM) is before
