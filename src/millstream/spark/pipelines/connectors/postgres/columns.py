"""How columns travel between PostgreSQL, Arrow and Spark, in both directions and as text.

`data_source` reads with it what COPY gives, `upsert` writes with it what COPY takes. Both ways the
rows are CSV, which PostgreSQL and Arrow each parse in compiled code; no row is a Python object.
Nothing here talks to a server.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

_SPARK_TYPES: Final = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "date": "date",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    "bytea": "binary",
}
"""What is not here is a string in Spark, which loses nothing: uuid, json, unbounded numeric."""

_POSTGRES_TYPES: Final = {
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
    "binary": "bytea",
    "string": "text",
}

_NUMERIC: Final = re.compile(r"numeric\((\d+),(-?\d+)\)")
_SPARK_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_SPARK_DIGITS_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, with its type as PostgreSQL writes it (`format_type`)."""

    name: str
    type: str

    @property
    def spark_type(self) -> str:
        """The type in Spark's DDL."""
        numeric = _NUMERIC.fullmatch(self.type)
        if numeric is not None:
            precision, scale = int(numeric[1]), int(numeric[2])
            if precision <= _SPARK_DIGITS_MAX and 0 <= scale <= precision:
                return f"decimal({precision},{scale})"
        return _SPARK_TYPES.get(re.sub(r"\(\d+\)", "", self.type), "string")

    @property
    def selected(self) -> str:
        """The column as an item of SELECT, in the form that `parse_copied` reads."""
        name = quoted(self.name)
        if self.type == "bytea":
            return f"encode({name}, 'hex') AS {name}"
        if self.type.endswith("[]"):
            return f"array_to_json({name}) AS {name}"
        if self.spark_type == "timestamp":
            return f"{name} AT TIME ZONE 'UTC' AS {name}"
        return name


def quoted(identifier: str) -> str:
    """An identifier as SQL, whatever characters it has."""
    if "\0" in identifier:
        raise InvalidArgument(f"{identifier!r} is no name of PostgreSQL: it has a null character")
    return '"' + identifier.replace('"', '""') + '"'


def quoted_list(identifiers: Iterable[str]) -> str:
    """Identifiers with commas between."""
    return ", ".join(map(quoted, identifiers))


def arrow_type(spark_type: str) -> pa.DataType:
    """The Arrow type that Spark expects for one of the types that `Column.spark_type` gives."""
    import pyarrow as pa

    decimal = _SPARK_DECIMAL.fullmatch(spark_type)
    if decimal is not None:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    simple: dict[str, Any] = {
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp_ntz": pa.timestamp("us"),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        "string": pa.string(),
    }
    return simple[spark_type]


def whole_rows(blocks: Iterable[bytes], part_bytes: int) -> Iterator[bytes]:
    """What COPY gives as CSV, in parts of about a size that end where a row ends."""
    part = bytearray()
    for block in blocks:
        part += block
        # A line may end within a text; then one more of the quotes is open than closed.
        if len(part) >= part_bytes and part.endswith(b"\n") and part.count(b'"') % 2 == 0:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)


def parse_copied(data: bytes, columns: Sequence[Column]) -> pa.Table:
    """What `COPY ... TO STDOUT (FORMAT csv)` gave for the columns' `selected` items."""
    import pyarrow as pa
    from pyarrow import csv

    names = [each.name for each in columns]
    wanted = [arrow_type(each.spark_type) for each in columns]
    if not data:
        return pa.schema(zip(names, wanted, strict=True)).empty_table()
    # Times with a zone come as those of UTC; bytes come as hex, which Arrow cannot undo itself.
    read_as = {
        name: pa.string()
        if pa.types.is_binary(each)
        else pa.timestamp("us")
        if pa.types.is_timestamp(each)
        else each
        for name, each in zip(names, wanted, strict=True)
    }
    table = csv.read_csv(
        io.BytesIO(data),
        read_options=csv.ReadOptions(column_names=names, block_size=max(len(data), 1 << 20)),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=read_as,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
    return pa.table(
        [_restored(table.column(i), each) for i, each in enumerate(wanted)], names=names
    )


def _restored(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    if pa.types.is_binary(wanted):
        texts = values.to_pylist()
        return pa.chunked_array(
            [pa.array([None if text is None else bytes.fromhex(text) for text in texts], wanted)]
        )
    return values.cast(wanted)


def postgres_type(spark_type: str) -> str:
    """The type of a column that is made for values of a Spark type (its `simpleString`)."""
    decimal = _SPARK_DECIMAL.fullmatch(spark_type)
    if decimal is not None:
        return f"numeric({decimal[1]},{decimal[2]})"
    if spark_type.startswith(("struct<", "array<", "map<")):
        return "jsonb"
    try:
        return _POSTGRES_TYPES[spark_type]
    except KeyError:
        raise InvalidArgument(
            f"a column of type {spark_type} has no counterpart in PostgreSQL; cast it to a string"
        ) from None


def copyable(table: pa.Table) -> bytes:
    """The rows as `COPY ... FROM STDIN (FORMAT csv)` takes them: null is nothing, '' is quoted."""
    import pyarrow as pa
    from pyarrow import csv

    columns = []
    for field, values in zip(table.schema, table.columns, strict=True):
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            pieces = values.to_pylist()
            columns.append(
                pa.array([None if each is None else "\\x" + each.hex() for each in pieces])
            )
        else:
            columns.append(values)
    sink = pa.BufferOutputStream()
    csv.write_csv(
        pa.table(columns, names=table.column_names),
        sink,
        write_options=csv.WriteOptions(include_header=False),
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data
