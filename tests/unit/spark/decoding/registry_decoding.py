"""What tests of values of a registry share: decoding with a registry, and causes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.spark.decoding.decoder import make_decoder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tests.schema_registry import Registry


def decode(
    registry: Registry,
    values: list[bytes],
    schema: StructType | None = None,
    **options: str,
) -> Any:
    given = {"schemaRegistryUrl": registry.url, "valueSubject": "orders-value", **options}
    decoder = make_decoder({name: each for name, each in given.items() if each}, schema)
    assert decoder is not None
    return decoder.decode(pa.record_batch({"value": pa.array(values, pa.binary())}))


def causes(batch: Any) -> list[str | None]:
    return [each and each["cause"] for each in batch.column("_error").to_pylist()]
