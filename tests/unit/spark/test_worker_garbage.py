"""When what a worker has imported is kept from its garbage collector."""

from __future__ import annotations

import pytest

from millstream.spark import worker_garbage
from millstream.spark.datasource import MillstreamDataSource

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders", "topic": "orders"}


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(worker_garbage, "_is_frozen", False)
    monkeypatch.setattr("gc.freeze", lambda: found.append(True))
    return found


def test_a_worker_that_stays_freezes_once(
    frozen: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")

    worker_garbage.freeze_once()
    worker_garbage.freeze_once()

    assert frozen == [True]


def test_other_processes_are_left_alone(
    frozen: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)

    worker_garbage.freeze_once()

    assert frozen == []


@pytest.mark.parametrize("asked", ["reader", "writer", "stream writer"])
def test_workers_that_plan_or_end_a_write_freeze_too(
    frozen: list[bool], monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    source = MillstreamDataSource(options=dict(OPTIONS))
    schema = source.schema()
    if asked == "reader":
        del source.options["topic"]
        source.reader(schema)
    else:
        del source.options["subscribe"]
        make = source.writer if asked == "writer" else source.streamWriter
        make(schema, overwrite=False)

    assert frozen == [True]
