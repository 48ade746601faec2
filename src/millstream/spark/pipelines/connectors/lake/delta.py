"""The sink `delta` of pipelines: a Delta table, through the package deltalake, no jar."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import ConnectorFailed
from millstream.spark.pipelines.connectors.batches import start_batches
from millstream.spark.pipelines.connectors.lake.compaction import MEBIBYTE, Compaction
from millstream.spark.pipelines.schema import not_negative, positive, setting
from millstream.spark.pipelines.sinks import Sink, sink

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import deltalake
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.spark.pipelines.connectors.batches import Batch
    from millstream.spark.pipelines.schema import Context
    from millstream.spark.pipelines.sinks import Trigger

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table. Its log has, with every batch, the query's id and the batch's number."""

    path: str
    partition_by: tuple[str, ...]
    storage_options: Mapping[str, str]
    compaction: Compaction
    vacuum_hours: int

    def write(self, rows: pa.Table, batch: Batch) -> bool:
        """Append a batch, if the log does not have it."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        table = self._opened()
        if table is not None and not batch.is_news_after(table.transaction_version(batch.query)):
            return False
        write_deltalake(
            # The table as it was looked at: if another writer came between, the commit fails.
            self.path if table is None else table,
            rows,
            mode="append",
            schema_mode="merge",
            partition_by=list(self.partition_by) or None,
            storage_options=dict(self.storage_options) or None,
            target_file_size=self.compaction.target_bytes,
            commit_properties=CommitProperties(
                app_transactions=[Transaction(batch.query, batch.number)]
            ),
        )
        if self.compaction.is_due(batch.number):
            self._compact()
        return True

    def _opened(self) -> deltalake.DeltaTable | None:
        from deltalake import DeltaTable

        options = dict(self.storage_options) or None
        if not DeltaTable.is_deltatable(self.path, options):
            return None
        return DeltaTable(self.path, storage_options=options)

    def _compact(self) -> None:
        """Merge small files, and remove those that no version within the time limit has."""
        from deltalake.exceptions import DeltaError

        table = self._opened()
        assert table is not None
        try:
            table.optimize.compact(target_size=self.compaction.target_bytes)
            if self.vacuum_hours:
                table.vacuum(
                    retention_hours=self.vacuum_hours,
                    dry_run=False,
                    enforce_retention_duration=False,
                )
        except DeltaError as error:
            # The rows are safe in the table; another writer was at it. The next time will do.
            _log.warning("the Delta table %s was not compacted this time: %s", self.path, error)


@sink("delta")
@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink(Sink):
    """Rows of a Delta table, each batch exactly once, its files kept compact."""

    output_modes: ClassVar[tuple[str, ...]] = ("append",)
    subject_keys = ("path",)

    path: str = setting("The table's directory, or an address such as `s3://bucket/table`.")
    partition_by: tuple[str, ...] = setting("Columns that make subdirectories.", ())
    storage_options: Mapping[str, str] = setting(
        "What the object store asks for, by deltalake's names.", {}
    )
    compact_every: int = setting(
        "Merge small files after so many batches; 0: never.", 20, check=not_negative
    )
    file_mebibytes: int = setting("The size that files should have.", 128, check=positive)
    vacuum_hours: int = setting(
        "Remove files that were merged after so many hours; older versions of the table cannot be "
        "read then. 0: never.",
        168,
        check=not_negative,
    )

    def within(self, context: Context) -> Self:
        """With its path from the definition's directory on."""
        return dataclasses.replace(self, path=context.path(self.path))

    def start(self, df: DataFrame, name: str, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start the query."""
        try:
            import deltalake  # noqa: F401  # Said now, not in the first batch.
        except ImportError as missing:
            raise ConnectorFailed(
                "Delta needs the package deltalake: pip install 'millstream[delta]'"
            ) from missing
        target = DeltaTarget(
            self.path,
            self.partition_by,
            self.storage_options,
            Compaction(self.compact_every, self.file_mebibytes * MEBIBYTE),
            self.vacuum_hours,
        )
        return start_batches(self, df, target, name=name, checkpoint=checkpoint, trigger=trigger)
