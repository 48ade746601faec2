"""The same reads by Spark's own Kafka connector and by ours, in one Spark session; rows as JSON.

A program of its own, because jars are for whole sessions:
`python -m tests.interop.spark_rows JARS JOBS OUTPUT`. JARS are separated by commas, JOBS is a JSON
file of names and options, OUTPUT is written as {job: {"kafka": rows, "millstream": rows}}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("kafka", "millstream")
_COLUMNS = (
    "hex(key) key",
    "hex(value) value",
    "topic",
    "partition",
    "offset",
    "unix_micros(timestamp) timestamp",
    "timestampType",
)
_HEADERS = "transform(headers, h -> concat(h.key, '=', coalesce(hex(h.value), 'null'))) headers"


def shown(frame: DataFrame) -> DataFrame:
    """Rows in types that JSON has."""
    headers = [_HEADERS] if "headers" in frame.columns else []
    return frame.selectExpr(*_COLUMNS, *headers)


def listed(frame: DataFrame) -> list[list[Any]]:
    """All rows, in order."""
    ordered = frame.orderBy("topic", "partition", "offset")
    return [list(row) for row in ordered.collect()]


def batch(spark: SparkSession, kind: str, options: dict[str, str]) -> list[list[Any]]:
    """The rows of a batch."""
    return listed(shown(spark.read.format(kind).options(**options).load()))


def stream(
    spark: SparkSession, kind: str, options: dict[str, str], directory: Path
) -> list[list[Any]]:
    """The rows of a stream that reads what there is, and how many each micro-batch had."""
    frame = shown(spark.readStream.format(kind).options(**options).load())
    output = str(directory / kind)
    writing = frame.writeStream.format("parquet").option("checkpointLocation", f"{output}.ck")
    query = writing.trigger(availableNow=True).start(output)
    query.awaitTermination()
    sizes = [each.numInputRows for each in query.recentProgress if each.numInputRows]
    return [sizes, *listed(spark.read.parquet(output))]


def main() -> None:
    """Run the jobs."""
    jars, jobs, output = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "768m",
        # A few rows are not worth the compiling of their plan, nor a second task to sort them.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": 1,
    }
    spark = session("interop", "local[2]", **settings)
    found: dict[str, dict[str, Any]] = {}
    for name, options in json.loads(jobs.read_text()).items():
        is_stream = options.pop("is_stream", False)
        found[name] = {}
        for kind in FORMATS:
            if is_stream:
                rows = stream(spark, kind, options, output.parent / name)
            else:
                rows = batch(spark, kind, options)
            found[name][kind] = rows
    output.write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
