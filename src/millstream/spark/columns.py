"""The columns of the source: what there is, and what a query wants of it.

A schema that the user gives names the columns to read; the others are not even decoded into Spark's
memory. Whatever it names must exist, with the type it has here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.errors import InvalidArgument
from millstream.spark.datasource import HEADERS_FIELD, RECORD_FIELDS
from millstream.spark.option_reading import is_true

if TYPE_CHECKING:
    from collections.abc import Mapping


def source_schema(options: Mapping[str, Any]) -> StructType:
    """All columns that the options give."""
    fields = list(RECORD_FIELDS)
    if is_true(options, "includeHeaders"):
        fields.append(HEADERS_FIELD)
    return StructType(fields)


def wanted_arrow_schema(wanted: StructType) -> Any:
    """The wanted columns as Spark takes them from Arrow; InvalidArgument if one cannot be."""
    known = {each.name: each.dataType for each in (*RECORD_FIELDS, HEADERS_FIELD)}
    faults = []
    for field in wanted.fields:
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
    return to_arrow_schema(wanted, timezone="UTC")
