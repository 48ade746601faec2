"""Records that cannot be decoded, into a topic of their own, with the cause in their headers.

The headers are those of `millstream.client.retrying`, so `millstream replay` sends such records
back. They are written by the task that read them, before it goes on: a task that runs twice writes
them twice.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from millstream.client.config import shared_settings
from millstream.client.producer.config import ProducerConfig
from millstream.client.retrying import attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from millstream.spark.decoding.formats import Faults

PLACE_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp", "headers")
"""What a dead letter tells of the record beside its value."""

_ERROR_TYPE: Final = "millstream.errors.SerializationFailed"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def bury(batch: pa.RecordBatch, faults: Faults, topic: str, client: Mapping[str, str]) -> None:
    """Write the faulty rows to the topic, and return when they are safe there."""
    from millstream.client.producer.producer import Producer
    from millstream.spark.worker_clients import borrowed

    with borrowed(Producer, producer_settings(client)) as producer:
        for row, cause in faults.items():
            record = {name: batch.column(name)[row].as_py() for name in batch.schema.names}
            producer.send(
                topic,
                record["value"],
                key=record["key"],
                headers=_headers(record, cause),
            )
        producer.flush()


def producer_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Those settings of a consumer that a producer has too: addresses and security."""
    return shared_settings(ProducerConfig, client)


def _headers(record: Mapping[str, Any], cause: str) -> list[tuple[str, bytes | None]]:
    told = {
        attempt.TOPIC: record["topic"],
        attempt.PARTITION: str(record["partition"]),
        attempt.OFFSET: str(record["offset"]),
        attempt.TIMESTAMP: str((record["timestamp"] - _EPOCH) // _MILLISECOND),
        attempt.FAILURES: "1",
        attempt.ERROR_TYPE: _ERROR_TYPE,
        attempt.ERROR_MESSAGE: cause,
    }
    own = [(each["key"], each["value"]) for each in record["headers"] or ()]
    return [*own, *((name, text.encode()) for name, text in told.items())]
