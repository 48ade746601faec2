"""A run of a pipeline with queries that are no Spark: stages, restarts, stops, status."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from millstream.clock import ManualClock
from millstream.errors import CheckpointMismatch, PipelineFailed
from millstream.spark.pipelines.assembly import Flow
from millstream.spark.pipelines.graph import stages
from millstream.spark.pipelines.runner import Runner, SilentWatcher, StopSwitch
from millstream.spark.pipelines.sinks import Sink
from millstream.spark.pipelines.state_directory import StateDirectory
from tests.unit.spark.pipelines.project import defined

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.spark.pipelines.sinks import Trigger

TEXT = """
name: shop
restart: {limit: 2, backoff: 1}
cluster: {bootstrap_servers: "localhost:9092"}
sources:
  ticks: {format: rate}
  raw: {format: topic, topic: orders}
sinks:
  import: {from: ticks, format: topic, topic: orders}
  out: {from: raw, format: console}
"""


@dataclass
class FakeProgress:
    batch: int
    rows: int = 10

    @property
    def json(self) -> str:
        return json.dumps(
            {
                "runId": "r",
                "batchId": self.batch,
                "timestamp": str(self.batch),
                "numInputRows": self.rows,
            }
        )


@dataclass
class FakeQuery:
    """Does a batch at each look; ends after some, with an error or without."""

    batches: int | None = None
    error: Exception | None = None
    is_busy: bool = False
    recentProgress: list[FakeProgress] = field(default_factory=list)
    is_stopped: bool = False

    @property
    def isActive(self) -> bool:
        if self.is_stopped:
            return False
        if self.batches is not None and len(self.recentProgress) >= self.batches:
            return False
        self.recentProgress.append(FakeProgress(len(self.recentProgress)))
        return True

    @property
    def lastProgress(self) -> FakeProgress | None:
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.is_busy}

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.is_stopped = True


class Bench:
    """Runs the pipeline with queries of the test's choice."""

    def __init__(self, directory: Path, text: str = TEXT) -> None:
        self.pipeline = defined(directory, text)
        self.seconds_per_look = 0.0
        self.directory = StateDirectory(self.pipeline.storage)
        self.directory.path.mkdir()
        self.clock = ManualClock()
        self.stop = StopSwitch()
        self.started: list[tuple[str, str, Trigger]] = []
        self.queries: dict[str, Callable[[], Any]] = {}
        self.looks = 0
        self.on_look: Callable[[int], None] = lambda look: None
        self.assemble: Callable[[dict[str, Flow]], dict[str, Flow]] = lambda flows: flows

    def run(self, *, available_now: bool = False) -> Any:
        flows = {
            name: Flow(name, self._sink(name), None)  # type: ignore[arg-type]  # No Spark here.
            for stage in stages(self.pipeline)
            for name in stage
        }
        self.runner = Runner(
            self.pipeline,
            lambda: self.assemble(flows),
            self.directory,
            available_now=available_now,
            watcher=SilentWatcher(),
            stop=self.stop,
            clock=self.clock,
            sleep=self._sleep,
        )
        return self.runner.run()

    def _sink(self, name: str) -> Any:
        bench = self

        class FakeSink(Sink):
            def start(self, df: Any, name: str, checkpoint: str, trigger: Trigger) -> Any:
                bench.started.append((name, checkpoint, trigger))
                return bench.queries[name.removeprefix("shop.")]()

        return FakeSink(from_=self.pipeline.sinks[name].from_)

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(int((self.seconds_per_look or seconds) * 1000))
        self.looks += 1
        self.on_look(self.looks)
        assert self.looks < 1000, "the run does not end"

    @property
    def status(self) -> dict[str, Any]:
        return self.directory.read_status() or {}

    def state_of(self, query: str) -> str:
        return next(str(each["state"]) for each in self.status["queries"] if each["query"] == query)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_available_data_goes_through_one_stage_after_the_other(bench: Bench) -> None:
    order: list[str] = []

    def start_import() -> FakeQuery:
        order.append("import")
        return FakeQuery(batches=2)

    def start_out() -> FakeQuery:
        order.append(bench.runner.supervisors["import"].state.value)
        return FakeQuery(batches=1)

    bench.queries = {"import": start_import, "out": start_out}

    result = bench.run(available_now=True)

    assert order == ["import", "finished"]
    assert result.rows == {"import": 20, "out": 10}
    assert not result.is_stopped
    assert all(trigger.is_available_now for _, _, trigger in bench.started)
    assert bench.status["state"] == "finished"


