"""The example that `millstream pipeline init` writes: it runs as it is, and says what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidArgument
from millstream.spark.pipelines.templates import read_template

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_DEFINITION: Final = """\
# A pipeline: files of orders into a topic, and their sums per minute into another.
# Check it with `millstream pipeline validate`, draw it with `millstream pipeline graph`.
# Every key: docs/reference/pipeline.md.
name: orders

# Checkpoints, state and status: what the pipeline must remember. Delete it to begin anew.
storage: state

# Files with functions and views that the definition uses.
libraries: [functions.py, views.sql]

# Settings of Spark, beside those that Millstream tunes.
configuration:
  spark.sql.shuffle.partitions: 2

# ${NAME} is a variable of the environment; behind :- stands what is taken if it is not set.
cluster:
  bootstrap_servers: ${MILLSTREAM_BOOTSTRAP_SERVER:-localhost:9092}

sources:
  # Every new file of the directory, each line one record.
  files:
    format: text
    path: data/*.json
  # The topic that the first sink fills.
  incoming:
    format: topic
    topic: orders

views:
  # `parsed` is in views.sql. What is not an order goes to the topic orders.checked.dead,
  # with its cause in the headers; `millstream replay` sends it back when it is mended.
  checked:
    sql: SELECT * FROM parsed
    expectations:
      - name: is_an_order
        condition: order.id IS NOT NULL AND order.amount > 0
        on_violation: dead-letter

  # `priced` is a function in functions.py.
  priced:
    from: checked
    python: with_tax
    # Orders that are more than a minute behind the newest one are too late for the sums.
    watermark: {column: ordered_at, delay: 1 minute}

  # An order that comes twice counts once.
  unique:
    from: priced
    deduplicate: {columns: [id]}

  per_minute:
    from: unique
    aggregate:
      window: {column: ordered_at, duration: 1 minute}
      group_by: [customer]
      select:
        orders: count(*)
        total: round(sum(gross), 2)

sinks:
  import:
    from: files
    format: topic
    topic: orders
    partitions: 2

  # Every sum once, whatever fails on the way, as soon as its minute can no longer change.
  totals:
    from: per_minute
    format: topic
    topic: orders-per-minute
    key: customer

  archive:
    from: priced
    format: parquet
    path: archive
"""
_FUNCTIONS: Final = '''\
"""Functions of the pipeline: data frames in, data frame out. They run on Spark."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

TAX = 0.19


def with_tax(checked: DataFrame) -> DataFrame:
    """Orders with their price for the customer."""
    return checked.select(
        "order.id",
        "order.customer",
        F.col("order.at").alias("ordered_at"),
        F.round(F.col("order.amount") * (1 + TAX), 2).alias("gross"),
    )
'''
_VIEWS: Final = """\
-- Views of the pipeline. A view is a query over sources and other views by their names.

-- The record stays beside what was read from it, so that a dead letter is the whole record.
CREATE TEMPORARY VIEW parsed AS
SELECT
  from_json(CAST(value AS STRING), 'id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP')
    AS order,
  key, value, topic, partition, offset, timestamp, headers
FROM incoming;
"""
_DATA: Final = """\
{"id": 1, "customer": "anna", "amount": 10.0, "at": "2026-01-01T12:00:05Z"}
{"id": 2, "customer": "ben", "amount": 4.5, "at": "2026-01-01T12:00:20Z"}
{"id": 2, "customer": "ben", "amount": 4.5, "at": "2026-01-01T12:00:20Z"}
{"id": 3, "customer": "anna", "amount": 2.0, "at": "2026-01-01T12:00:59Z"}
this is no order
{"id": 4, "customer": "cara", "amount": -1.0, "at": "2026-01-01T12:01:10Z"}
{"id": 5, "customer": "ben", "amount": 7.25, "at": "2026-01-01T12:01:30Z"}
{"id": 6, "customer": "anna", "amount": 3.0, "at": "2026-01-01T12:04:00Z"}
"""
_IGNORED: Final = "state/\narchive/\n"
FILES: Final[Mapping[str, str]] = {
    "pipeline.yaml": _DEFINITION,
    "functions.py": _FUNCTIONS,
    "views.sql": _VIEWS,
    "data/orders.json": _DATA,
    ".gitignore": _IGNORED,
}
"""Contents by path."""


def write_example(directory: Path, template: str | None = None) -> list[str]:
    """Write the files, or those of a template; none if one of them is there already."""
    files = FILES if template is None else {"pipeline.yaml": read_template(template)}
    existing = [name for name in files if (directory / name).exists()]
    if existing:
        raise InvalidArgument(
            f"{directory} has {', '.join(existing)} already; name another directory"
        )
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return list(files)
