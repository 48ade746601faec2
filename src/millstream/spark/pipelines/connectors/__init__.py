"""Import and export: what pipelines read from and write to beyond topics and plain files.

`sources` and `sinks` import this package to register its formats. `postgres` reads and writes
tables of PostgreSQL, `lake` writes Delta, Iceberg and compacted Parquet, `jdbc` takes whatever
Spark's own JDBC has a driver for. `batches` is how a batch is written once. The packages that the
formats need (psycopg, deltalake, pyiceberg) are imported when a query starts, not before.
"""

from __future__ import annotations

from millstream.spark.pipelines.connectors import jdbc
from millstream.spark.pipelines.connectors.lake import delta, iceberg, parquet
from millstream.spark.pipelines.connectors.postgres import sink, source

__all__ = ["delta", "iceberg", "jdbc", "parquet", "sink", "source"]
