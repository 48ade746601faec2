"""A PostgreSQL table as Spark reads it: whole, or as a stream of the rows that are new.

`source` registers it with a session. Spark calls the readers, on the driver to look for rows and
on the executors to hand them over. A stream's position is in Spark's own checkpoint; what belongs
to a position that Spark has not finished is in the staging area. It never writes to the database.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from millstream.clock import SystemClock
from millstream.errors import ConnectorFailed, InvalidArgument
from millstream.spark.pipelines.connectors.postgres.chunks import (
    WRITERS,
    ChunkQueries,
    Settlement,
    copy_all,
)
from millstream.spark.pipelines.connectors.postgres.columns import (
    arrow_type,
    parse_copied,
    whole_rows,
)
from millstream.spark.pipelines.connectors.postgres.connection import (
    Relation,
    TableName,
    connect,
    find_relation,
)
from millstream.spark.pipelines.connectors.postgres.staging import StagingArea

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.spark.pipelines.connectors.postgres.connection import Connection

NAME: Final = "millstream-postgres"
_PART_BYTES: Final = 16 << 20
"""How much of a table that is read whole is in memory, about."""
_TABLE_KINDS: Final = frozenset("rp")  # ordinary and partitioned


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """What a reader is told; as options of Spark they are texts."""

    connection: str
    table: str
    column: str = ""
    staging: str = ""
    rows_max: int = 50_000
    delay_seconds: float = 0.0
    poll_seconds: float = 0.5
    settle_seconds: float = 60.0

    def as_options(self) -> dict[str, str]:
        """The settings as texts."""
        return {name: str(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ReadSettings:
        """The settings from texts."""
        return cls(
            connection=options["connection"],
            table=options["table"],
            column=options["column"],
            staging=options["staging"],
            rows_max=int(options["rows_max"]),
            delay_seconds=float(options["delay_seconds"]),
            poll_seconds=float(options["poll_seconds"]),
            settle_seconds=float(options["settle_seconds"]),
        )


class PostgresDataSource(DataSource):
    """The data source that Spark knows by the name in `NAME`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._settings = ReadSettings.from_options(options)

    @classmethod
    def name(cls) -> str:
        """What `format()` is given."""
        return NAME

    def schema(self) -> StructType:
        """The table's columns, of the moment that the query starts."""
        with _connected(self._settings) as connection:
            return _spark_schema(_table(connection, self._settings))

    def reader(self, schema: Any) -> DataSourceReader:
        """The whole table as it is now."""
        return TableReader(self._settings, _expected(schema))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The table's rows as they come."""
        return TableStreamReader(self._settings, _expected(schema))


class TableReader(DataSourceReader):
    """Every row of a table, in one task: a COPY has one order and one snapshot."""

    def __init__(self, settings: ReadSettings, expected: pa.Schema) -> None:
        self._settings = settings
        self._expected = expected

    def partitions(self) -> Sequence[InputPartition]:
        """One."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, on an executor."""
        with _connected(self._settings) as connection:
            relation = _table(connection, self._settings)
            columns = [relation.column(name) for name in self._expected.names]
            statement = copy_all(TableName.parse(self._settings.table), columns)
            with connection.cursor() as cursor, cursor.copy(statement, []) as copy:
                for part in whole_rows(map(bytes, copy), _PART_BYTES):
                    yield from parse_copied(part, columns).to_batches(max_chunksize=8192)


