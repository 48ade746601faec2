"""What rows must fulfil: the words of a definition, the rows that go on, and the dead letters.

A row belongs to the first expectation that it does not fulfil. Dead letters carry the headers that
`RetryingConsumer` gives to its own, so that `millstream replay` sends them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.client.retrying import attempt
from millstream.spark.pipelines.record_columns import decoding_cause, record_value
from millstream.spark.pipelines.schema import a_topic, one_of, setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame


DROP: Final = "drop"
FAIL: Final = "fail"
DEAD_LETTER: Final = "dead-letter"

ERROR_TYPE: Final = "millstream.ExpectationFailed"
FAILED_MARK: Final = "does not fulfil the expectation"
"""In every error of an expectation: trying again would not help."""
_CAUSE: Final = "__millstream_cause"
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A condition that every row must fulfil; a row for which it is null does not."""

    name: str = setting("Names the expectation in causes and errors.")
    condition: str = setting("What must be true: an expression of SQL over the row's columns.")
    on_violation: str = setting(
        "What becomes of other rows: `drop` leaves them out, `fail` fails the query, "
        "`dead-letter` sends them to a topic with their cause.",
        DROP,
        check=one_of(DROP, FAIL, DEAD_LETTER),
    )
    topic: str | None = setting(
        "The dead letters' topic; else the name of the pipeline, that of the dataset and `dead`, "
        "joined by dots.",
        None,
        check=a_topic,
    )


def kept_rows(frame: DataFrame, dataset: str, expectations: Sequence[Expectation]) -> DataFrame:
    """The rows that fulfil everything; `fail` raises in the task that meets another."""
    from pyspark.sql import functions as F

    for each in expectations:
        fulfilled = _fulfilled(each)
        if each.on_violation == FAIL:
            message = f"a row of {dataset} {FAILED_MARK} {each.name}: {each.condition}"
            fulfilled = F.when(fulfilled, F.lit(True)).otherwise(
                F.raise_error(F.lit(message)).cast("boolean")
            )
        frame = frame.where(fulfilled)
    return frame


def dead_letters(
    frame: DataFrame,
    dataset: str,
    expectations: Sequence[Expectation],
    topics: Mapping[str, str],
    group: str,
) -> DataFrame:
    """Records for dead-letter topics: `topics` has one for each expectation that wants them.

    A row that still is a record (it has `topic`, `partition`, `offset` and `value`) goes with its
    own key, value and headers; another as JSON. So goes a value that the source has decoded, but
    one that it could not decode goes as it came.
    """
    from pyspark.sql import functions as F

    cause: Column | None = None
    for each in expectations:
        failed, name = ~_fulfilled(each), F.lit(each.name)
        cause = F.when(failed, name) if cause is None else cause.when(failed, name)
    assert cause is not None
    failing = frame.withColumn(_CAUSE, cause).where(F.col(_CAUSE).isin(*topics))
    is_record = {"topic", "partition", "offset", "value"} <= set(frame.columns)
    value = record_value(frame) if is_record else F.to_json(F.struct(*frame.columns))
    key = F.col("key") if "key" in frame.columns else F.lit(None)
    return failing.select(
        key.cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        _headers(frame, dataset, expectations, group, is_record).alias("headers"),
        _chosen(topics).alias("topic"),
    )


def _fulfilled(expectation: Expectation) -> Column:
    """True or false: a row for which it is null does not fulfil it."""
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(f"({expectation.condition})"), F.lit(False))


def _chosen(texts: Mapping[str, str]) -> Column:
    """One of some texts, by the row's cause."""
    from pyspark.sql import functions as F

    names = [F.lit(each) for pair in texts.items() for each in pair]
    return F.create_map(*names)[F.col(_CAUSE)]


def _headers(
    frame: DataFrame,
    dataset: str,
    expectations: Sequence[Expectation],
    group: str,
    is_record: bool,
) -> Column:
    from pyspark.sql import functions as F

    messages = {
        each.name: f"a row of {dataset} {FAILED_MARK} {each.name}: {each.condition}"
        for each in expectations
        if each.on_violation == DEAD_LETTER
    }
    message, cause = _chosen(messages), decoding_cause(frame)
    if cause is not None:
        message = F.concat_ws("; ", message, cause)
    # The time of the batch: the same when the batch is done again, as exactly-once needs it.
    now = F.unix_millis(F.current_timestamp())
    told: dict[str, Column] = {}
    if is_record:
        told = {
            attempt.TOPIC: F.col("topic"),
            attempt.PARTITION: F.col("partition"),
            attempt.OFFSET: F.col("offset"),
        }
        if "timestamp" in frame.columns:
            told[attempt.TIMESTAMP] = F.unix_millis(F.col("timestamp"))
    told |= {
        attempt.GROUP: F.lit(group),
        attempt.FAILURES: F.lit("1"),
        attempt.FIRST_FAILED: now,
        attempt.LAST_FAILED: now,
        attempt.ERROR_TYPE: F.lit(ERROR_TYPE),
        attempt.ERROR_MESSAGE: message,
    }
    ours = F.array(
        *(
            F.struct(F.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))
            for name, text in told.items()
        )
    ).cast(_HEADERS_TYPE)
    if "headers" not in frame.columns:
        return ours
    own = F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE))
    return F.concat(F.filter(own, lambda each: ~each["key"].startswith(attempt.PREFIX)), ours)
