"""Views with Spark: each transformation of a definition as an operation on data frames.

`assembly` calls `transform` with the view's inputs. Nothing here starts a query.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, assert_never

from millstream.errors import InvalidPipeline
from millstream.spark.pipelines.definition import (
    Aggregate,
    Deduplicate,
    Join,
    PythonFunction,
    Sql,
    Stateful,
)
from millstream.spark.pipelines.libraries import SESSION_PARAMETER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from millstream.spark.pipelines.definition import View

_TIME_MODES: Final = {
    "none": "None",
    "processing_time": "ProcessingTime",
    "event_time": "EventTime",
}

_WATERMARK: Final = "spark.watermarkDelayMs"
"""What Spark notes of a column that has a watermark."""


def transform(
    view: View,
    inputs: Mapping[str, DataFrame],
    event_times: Mapping[str, str | None],
    library: Mapping[str, Any],
    spark: SparkSession,
) -> DataFrame:
    """The rows of a view; `event_times` has the column of each input's watermark."""
    frames = [inputs[each] for each in view.inputs]
    match view.transformation:
        case Sql(query=query):
            for name, frame in inputs.items():
                frame.createOrReplaceTempView(name)
            return spark.sql(query)
        case PythonFunction(function=name):
            return _call(library[name], frames, spark)
        case Aggregate() as aggregate:
            return _aggregate(frames[0], aggregate, event_times[view.inputs[0]])
        case Join() as join:
            return _join(inputs[join.left], inputs[join.right], join)
        case Stateful() as stateful:
            return _stateful(frames, stateful, library)
        case Deduplicate() as deduplicate:
            columns = list(deduplicate.columns)
            if deduplicate.within_watermark and frames[0].isStreaming:
                return frames[0].dropDuplicatesWithinWatermark(columns)
            return frames[0].dropDuplicates(columns)
        case unknown:
            assert_never(unknown)


def _call(function: Any, frames: list[DataFrame], spark: SparkSession) -> DataFrame:
    arguments: list[Any] = list(frames)
    for index, name in enumerate(inspect.signature(function).parameters):
        if name == SESSION_PARAMETER:
            arguments.insert(index, spark)
    made = function(*arguments)
    if not hasattr(made, "isStreaming"):
        raise InvalidPipeline(
            f"{function.__name__}() gives {type(made).__name__}; a view is a data frame"
        )
    frame: DataFrame = made
    return frame


def _aggregate(frame: DataFrame, aggregate: Aggregate, event_time: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    groups: list[Column] = []
    column = aggregate.time_column or event_time or ""
    if aggregate.has_time and not column:
        raise InvalidPipeline(
            "its rows have no column with a watermark, or more than one: give the window a `column`"
        )
    if aggregate.window is not None:
        window = aggregate.window
        groups.append(F.window(column, window.duration, window.slide).alias("window"))
    elif aggregate.session_gap is not None:
        groups.append(F.session_window(column, aggregate.session_gap.gap).alias("window"))
    groups += [F.expr(each) for each in aggregate.group_by]
    values = [F.expr(each).alias(name) for name, each in aggregate.select.items()]
    return frame.groupBy(*groups).agg(*values)


def watermark_column(frame: DataFrame) -> str | None:
    """The column of a frame that has a watermark, which views pass on; None unless it is one."""
    found = [each.name for each in frame.schema.fields if _WATERMARK in each.metadata]
    return found[0] if len(found) == 1 else None


def _join(left: DataFrame, right: DataFrame, join: Join) -> DataFrame:
    from pyspark.sql import functions as F

    joined = left.alias(join.left).join(right.alias(join.right), F.expr(join.on), join.how)
    if join.select:
        return joined.select(*(F.expr(each).alias(name) for name, each in join.select.items()))
    both = sorted({each for each in joined.columns if joined.columns.count(each) > 1})
    if both:
        raise InvalidPipeline(
            f"{join.left} and {join.right} both have {', '.join(both)}: choose with `select`"
        )
    return joined


def _stateful(frames: list[DataFrame], stateful: Stateful, library: Mapping[str, Any]) -> DataFrame:
    by_group = [frame.groupBy(*stateful.group_by) for frame in frames]
    run: Any = (
        by_group[0].transformWithStateInPandas
        if stateful.rows == "pandas"
        else by_group[0].transformWithState
    )
    made: DataFrame = run(
        statefulProcessor=library[stateful.processor](),
        outputStructType=stateful.schema,
        outputMode=stateful.output_mode.capitalize(),
        timeMode=_TIME_MODES[stateful.time_mode],
        initialState=by_group[1] if len(by_group) > 1 else None,
        eventTimeColumnName=stateful.event_time_column or "",
    )
    return made
