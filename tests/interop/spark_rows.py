"""The same jobs by Spark's own Kafka connector and by ours, in one Spark session; rows as JSON.

A program of its own, because jars are for whole sessions:
`python -m tests.interop.spark_rows JARS JOBS OUTPUT`. JARS are separated by commas, JOBS is a JSON
file of names and options, OUTPUT is written as {job: {"kafka": rows, "millstream": rows}}.

A job reads, unless it has `is_write`: then each connector writes `WRITTEN` to topics of its own,
whose names end with that of the format, and Spark's connector reads back what both have written.
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
WRITTEN = """
SELECT * FROM VALUES
  ('{first}', binary('k1'), binary('v1'), 1, timestamp_millis(1767225600123),
   array(named_struct('key', 'h', 'value', binary('x')),
         named_struct('key', 'h', 'value', binary('y')))),
  ('{second}', binary('k2'), binary('v2'), 0, timestamp_millis(1767225600124),
   array(named_struct('key', 'null', 'value', CAST(null AS BINARY)))),
  ('{first}', binary('k3'), null, 2, timestamp_millis(1767225600125), null),
  ('{first}', null, binary(''), 1, timestamp_millis(1767225600126), array()),
  ('{first}', binary('ключ'), binary('значение'), null, timestamp_millis(1767225600127), null)
  AS rows(topic, key, value, partition, timestamp, headers)
"""
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


def write(spark: SparkSession, kind: str, job: dict[str, Any], directory: Path) -> list[list[Any]]:
    """Write the frame; the rows that are in the topics afterwards."""
    columns, topics = job.pop("columns"), job.pop("topics")
    is_stream = job.pop("is_stream", False)
    names = [f"{each}-{kind}" for each in topics]
    servers = job["kafka.bootstrap.servers"]
    options = job if "topic" in columns else {**job, "topic": names[0]}
    # In one task, so that the order of rows is that of records.
    frame = spark.sql(WRITTEN.format(first=names[0], second=names[1])).coalesce(1).select(*columns)
    if is_stream:
        source, checkpoint = str(directory / f"{kind}.in"), str(directory / f"{kind}.ck")
        frame.write.parquet(source)
        rows = spark.readStream.schema(frame.schema).parquet(source)
        writing = rows.writeStream.format(kind).options(**options)
        writing = writing.option("checkpointLocation", checkpoint)
        writing.trigger(availableNow=True).start().awaitTermination()
    else:
        frame.write.format(kind).options(**options).mode("append").save()
    reading = {
        "kafka.bootstrap.servers": servers,
        "subscribe": ",".join(names),
        "includeHeaders": "true",
    }
    rows_found = batch(spark, "kafka", reading)
    place, at = 2, 5
    for row in rows_found:
        row[place] = row[place].removesuffix(f"-{kind}")
        # Spark's connector has no column for the time: brokers and clients put their own there.
        row[at] = row[at] if kind == "millstream" and "timestamp" in columns else None
    return rows_found


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
        found[name] = {}
        is_write = options.pop("is_write", False)
        is_stream = not is_write and options.pop("is_stream", False)
        for kind in FORMATS:
            if is_write:
                rows = write(spark, kind, dict(options), output.parent / name)
            elif is_stream:
                rows = stream(spark, kind, options, output.parent / name)
            else:
                rows = batch(spark, kind, options)
            found[name][kind] = rows
    output.write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
