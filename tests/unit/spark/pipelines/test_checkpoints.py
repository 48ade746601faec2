"""Whether a query may go on: checkpoints of other definitions, directories of other queries."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import CheckpointMismatch
from millstream.spark.pipelines.assembly import Flow
from millstream.spark.pipelines.checkpoints import (
    NO_BATCH,
    Batches,
    Owner,
    check_checkpoints,
    log_problem,
)
from millstream.spark.pipelines.state_directory import StateDirectory
from tests.unit.spark.pipelines.project import defined, problems

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
name: shop
cluster: {bootstrap_servers: "localhost:9092"}
sources:
  orders: {format: topic, topic: orders}
  customers: {format: json, path: customers, schema: id bigint, stream: false}
views:
  joined: {join: {left: orders, right: customers, on: "true", select: {id: customers.id}}}
sinks:
  out: {from: joined, format: parquet, path: out}
"""
OURS = Owner("ours", "shop", "/state")
OTHERS = Owner("others", "shop", "/elsewhere")


class MemoryFiles:
    """Files by path, and the last batch of a log by directory."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.batches: dict[str, int] = {}

    def read(self, path: str) -> str | None:
        return self.texts.get(path)

    def write(self, path: str, text: str) -> None:
        self.texts[path] = text

    def last_batch(self, directory: str) -> int:
        return self.batches.get(directory, NO_BATCH)


def check(directory: Path, files: MemoryFiles, text: str = TEXT, **options: Any) -> None:
    pipeline = defined(directory, text)
    storage = options.pop("storage", None)
    if storage is not None:
        pipeline = dataclasses.replace(pipeline, storage=storage)
    frame: Any = None
    flows = {name: Flow(name, sink, frame) for name, sink in pipeline.sinks.items()}
    check_checkpoints(pipeline, flows, files, **options)


def test_the_same_definition_goes_on_again_and_again(tmp_path: Path) -> None:
    files = MemoryFiles()
    check(tmp_path, files)
    noted = dict(files.texts)
    for kind in ("offsets", "commits"):
        files.batches[f"{tmp_path}/state/checkpoints/out/{kind}"] = 3
    files.batches[f"{tmp_path}/out/_spark_metadata"] = 3

    check(tmp_path, files)

    assert files.texts == noted


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("topic: orders", "topic: payments", "it read topic orders and reads topic payments now"),
        ("name: shop", "name: store", "it belonged to the pipeline shop"),
        ("path: out", "path: new", "it wrote parquet .*/out and writes parquet .*/new now"),
        ("format: parquet", "format: orc", "it wrote parquet .*/out and writes orc .*/out now"),
    ],
)
def test_a_checkpoint_of_another_definition_is_refused_unless_the_changes_are_accepted(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    files = MemoryFiles()
    check(tmp_path, files)
    changed = TEXT.replace(before, after)

    with pytest.raises(CheckpointMismatch, match=f"query out: its checkpoint .*{told}.*--storage"):
        check(tmp_path, files, changed)

    check(tmp_path, files, changed, accepts_changes=True)
    check(tmp_path, files, changed)


def test_tables_and_views_may_change(tmp_path: Path) -> None:
    files = MemoryFiles()
    check(tmp_path, files)

    check(tmp_path, files, TEXT.replace("path: customers", "path: clients").replace("true", "1=1"))


def test_a_directory_with_batches_of_another_storage_is_refused_and_stays_the_others(
    tmp_path: Path,
) -> None:
    files = MemoryFiles()
    check(tmp_path, files)
    files.batches[f"{tmp_path}/out/_spark_metadata"] = 0
    log = files.texts[f"{tmp_path}/out/_spark_metadata/owner.json"]

    with pytest.raises(CheckpointMismatch, match=r"query out: parquet .*/out has batches of the"):
        check(tmp_path, files, storage=str(tmp_path / "new"), accepts_changes=True)

    assert files.texts[f"{tmp_path}/out/_spark_metadata/owner.json"] == log


@pytest.mark.parametrize(
    ("found", "batches", "told"),
    [
        (None, Batches(planned=-1, committed=-1, written=-1), None),
        (OURS, Batches(planned=4, committed=3, written=3), None),
        (OURS, Batches(planned=4, committed=3, written=4), None),
        (OTHERS, Batches(planned=4, committed=3, written=4), "of the pipeline shop with the stor"),
        # Written before there were owners, or by a program of Spark's own.
        (None, Batches(planned=4, committed=3, written=4), None),
        (None, Batches(planned=-1, committed=-1, written=0), "has batches up to 0"),
        (None, Batches(planned=4, committed=4, written=9), "has batches up to 9"),
        (OURS, Batches(planned=4, committed=4, written=-1), "lacks batches: the checkpoint is at"),
        (OTHERS, Batches(planned=-1, committed=-1, written=-1), None),
    ],
)
def test_rows_are_lost_where_a_directory_and_a_checkpoint_do_not_belong_together(
    found: Owner | None, batches: Batches, told: str | None
) -> None:
    problem = log_problem(OURS, found, batches)

    assert problem is None if told is None else told in str(problem)


def test_a_directory_is_anothers_before_its_first_batch_while_the_other_runs(
    tmp_path: Path,
) -> None:
    other = StateDirectory(tmp_path)
    found = Owner("others", "shop", str(tmp_path))
    nothing = Batches(planned=NO_BATCH, committed=NO_BATCH, written=NO_BATCH)

    with other.held():
        assert log_problem(OURS, found, nothing) is not None
    assert log_problem(OURS, found, nothing) is None


def test_two_sinks_have_two_directories(tmp_path: Path) -> None:
    found = problems(tmp_path, TEXT + "  more: {from: orders, format: json, path: out/}\n")

    assert len(found) == 1
    assert "sink 'more' writes to the directory of sink 'out'" in found[0]
