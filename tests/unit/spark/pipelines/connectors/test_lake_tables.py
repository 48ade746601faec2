"""Delta, Iceberg and Parquet tables: each batch once, and few files."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableOptimizer
from pyarrow import dataset, parquet
from pyiceberg.exceptions import CommitFailedException

from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.batches import Batch, in_utc
from millstream.spark.pipelines.connectors.lake import iceberg
from millstream.spark.pipelines.connectors.lake.compaction import Compaction
from millstream.spark.pipelines.connectors.lake.delta import DeltaSink, DeltaTarget
from millstream.spark.pipelines.connectors.lake.iceberg import IcebergTarget
from millstream.spark.pipelines.connectors.lake.parquet import ParquetTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.spark.pipelines.connectors.batches import BatchTarget

NEVER = Compaction(every=0, target_bytes=1 << 20)
ALWAYS = Compaction(every=1, target_bytes=1 << 20)


class Delta:
    """A Delta table in a directory."""

    look_up = "_opened"
    refusals: tuple[type[Exception], ...] = (CommitFailedError,)

    def __init__(self, home: Path, compaction: Compaction) -> None:
        self.home = home
        self.target: BatchTarget = DeltaTarget(str(home), (), {}, compaction, vacuum_hours=0)

    def rows(self) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(str(self.home)).to_pyarrow_table()

    def files(self) -> int:
        from deltalake import DeltaTable

        return len(DeltaTable(str(self.home)).file_uris())


class Iceberg:
    """An Iceberg table in a catalog of SQLite."""

    look_up = "_table"
    refusals: tuple[type[Exception], ...] = ()  # it looks again by itself

    def __init__(self, home: Path, compaction: Compaction) -> None:
        home.mkdir(exist_ok=True)
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{home}/catalog.db",
            "warehouse": str(home),
        }
        self.target: BatchTarget = IcebergTarget(self.catalog, "sales.orders", compaction)

    def table(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", **self.catalog).load_table("sales.orders")

    def rows(self) -> pa.Table:
        return self.table().scan().to_arrow()

    def files(self) -> int:
        return len(list(self.table().scan().plan_files()))


KINDS = pytest.mark.parametrize("kind", [Delta, Iceberg])


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def sorted_numbers(table: pa.Table) -> list[int]:
    return sorted(table.column("n").to_pylist())


@KINDS
def test_a_batch_that_comes_again_is_left_out(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path / "table", NEVER)
    assert table.target.write(numbers(1, 2), Batch("q", 0))
    assert table.target.write(numbers(3), Batch("q", 1))

    again = kind(tmp_path / "table", NEVER)

    assert not again.target.write(numbers(3), Batch("q", 1))
    assert not again.target.write(numbers(1, 2), Batch("q", 0))
    assert again.target.write(numbers(4), Batch("q", 2))
    assert sorted_numbers(table.rows()) == [1, 2, 3, 4]


@KINDS
def test_queries_count_their_batches_apart(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path / "table", NEVER)
    table.target.write(numbers(1), Batch("one", 5))

    assert table.target.write(numbers(2), Batch("other", 0))

    assert sorted_numbers(table.rows()) == [1, 2]


@KINDS
def test_small_files_become_one_and_no_row_changes(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path / "table", NEVER)
    for number in range(5):
        table.target.write(numbers(number), Batch("q", number))
    assert table.files() == 5

    kind(tmp_path / "table", ALWAYS).target.write(numbers(5), Batch("q", 5))

    assert table.files() == 1
    assert sorted_numbers(table.rows()) == [0, 1, 2, 3, 4, 5]
    # What was merged still says which batches it has.
    assert not kind(tmp_path / "table", ALWAYS).target.write(numbers(5), Batch("q", 5))


@KINDS
def test_rows_may_gain_a_column(kind: Any, tmp_path: Path) -> None:
    table = kind(tmp_path / "table", NEVER)
    table.target.write(numbers(1), Batch("q", 0))

    table.target.write(numbers(2).append_column("name", pa.array(["two"])), Batch("q", 1))

    rows = sorted(table.rows().to_pylist(), key=lambda row: row["n"])
    assert rows == [{"n": 1, "name": None}, {"n": 2, "name": "two"}]


def test_iceberg_snapshots_say_which_batch_they_are(tmp_path: Path) -> None:
    table = Iceberg(tmp_path / "table", NEVER)

    table.target.write(numbers(1), Batch("q", 3))

    summary = table.table().current_snapshot().summary
    assert (summary["millstream.query"], summary["millstream.batch"]) == ("q", "3")


@KINDS
def test_a_batch_that_another_process_writes_just_now_is_written_once(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = kind(tmp_path / "table", NEVER), kind(tmp_path / "table", NEVER)
    table.target.write(numbers(1), Batch("q", 0))
    look = table.look_up
    original = getattr(type(table.target), look)

    def look_while_the_other_writes(self: Any, *arguments: Any) -> Any:
        seen = original(self, *arguments)
        monkeypatch.setattr(type(table.target), look, original)
        other.target.write(numbers(2), Batch("q", 1))
        return seen

    monkeypatch.setattr(type(table.target), look, look_while_the_other_writes)
    with contextlib.suppress(*table.refusals):
        assert not table.target.write(numbers(2), Batch("q", 1))

    assert sorted_numbers(table.rows()) == [1, 2]


def test_an_iceberg_batch_yields_to_other_writers_and_comes_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = Iceberg(tmp_path / "table", NEVER), Iceberg(tmp_path / "table", NEVER)
    table.target.write(numbers(1), Batch("q", 0))
    original = IcebergTarget._table

    def look_while_the_other_writes(self: Any, schema: pa.Schema) -> Any:
        seen = original(self, schema)
        monkeypatch.setattr(IcebergTarget, "_table", original)
        other.target.write(numbers(2), Batch("another query", 0))
        return seen

    monkeypatch.setattr(IcebergTarget, "_table", look_while_the_other_writes)
    assert table.target.write(numbers(3), Batch("q", 1))

    assert sorted_numbers(table.rows()) == [1, 2, 3]


def test_an_iceberg_batch_with_a_new_column_looks_again_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.table import Transaction

    table, other = Iceberg(tmp_path / "table", NEVER), Iceberg(tmp_path / "table", NEVER)
    table.target.write(numbers(1), Batch("q", 0))
    wider = numbers(2).append_column("more", pa.array(["x"]))
    append = Transaction.append

    def append_after_the_other(self: Any, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(Transaction, "append", append)
        other.target.write(wider, Batch("q", 1))
        append(self, *arguments, **options)

    monkeypatch.setattr(Transaction, "append", append_after_the_other)

    assert not table.target.write(wider, Batch("q", 1))
    assert sorted_numbers(table.rows()) == [1, 2]


def test_delta_partitions_are_directories(tmp_path: Path) -> None:
    target = DeltaTarget(str(tmp_path / "t"), ("day",), {}, NEVER, vacuum_hours=0)

    target.write(pa.table({"day": ["mon", "tue"], "n": [1, 2]}), Batch("q", 0))

    assert {each.name for each in (tmp_path / "t").glob("day=*")} == {"day=mon", "day=tue"}


def test_delta_removes_merged_files_when_their_time_is_over(tmp_path: Path) -> None:
    home = tmp_path / "t"
    DeltaTarget(str(home), (), {}, NEVER, vacuum_hours=0).write(numbers(1), Batch("q", 0))
    DeltaTarget(str(home), (), {}, ALWAYS, vacuum_hours=168).write(numbers(2), Batch("q", 1))

    # Merged just now, so within its time: the old files are still there, beside the new one.
    assert len(list(home.glob("*.parquet"))) == 3


def test_a_merge_that_loses_a_race_is_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(*_arguments: Any, **_named: Any) -> None:
        raise CommitFailedError("another writer")

    def lose_too(*_arguments: Any) -> None:
        raise CommitFailedException("another writer")

    monkeypatch.setattr(TableOptimizer, "compact", lose)
    monkeypatch.setattr(iceberg, "_merge_files", lose_too)
    for kind in (Delta, Iceberg):
        table: Any = kind(tmp_path / kind.__name__, ALWAYS)
        table.target.write(numbers(1), Batch("q", 0))

        assert table.target.write(numbers(2), Batch("q", 1))

        assert sorted_numbers(table.rows()) == [1, 2]
    assert "the Delta table" in caplog.text
    assert "the Iceberg table sales.orders was not compacted this time" in caplog.text


def test_a_package_that_is_missing_is_named_when_the_query_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing: Any = None
    for sink, package in (
        (DeltaSink(from_="r", path="t"), "delta"),
        (iceberg.IcebergSink(from_="r", catalog={}, table="a.b"), "iceberg"),
    ):
        monkeypatch.setitem(sys.modules, {"delta": "deltalake"}.get(package, "pyiceberg"), nothing)

        with pytest.raises(ConnectorFailed, match=rf"pip install 'millstream\[{package}\]'"):
            sink.start(nothing, "q", "c", nothing)


# Parquet has no log; the files themselves say what they have.


def parquet_rows(home: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = dataset.dataset(home, partitioning="hive").to_table().to_pylist()
    return rows


def test_parquet_batches_are_merged_until_a_file_is_large_enough(tmp_path: Path) -> None:
    target = ParquetTarget(tmp_path, (), target_bytes=1 << 20)
    for number in range(4):
        assert target.write(numbers(number), Batch("q", number))
    assert len(list(tmp_path.iterdir())) == 1

    full = ParquetTarget(tmp_path, (), target_bytes=1)
    full.write(numbers(4), Batch("q", 4))

    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(row["n"] for row in parquet_rows(tmp_path)) == [0, 1, 2, 3, 4]


def test_a_parquet_batch_that_comes_again_is_left_out(tmp_path: Path) -> None:
    target = ParquetTarget(tmp_path, (), target_bytes=1 << 20)
    target.write(numbers(1), Batch("q", 0))
    target.write(numbers(2), Batch("q", 1))

    assert not target.write(numbers(2), Batch("q", 1))
    assert not target.write(numbers(1), Batch("q", 0))

    assert [row["n"] for row in parquet_rows(tmp_path)] == [1, 2]


def test_a_parquet_batch_that_stopped_half_way_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ParquetTarget(tmp_path, ("day",), target_bytes=1 << 20)
    batch = pa.table({"day": ["mon", "tue", None], "n": [1, 2, 3]})
    replace, done = Path.replace, iter([True, False])

    def replace_once(self: Path, to: Path) -> Path:
        if not next(done):
            raise OSError("the disk is full")
        return replace(self, to)

    monkeypatch.setattr(Path, "replace", replace_once)
    with pytest.raises(OSError, match="full"):
        target.write(batch, Batch("q", 0))
    assert len(parquet_rows(tmp_path)) == 1
    monkeypatch.setattr(Path, "replace", replace)

    assert target.write(batch, Batch("q", 0))

    rows = sorted(parquet_rows(tmp_path), key=lambda row: row["n"])
    assert rows == [{"n": 1, "day": "mon"}, {"n": 2, "day": "tue"}, {"n": 3, "day": None}]


def test_parquet_is_not_partitioned_by_what_may_not_equal_itself(tmp_path: Path) -> None:
    target = ParquetTarget(tmp_path, ("x",), target_bytes=1 << 20)

    with pytest.raises(InvalidArgument, match="`partition_by` names x, a number with a fraction"):
        target.write(pa.table({"x": [float("nan"), -0.0, 0.0], "n": [1, 2, 3]}), Batch("q", 0))


def test_a_parquet_file_s_name_is_on_disk_before_its_batch_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        "os.fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").resolve().name)
    )

    ParquetTarget(tmp_path, (), target_bytes=1 << 20).write(numbers(1), Batch("q", 0))

    assert synced == [".q-000000000000.parquet.unfinished", tmp_path.name]


def test_a_reader_of_parquet_never_sees_a_row_twice(tmp_path: Path) -> None:
    target = ParquetTarget(tmp_path, (), target_bytes=1 << 20)
    target.write(numbers(1), Batch("q", 0))
    (before,) = tmp_path.iterdir()
    held = parquet.ParquetFile(before)

    target.write(numbers(2), Batch("q", 1))

    assert held.read().column("n").to_pylist() == [1]
    assert [each.name for each in tmp_path.iterdir()] == [before.name]
    held.close()


# Decisions.


def test_compaction_is_due_by_the_number_of_the_batch() -> None:
    assert [number for number in range(9) if Compaction(3, 1).is_due(number)] == [2, 5, 8]
    assert not any(Compaction(0, 1).is_due(number) for number in range(9))


def files() -> Iterator[tuple[str, object, int]]:
    yield "large", None, 50
    yield "a", None, 40
    yield "b", None, 40
    yield "c", None, 30
    yield "d", None, 10
    yield "alone", "other partition", 1


def test_files_are_grouped_within_a_partition_and_up_to_the_target() -> None:
    assert Compaction(1, target_bytes=100).groups(files()) == [["a", "b"], ["c", "d"]]


def test_a_file_alone_is_left_alone() -> None:
    assert Compaction(1, target_bytes=100).groups([("a", None, 1)]) == []


def test_a_batch_is_news_only_after_the_last_one() -> None:
    assert Batch("q", 0).is_news_after(None)
    assert Batch("q", 2).is_news_after(1)
    assert not Batch("q", 1).is_news_after(1)
    assert not Batch("q", 0).is_news_after(1)


def test_moments_are_those_of_utc() -> None:
    moment = dt.datetime(2026, 11, 16, 9, tzinfo=dt.UTC)
    zoned = pa.table({"at": pa.array([moment], pa.timestamp("us", "Europe/Berlin")), "n": [1]})

    table = in_utc(zoned)

    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.column("at").to_pylist() == [moment]
