"""The columns of the source: what there is, and what a query wants of it.

A schema that the user gives names the columns to read; the others never leave the kernel. Whatever
it names must exist, with the type it has here. With `valueFormat`, the value is a struct.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.errors import InvalidArgument
from millstream.spark.datasource import HEADERS_FIELD, RECORD_FIELDS
from millstream.spark.decoding.decoder import make_decoder
from millstream.spark.option_reading import is_true

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructField

    from millstream.spark.decoding.decoder import Decoder
    from millstream.spark.source.options import SourceOptions


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are read and which are handed over, as Arrow has them."""

    read: pa.Schema
    """Columns of records."""
    wanted: pa.Schema
    """What Spark expects: the same, or what the decoder makes of them."""
    decoder: Decoder | None


def source_schema(options: Mapping[str, Any]) -> StructType:
    """All columns that the options give."""
    with_headers = [HEADERS_FIELD] if is_true(options, "includeHeaders") else []
    return StructType(_decoded([*RECORD_FIELDS, *with_headers], make_decoder(options)))


def wanted_columns(options: SourceOptions, schema: StructType) -> Columns:
    """What to read for a schema; InvalidArgument if it has what there is not."""
    decoder = make_decoder(options.decoding, schema, options.client)
    every_field = (*RECORD_FIELDS, HEADERS_FIELD)
    _require_known(schema.fields, _decoded(every_field, decoder))
    wanted = set(schema.names)
    if decoder is not None:
        wanted |= set(decoder.needs)
    read = StructType([each for each in every_field if each.name in wanted])
    return Columns(_arrow(read), _arrow(schema), decoder)


def _decoded(fields: Iterable[StructField], decoder: Decoder | None) -> list[StructField]:
    """The fields with the decoder's in the place of the value, and its others behind."""
    if decoder is None:
        return list(fields)
    by_name = {each.name: each for each in decoder.fields}
    found = [by_name.pop(each.name, each) for each in fields]
    return [*found, *by_name.values()]


def _require_known(wanted: Iterable[StructField], fields: Iterable[StructField]) -> None:
    known = {each.name: each.dataType for each in fields}
    faults = []
    for field in wanted:
        if field.name not in known:
            faults.append(f"{field.name}: there is no such column")
        elif field.dataType != known[field.name]:
            is_type = known[field.name].simpleString()
            given = field.dataType.simpleString()
            faults.append(f"{field.name} is {is_type}, not {given}; cast it in the query")
    if faults:
        raise InvalidArgument(
            f"the schema does not fit: {'; '.join(faults)}. Columns are {', '.join(known)}"
        )


def _arrow(schema: StructType) -> Any:
    return to_arrow_schema(schema, timezone="UTC")