def test_a_continuous_run_starts_everything_at_once(bench: Bench) -> None:
    bench.queries = {"import": FakeQuery, "out": FakeQuery}
    bench.on_look = lambda look: bench.stop.request() if look == 3 else None

    result = bench.run()

    assert [name for name, _, _ in bench.started] == ["shop.import", "shop.out"]
    assert bench.started[0][1] == bench.directory.checkpoint("import")
    assert result.is_stopped
    assert bench.status["state"] == "stopped"
    assert bench.state_of("out") == "stopped"


def test_another_process_can_ask_for_the_end(bench: Bench) -> None:
    bench.queries = {"import": FakeQuery, "out": FakeQuery}
    bench.on_look = lambda look: bench.directory.request_stop() if look == 2 else None

    assert bench.run().is_stopped


def test_a_query_that_fails_is_started_again(bench: Bench) -> None:
    tries = iter(
        [FakeQuery(1, RuntimeError("down")), FakeQuery(1, RuntimeError("down")), FakeQuery(1)]
    )
    bench.queries = {"import": lambda: next(tries), "out": lambda: FakeQuery(1)}

    result = bench.run(available_now=True)

    assert result.rows["import"] == 30
    assert [each["restarts"] for each in bench.status["queries"]] == [2, 0]
    assert bench.clock.monotonic_ms() >= 3000


def test_a_query_that_cannot_start_is_tried_again_too(bench: Bench) -> None:
    tries = iter([ConnectionError("no broker"), None])

    def start() -> FakeQuery:
        if (error := next(tries)) is not None:
            raise error
        return FakeQuery(1)

    bench.queries = {"import": start, "out": lambda: FakeQuery(1)}

    bench.run(available_now=True)

    assert bench.status["queries"][0]["error"] == "no broker"
    assert bench.state_of("import") == "finished"


def test_a_query_that_fails_too_often_ends_the_pipeline(bench: Bench) -> None:
    healthy = FakeQuery()
    bench.queries = {"import": lambda: healthy, "out": lambda: FakeQuery(0, RuntimeError("down"))}

    with pytest.raises(PipelineFailed, match="query out of shop failed: down"):
        bench.run()

    assert healthy.is_stopped
    assert bench.status["state"] == "failed"
    assert "down" in bench.status["error"]
    assert [bench.state_of(each) for each in ("import", "out")] == ["stopped", "failed"]


def test_what_rows_did_not_fulfil_is_not_tried_again(bench: Bench) -> None:
    broken = RuntimeError("[USER_RAISED] a row of raw does not fulfil the expectation paid: x > 0")
    bench.queries = {"import": FakeQuery, "out": lambda: FakeQuery(0, broken)}

    with pytest.raises(PipelineFailed, match="does not fulfil the expectation paid"):
        bench.run()

    assert len([name for name, _, _ in bench.started if name == "shop.out"]) == 1


def test_a_stop_waits_for_the_batch_at_hand(bench: Bench) -> None:
    busy = FakeQuery(is_busy=True)
    looks_at_stop: list[int] = []
    busy.stop = lambda: looks_at_stop.append(len(busy.recentProgress))  # type: ignore[method-assign]  # Watched.
    bench.queries = {"import": lambda: busy, "out": FakeQuery}
    bench.on_look = lambda look: bench.stop.request() if look == 2 else None

    bench.run()

    assert looks_at_stop[0] > 2


@dataclass
class SlowQuery(FakeQuery):
    """Is at its first batch until the clock says so."""

    is_done: Callable[[], bool] = lambda: False
    is_busy: bool = True

    @property
    def isActive(self) -> bool:
        if self.is_done() and not self.recentProgress:
            self.recentProgress.append(FakeProgress(0))
        return not self.is_stopped


