"""The sink `compact-parquet` of pipelines: a directory of few, large Parquet files.

Plain Parquet has no log of its files, so whoever lists the directory must find every row once, at
any moment. Each batch is therefore merged into the newest file, which is replaced by one rename,
until it is large enough; then the next begins. The file's own metadata says which batches it has.
"""

from __future__ import annotations

import dataclasses
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.errors import InvalidArgument
from millstream.spark.pipelines.connectors.batches import start_batches
from millstream.spark.pipelines.connectors.durability import sync
from millstream.spark.pipelines.connectors.lake.compaction import MEBIBYTE
from millstream.spark.pipelines.schema import positive, setting
from millstream.spark.pipelines.sinks import Sink, sink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.spark.pipelines.connectors.batches import Batch
    from millstream.spark.pipelines.schema import Context
    from millstream.spark.pipelines.sinks import Trigger

LAST_BATCH: Final = b"millstream.batch"
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """A directory of Parquet files, with Hive's subdirectories if there are partition columns."""

    path: Path
    partition_by: tuple[str, ...]
    target_bytes: int

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        """Merge a batch into the newest files, if they do not have it."""
        # Partitions are files of their own: those that have the batch already are left out.
        written = [
            self._merge(self.path / directory, part, batch)
            for directory, part in _partitioned(rows, self.partition_by)
        ]
        return any(written)

    def _merge(self, directory: Path, rows: pa.Table, batch: Batch) -> bool:
        import pyarrow as pa
        from pyarrow import parquet

        directory.mkdir(parents=True, exist_ok=True)
        newest = max(directory.glob(f"{batch.query}-*.parquet"), default=None)
        target = directory / f"{batch.query}-{batch.number:012d}.parquet"
        if newest is not None:
            metadata = parquet.read_schema(newest).metadata or {}
            if not batch.is_news_after(int(metadata[LAST_BATCH])):
                return False
            if newest.stat().st_size < self.target_bytes:
                with parquet.ParquetFile(newest) as opened:
                    before = opened.read()
                rows = pa.concat_tables([before, rows], promote_options="default")
                target = newest
        marked = dict(rows.schema.metadata or {}) | {LAST_BATCH: str(batch.number).encode()}
        _replace(target, rows.replace_schema_metadata(marked))
        return True


def _replace(target: Path, rows: pa.Table) -> None:
    """Write the file anew: a reader sees the old one or the new one, even if the power fails."""
    from pyarrow import parquet

    # Readers of directories leave out names that begin with a dot.
    unfinished = target.with_name(f".{target.name}.unfinished")
    with unfinished.open("wb") as out:
        parquet.write_table(rows, out, compression="zstd")
    sync(unfinished)
    unfinished.replace(target)
    sync(target.parent)


def _partitioned(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each partition, with its directory; in the directory's name, not in the file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        yield "", rows
        return
    for name in columns:
        if pa.types.is_floating(rows.schema.field(name).type):
            # Not a number is not even itself, and 0.0 is -0.0: rows would be lost or come twice.
            raise InvalidArgument(
                f"`partition_by` names {name}, a number with a fraction; cast it to another type"
            )
    for values in rows.group_by(list(columns)).aggregate([]).to_pylist():
        mask: Any = None
        for name in columns:
            value = values[name]
            column = rows.column(name)
            same = (
                pc.is_null(column)
                if value is None
                else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
            )
            mask = same if mask is None else pc.and_(mask, same)
        yield _directory(values), rows.filter(mask).drop_columns(list(columns))


def _directory(values: dict[str, object]) -> str:
    return "/".join(
        f"{name}={_NULL_PARTITION if each is None else urllib.parse.quote(str(each), safe=' ')}"
        for name, each in values.items()
    )


@sink("compact-parquet")
@dataclass(frozen=True, slots=True, kw_only=True)
class CompactParquetSink(Sink):
    """Rows of few, large Parquet files, each batch exactly once, for any reader of Parquet."""

    output_modes: ClassVar[tuple[str, ...]] = ("append",)
    subject_keys = ("path",)

    path: str = setting("The directory; on a file system of the driver's machine.")
    partition_by: tuple[str, ...] = setting("Columns that make subdirectories.", ())
    file_mebibytes: int = setting(
        "Begin a new file at this size. A batch rewrites at most so much for each partition.",
        32,
        check=positive,
    )

    def within(self, context: Context) -> Self:
        """With its path from the definition's directory on."""
        return dataclasses.replace(self, path=context.path(self.path))

    def faults(self) -> Iterable[str]:
        """Object stores have no rename."""
        yield from Sink.faults(self)
        if "://" in self.path:
            yield "compact-parquet writes to a file system; for an object store take delta"

    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start the query."""
        target = ParquetTarget(Path(self.path), self.partition_by, self.file_mebibytes * MEBIBYTE)
        return start_batches(self, df, target, name=name, checkpoint=checkpoint, trigger=trigger)