@dataclass
class StagedChunk(InputPartition):
    """A chunk that lies in the staging area."""

    query: str
    number: int


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """New rows in the order of a column, each exactly once.

    An offset of Spark is `{"query": who, "chunk": number of the last chunk, "last": its highest
    value}`. The chunk was staged before the offset was told to Spark.
    """

    def __init__(self, settings: ReadSettings, expected: pa.Schema) -> None:
        self._settings = settings
        self._expected = expected
        self._query = uuid.uuid4().hex
        self._settlement = Settlement()
        self._connection: Connection | None = None
        self._queries: ChunkQueries | None = None
        self._relation: Relation | None = None
        self._final: str | None = None
        self._is_final = False
        self._clock = SystemClock()
        self._next_look_ms = 0

    def initialOffset(self) -> dict[str, Any]:
        """Before the first row."""
        return {"query": self._query, "chunk": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Chunks of the size that was asked for."""
        return ReadMaxRows(self._settings.rows_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Stage the next chunk, if there is one, and say where it ends."""
        bound = self._final if self._is_final else self._look(start.get("last"))
        if bound is None or self._is_through(start.get("last"), bound):
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        last, table = self._chunk(start.get("last"), bound, rows_max)
        number = int(start["chunk"]) + 1
        self._staging(start["query"]).write(number, table)
        return {"query": start["query"], "chunk": number, "last": last}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end: what is committed now, once the writers of now are done."""
        deadline_ms = self._clock.monotonic_ms() + int(self._settings.settle_seconds * 1000)
        self._propose(None)
        while self._settlement.is_waiting:
            if self._clock.monotonic_ms() > deadline_ms:
                raise ConnectorFailed(
                    f"{self._settings.table} is being written by a transaction that did not end "
                    f"in {self._settings.settle_seconds:g} s; rows that it commits could be "
                    "missed. End it and run again"
                )
            threading.Event().wait(0.05)
            self._settlement.observe(self._writers())
        self._final, self._is_final = self._settlement.settled, True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The chunks between; one task each, so that rows keep the order of the column."""
        # After a restart `start` may be a new initial offset: only `end` knows the query.
        return [
            StagedChunk(end["query"], number)
            for number in range(int(start["chunk"]) + 1, int(end["chunk"]) + 1)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A chunk's rows, on an executor."""
        assert isinstance(partition, StagedChunk)
        for batch in self._staging(partition.query).read(partition.number):
            yield _fitted(batch, self._expected)

    def commit(self, end: dict[str, Any]) -> None:
        """The batches up to here are done: their rows need not be kept."""
        self._staging(end["query"]).discard_through(int(end["chunk"]))

    def stop(self) -> None:
        """Let go of the server."""
        if self._connection is not None:
            self._connection.close()

    def _staging(self, query: str) -> StagingArea:
        return StagingArea(self._settings.staging, query)

    def _look(self, after: str | None) -> str | None:
        """How far may be read now; Spark asks in a tight loop, so looks are paced here."""
        wait_ms = self._next_look_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            threading.Event().wait(wait_ms / 1000)
        if self._settlement.is_waiting:
            self._settlement.observe(self._writers())
        if not self._settlement.is_waiting and self._is_through(after, self._settlement.settled):
            self._propose(after)
        bound = self._settlement.settled
        if self._is_through(after, bound):
            self._next_look_ms = self._clock.monotonic_ms() + int(
                self._settings.poll_seconds * 1000
            )
            return None
        return bound

    def _propose(self, after: str | None) -> None:
        connection, queries = self._opened()
        found = connection.execute(*queries.highest(after)).fetchone()
        if found is not None and found[0] is not None:
            # In this order: the value was visible before the writers are listed.
            self._settlement.propose(found[0], self._writers())

    def _writers(self) -> frozenset[str]:
        connection, _queries = self._opened()
        assert self._relation is not None
        rows = connection.execute(WRITERS, {"table": self._relation.oid}).fetchall()
        return frozenset(each[0] for each in rows)

    def _is_through(self, after: str | None, bound: str | None) -> bool:
        """Whether nothing lies between. The bound may be below: its row may have been deleted."""
        if bound is None or after is None or after == bound:
            return bound is None or after == bound
        connection, queries = self._opened()
        found = connection.execute(queries.is_at_or_above, [after, bound]).fetchone()
        return found is not None and bool(found[0])

    def _chunk(self, after: str | None, bound: str, rows_max: int | None) -> tuple[str, pa.Table]:
        connection, queries = self._opened()
        last = bound
        if rows_max is not None:
            statement, arguments = queries.last_of(after, bound, rows_max)
            found = connection.execute(statement, arguments).fetchone()
            last = bound if found is None else found[0]
        return last, parse_copied(_copied(connection, *queries.copy(after, last)), queries.columns)

    def _opened(self) -> tuple[Connection, ChunkQueries]:
        if self._connection is None or self._connection.closed or self._queries is None:
            self._connection = _connected(self._settings)
            self._relation = _table(self._connection, self._settings)
            _require_primary(self._connection)
            self._queries = ChunkQueries(
                TableName.parse(self._settings.table),
                [self._relation.column(name) for name in self._expected.names],
                self._relation.column(self._settings.column),
                self._settings.delay_seconds,
            )
        return self._connection, self._queries


def _spark_schema(relation: Relation) -> StructType:
    """The columns as Spark has them. Not as DDL, which only a running Spark could parse."""
    return StructType(
        [
            StructField(each.name, from_arrow_type(arrow_type(each.spark_type)))
            for each in relation.columns
        ]
    )


def _expected(schema: Any) -> pa.Schema:
    """The columns that Spark planned with, as Arrow has them."""
    import pyarrow as pa

    return pa.schema(
        [(each.name, arrow_type(each.dataType.simpleString())) for each in schema.fields]
    )


def _fitted(batch: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of today: a chunk may have been staged before one was added."""
    import pyarrow as pa

    if batch.schema == expected:
        return batch
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in expected
    ]
    return pa.RecordBatch.from_arrays(columns, schema=expected)


def _connected(settings: ReadSettings) -> Connection:
    return connect(settings.connection, application="millstream import", autocommit=True)


def _table(connection: Connection, settings: ReadSettings) -> Relation:
    relation = find_relation(connection, TableName.parse(settings.table))
    if relation is None:
        raise InvalidArgument(f"PostgreSQL has no table {settings.table!r} in that database")
    if settings.column and relation.kind not in _TABLE_KINDS:
        raise InvalidArgument(
            f"{settings.table!r} is no table but a view or the like, whose writers cannot be seen; "
            "import the tables beneath it, or read it whole with `stream: false`"
        )
    return relation


def _require_primary(connection: Connection) -> None:
    found = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    if found is not None and found[0]:
        raise InvalidArgument(
            "this PostgreSQL is a standby, which does not know who writes; connect to the primary"
        )


def _copied(connection: Connection, statement: str, arguments: list[object]) -> bytes:
    with connection.cursor() as cursor, cursor.copy(statement, arguments) as copy:
        return b"".join(bytes(block) for block in copy)
