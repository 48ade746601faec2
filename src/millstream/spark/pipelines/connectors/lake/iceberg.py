"""The sink `iceberg` of pipelines: an Iceberg table, through the package pyiceberg, no jar."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from millstream.errors import ConnectorFailed
from millstream.spark.pipelines.connectors.batches import start_batches
from millstream.spark.pipelines.connectors.lake.compaction import MEBIBYTE, Compaction
from millstream.spark.pipelines.schema import not_negative, positive, setting
from millstream.spark.pipelines.sinks import Sink, sink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.spark.pipelines.connectors.batches import Batch
    from millstream.spark.pipelines.schema import Context
    from millstream.spark.pipelines.sinks import Trigger

_log = logging.getLogger(__name__)
QUERY: Final = "millstream.query"
BATCH: Final = "millstream.batch"
_SQLITE: Final = "sqlite:///"
_ATTEMPTS: Final = 5


@dataclass(slots=True)
class IcebergTarget:
    """An Iceberg table.

    The number of the query's last batch is a property of the table, set in the commit that adds
    the rows. Snapshots have it too, for whoever looks, but snapshots expire.
    """

    catalog: Mapping[str, str]
    table: str
    compaction: Compaction
    _opened: Any = field(default=None, init=False)

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        """Append a batch, if the table does not have it."""
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(_ATTEMPTS):
            try:
                table = self._table(rows.schema)
                if _add_columns(table, rows.schema):
                    table = self._table(rows.schema)
                last = table.properties.get(f"{BATCH}.{batch.query}")
                if not batch.is_news_after(None if last is None else int(last)):
                    return False
                _append(table, rows, batch)
                break
            except CommitFailedException:
                # Another writer came between, which may have been one of this query: look again.
                if attempt == _ATTEMPTS - 1:
                    raise
        if self.compaction.is_due(batch.number):
            self._compact(table)
        return True

    def _table(self, schema: pa.Schema) -> Any:
        """The table as it is now."""
        from pyiceberg.table import TableProperties

        if self._opened is None:
            from pyiceberg.catalog import load_catalog

            properties = dict(self.catalog)
            catalog = load_catalog(properties.pop("name", "default"), **properties)
            namespace = self.table.rpartition(".")[0]
            catalog.create_namespace_if_not_exists(namespace)
            self._opened = catalog.create_table_if_not_exists(self.table, schema=schema)
        table = self._opened.refresh()
        # In our copy only: a commit that is tried again unseen would not look at the batches.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        return table

    def _compact(self, table: Any) -> None:
        """Put the rows of small files into one file each, in one commit that changes no row."""
        from pyiceberg.exceptions import CommitFailedException

        tasks = [task for task in table.scan().plan_files() if not task.delete_files]
        groups = self.compaction.groups(
            (task, task.file.partition, task.file.file_size_in_bytes) for task in tasks
        )
        if not groups:
            return
        try:
            _merge_files(table, groups)
        except CommitFailedException as error:
            # The rows are safe in the table; another writer was at it. The next time will do.
            _log.warning("the Iceberg table %s was not compacted this time: %s", self.table, error)


def _add_columns(table: Any, schema: pa.Schema) -> bool:
    """Add what the rows have and the table lacks; whether that was anything."""
    if set(schema.names) <= set(table.schema().column_names):
        return False
    with table.update_schema() as update:
        update.union_by_name(schema)
    return True


def _append(table: Any, rows: pa.Table, batch: Batch) -> None:
    """Add the rows and the batch's number in one commit, to the table as it was looked at."""
    with table.transaction() as transaction:
        transaction.append(rows, snapshot_properties={QUERY: batch.query, BATCH: str(batch.number)})
        transaction.set_properties({f"{BATCH}.{batch.query}": str(batch.number)})


def _merge_files(table: Any, groups: Iterable[list[Any]]) -> None:
    """Replace each group of files by one with the same rows."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

    with table.transaction() as transaction:
        scan = ArrowScan(transaction.table_metadata, table.io, table.schema(), AlwaysTrue())
        with transaction.update_snapshot().overwrite() as overwrite:
            for tasks in groups:
                rows = scan.to_table(tasks)
                for each in tasks:
                    overwrite.delete_data_file(each.file)
                for made in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
                    overwrite.append_data_file(made)


@sink("iceberg")
@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSink(Sink):
    """Rows of an Iceberg table, each batch exactly once, its files kept compact."""

    output_modes: ClassVar[tuple[str, ...]] = ("append",)
    subject_keys = ("table",)

    catalog: Mapping[str, str] = setting(
        "The catalog by pyiceberg's names: `type: rest` with `uri`, `type: sql` with `uri` and "
        "`warehouse`, …; and its `name`, which a catalog in SQL goes by, else `default`."
    )
    table: str = setting("The table with its namespace: `sales.orders`. Created if it is absent.")
    compact_every: int = setting(
        "Merge small files after so many batches; 0: never.", 20, check=not_negative
    )
    file_mebibytes: int = setting("The size that files should have.", 128, check=positive)

    def within(self, context: Context) -> Self:
        """With paths from the definition's directory on: the warehouse's, and a file of SQLite."""
        catalog = dict(self.catalog)
        if "warehouse" in catalog:
            catalog["warehouse"] = context.path(catalog["warehouse"])
        uri = catalog.get("uri", "")
        if uri.startswith(_SQLITE):
            catalog["uri"] = _SQLITE + context.path(uri.removeprefix(_SQLITE))
        return dataclasses.replace(self, catalog=catalog)

    def faults(self) -> Iterable[str]:
        """A table is in a namespace."""
        yield from Sink.faults(self)
        if "." not in self.table.strip("."):
            yield f"`table` needs a namespace: not {self.table!r} but `sales.{self.table}`"

    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start the query."""
        try:
            import pyiceberg  # noqa: F401  # Said now, not in the first batch.
        except ImportError as missing:
            raise ConnectorFailed(
                "Iceberg needs the package pyiceberg: pip install 'millstream[iceberg]'"
            ) from missing
        target = IcebergTarget(
            self.catalog,
            self.table,
            Compaction(self.compact_every, self.file_mebibytes * MEBIBYTE),
        )
        return start_batches(self, df, target, name=name, checkpoint=checkpoint, trigger=trigger)
