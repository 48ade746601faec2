"""Columns of rows that are records: the value as bytes, and why it could not be decoded.

Sinks of topics and dead letters write them. Nothing here starts a query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ERROR: Final = "_error"
"""The column that tells of a value which could not be decoded."""


def record_value(df: DataFrame) -> Column:
    """The value of a row that is a record: as it was read, or as JSON if it was decoded."""
    from pyspark.sql import functions as F

    value = as_bytes(df, F.col("value"))
    if ERROR not in df.columns:
        return value
    # What could not be decoded is there as it was.
    return F.coalesce(F.col(ERROR)["value"], value.cast("binary"))


def decoding_cause(df: DataFrame) -> Column | None:
    """Why a row's value could not be decoded; None if nobody tried."""
    from pyspark.sql import functions as F

    return F.col(ERROR)["cause"] if ERROR in df.columns else None


def as_bytes(df: DataFrame, column: Column) -> Column:
    """Text of a value, unless it is bytes or text by itself."""
    kind = df.select(column).schema[0].dataType.typeName()
    if kind in ("binary", "string"):
        return column
    if kind in ("struct", "array", "map"):
        from pyspark.sql import functions as F

        return F.to_json(column)
    return column.cast("string")