@pytest.mark.parametrize(
    ("timeout_s", "takes_s", "batches"), [(600, 90, 1), (600, 700, 0), (20, 90, 0)]
)
def test_a_batch_may_take_minutes_after_a_stop_but_not_for_ever(
    tmp_path: Path, timeout_s: int, takes_s: int, batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path, TEXT if timeout_s == 600 else f"{TEXT}stop_timeout: {timeout_s}\n")
    began_ms = bench.clock.monotonic_ms()
    slow = SlowQuery(is_done=lambda: bench.clock.monotonic_ms() - began_ms >= takes_s * 1000)
    bench.queries = {"import": lambda: slow, "out": FakeQuery}
    bench.seconds_per_look = 5
    bench.on_look = lambda look: bench.stop.request() if look == 1 else None

    assert bench.run().is_stopped

    assert bench.runner.supervisors["import"].batches == batches
    assert slow.is_stopped
    assert ("stopped in its batch" in caplog.text) == (not batches)
    assert bench.status["stop_timeout"] == timeout_s
    assert bench.clock.monotonic_ms() - began_ms <= (timeout_s + 10) * 1000


def test_asked_twice_it_ends_at_once(bench: Bench) -> None:
    bench.queries = {"import": lambda: FakeQuery(is_busy=True), "out": FakeQuery}

    def twice(look: int) -> None:
        bench.stop.request()
        bench.stop.request()

    bench.on_look = twice
    bench.run()

    assert bench.looks == 1


def test_an_unforeseen_error_stops_the_queries(bench: Bench) -> None:
    query = FakeQuery()
    bench.queries = {"import": lambda: query, "out": FakeQuery}

    def interrupt(look: int) -> None:
        raise KeyboardInterrupt

    bench.on_look = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.run()

    assert query.is_stopped
    assert bench.status["state"] == "failed"


def test_an_interruption_while_a_query_starts_ends_the_others(bench: Bench) -> None:
    query = FakeQuery()

    def interrupted() -> FakeQuery:
        raise KeyboardInterrupt

    bench.queries = {"import": lambda: query, "out": interrupted}
    with pytest.raises(KeyboardInterrupt):
        bench.run()

    assert query.is_stopped
    assert bench.status["state"] == "failed"


def test_a_spark_that_is_gone_does_not_hide_why_the_run_ends(bench: Bench) -> None:
    gone = FakeQuery()

    def stop() -> None:
        raise ConnectionError("the JVM is gone")

    gone.stop = stop  # type: ignore[method-assign]  # As PySpark's does then.
    healthy = FakeQuery()
    bench.queries = {"import": lambda: gone, "out": lambda: healthy}

    def fail(look: int) -> None:
        raise RuntimeError("why it ends")

    bench.on_look = fail
    with pytest.raises(RuntimeError, match="why it ends"):
        bench.run()

    assert healthy.is_stopped
    assert bench.status["error"] == "why it ends"


def test_a_query_that_cannot_be_stopped_keeps_none_of_the_others(bench: Bench) -> None:
    stuck, healthy = FakeQuery(), FakeQuery()

    def stop() -> None:
        raise TimeoutError("it does not end")

    stuck.stop = stop  # type: ignore[method-assign]  # As Spark's does after its stopTimeout.
    bench.queries = {"import": lambda: stuck, "out": lambda: healthy}
    bench.on_look = lambda look: bench.stop.request()

    assert bench.run().is_stopped

    assert healthy.is_stopped
    assert bench.status["state"] == "stopped"


def test_a_stop_is_heeded_between_the_starts_of_queries(bench: Bench) -> None:
    def start() -> FakeQuery:
        bench.stop.request()  # While it waited for a broker that is down.
        return FakeQuery()

    bench.queries = {"import": start, "out": FakeQuery}

    assert bench.run().is_stopped

    assert [name for name, _, _ in bench.started] == ["shop.import"]


def test_a_status_that_cannot_be_written_ends_no_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write_status(status: dict[str, Any]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.directory, "write_status", write_status)
    bench.queries = {"import": lambda: FakeQuery(2), "out": lambda: FakeQuery(2)}

    assert bench.run(available_now=True).rows == {"import": 20, "out": 20}

    assert [each.message for each in caplog.records] == [
        "the status of shop is not written: [Errno 28] No space left on device"
    ]


def test_the_status_says_that_a_run_starts_and_why_it_did_not(bench: Bench) -> None:
    bench.directory.write_status({"state": "finished"})
    seen = []

    def refused(flows: dict[str, Flow]) -> dict[str, Flow]:
        seen.append(bench.status["state"])
        raise CheckpointMismatch("another directory, please")

    bench.assemble = refused
    with pytest.raises(CheckpointMismatch):
        bench.run()

    assert seen == ["starting"]
    assert (bench.status["state"], bench.status["error"]) == ("failed", "another directory, please")
