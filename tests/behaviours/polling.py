"""Polling until enough has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import Consumer
from tests.behaviours.clusters import at

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream import AsyncConsumer, ConsumerRecord
    from tests.behaviours.clusters import Cluster

PATIENCE = 30.0
_TURNS_MAX = 1_500
_TURN_SECONDS = 0.02


def reader(cluster: Cluster, topic: str, *partitions: int, **settings: Any) -> Consumer[Any, Any]:
    """A consumer of partitions, from their beginning."""
    consumer = Consumer(cluster.address, **{"auto_offset_reset": "earliest", **settings})
    consumer.assign(at(topic, *partitions))
    return consumer


def read(consumer: Consumer[Any, Any], count: int) -> list[ConsumerRecord[Any, Any]]:
    """So many records, and perhaps some more."""
    found: list[ConsumerRecord[Any, Any]] = []
    while len(found) < count:
        records = consumer.poll(PATIENCE)
        assert records, f"{len(found)} of {count} records came"
        found += records
    return found


async def read_async(
    consumer: AsyncConsumer[Any, Any], count: int
) -> list[ConsumerRecord[Any, Any]]:
    """So many records, and perhaps some more."""
    found: list[ConsumerRecord[Any, Any]] = []
    while len(found) < count:
        records = await consumer.poll(PATIENCE)
        assert records, f"{len(found)} of {count} records came"
        found += records
    return found


def values(records: list[ConsumerRecord[Any, Any]]) -> list[Any]:
    """What is in them."""
    return [each.value for each in records]


def poll_until(
    is_so: Callable[[], bool],
    *consumers: Consumer,
    seen: list[ConsumerRecord[Any, Any]] | None = None,
) -> None:
    """Poll all of them in turn until something is so."""
    for _ in range(_TURNS_MAX):
        if is_so():
            return
        for each in consumers:
            records = each.poll(_TURN_SECONDS)
            if seen is not None:
                seen += records
    shares = [sorted(each.assignment()) for each in consumers]
    raise AssertionError(f"it did not come to that; the partitions are {shares}")
