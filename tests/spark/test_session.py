"""A session as `millstream.spark.session` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_executors_import_millstream_and_the_settings_hold(spark: SparkSession) -> None:
    def versions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        import millstream

        for batch in batches:
            yield pyarrow.record_batch({"v": [millstream.__version__] * batch.num_rows})

    found = spark.range(3).mapInArrow(versions, "v string").distinct().collect()

    assert [row.v for row in found] == ["0.1.0"]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
