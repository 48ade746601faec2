"""A query's life: it starts, fails, is started again after a growing while, and gives up."""

from __future__ import annotations

from millstream.spark.pipelines.definition import Restart
from millstream.spark.pipelines.progress import BatchProgress
from millstream.spark.pipelines.supervision import QueryState, QuerySupervisor

RESTART = Restart(limit=3, backoff=1.0, backoff_max=3.0, healthy_after=60.0)


def batch(number: int, rows: int = 5) -> BatchProgress:
    return BatchProgress(number, "", rows, 1.0, 2.0, 3, None, None, 0, 0)


def test_restarts_wait_twice_as_long_each_time_and_not_too_long() -> None:
    query = QuerySupervisor("q", RESTART)

    waits = []
    now_ms = 0
    for _ in range(3):
        query.started(now_ms)
        query.failed("down", now_ms)
        wait_ms = next(ms for ms in range(0, 10_000, 500) if query.is_due(now_ms + ms))
        waits.append(wait_ms)
        now_ms += wait_ms

    assert waits == [1000, 2000, 3000]
    assert query.restarts == 3


def test_it_may_be_restarted_for_ever() -> None:
    query = QuerySupervisor("q", Restart(limit=10_000, backoff=1.0, backoff_max=3.0))

    for _ in range(5_000):
        query.started(0)
        query.failed("down", 0)

    assert query.state is QueryState.BACKING_OFF
    assert query.is_due(3_000)


def test_it_gives_up_after_the_limit() -> None:
    query = QuerySupervisor("q", RESTART)

    for _ in range(4):
        query.started(0)
        query.failed("down", 0)

    assert query.state is QueryState.FAILED
    assert query.has_ended
    assert not query.is_due(10**9)
    assert query.error == "down"


def test_what_no_restart_helps_fails_at_once() -> None:
    query = QuerySupervisor("q", RESTART)
    query.started(0)

    query.failed("wrong", 0, may_restart=False)

    assert query.state is QueryState.FAILED
    assert query.restarts == 0


def test_a_query_that_was_well_for_a_while_counts_anew() -> None:
    query = QuerySupervisor("q", RESTART)

    for now_ms in range(0, 600_000, 100_000):
        query.started(now_ms)
        query.progressed(batch(0))
        query.failed("down", now_ms + 60_000)

    assert query.state is QueryState.BACKING_OFF
    assert query.restarts == 6


def test_one_that_ran_long_without_a_batch_was_not_well() -> None:
    query = QuerySupervisor("q", RESTART)

    for now_ms in range(0, 400_000, 100_000):
        query.started(now_ms)
        query.failed("down", now_ms + 60_000)

    assert query.state is QueryState.FAILED


def test_rows_are_counted_once_for_each_batch() -> None:
    query = QuerySupervisor("q", RESTART)

    query.progressed(batch(0, rows=5))
    query.progressed(batch(0, rows=0))
    query.progressed(batch(1, rows=2))

    assert (query.rows, query.batches) == (7, 2)
    assert query.last == batch(1, rows=2)


def test_what_has_ended_cannot_be_stopped() -> None:
    finished, waiting = QuerySupervisor("a", RESTART), QuerySupervisor("b", RESTART)
    finished.finished()

    finished.stopped()
    waiting.stopped()

    assert (finished.state, waiting.state) == (QueryState.FINISHED, QueryState.STOPPED)


def test_facts_are_for_programs() -> None:
    query = QuerySupervisor("q", RESTART)
    assert query.facts()["last"] is None

    query.progressed(batch(3))

    facts = query.facts()
    assert (facts["query"], facts["state"], facts["rows"]) == ("q", "waiting", 5)
    assert facts["last"]["batch"] == 3
