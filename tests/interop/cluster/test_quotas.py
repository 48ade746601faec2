"""Quotas of Apache Kafka, set by our Admin: clients keep to them, and lose nothing."""

from __future__ import annotations

import itertools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from millstream.client.admin import NewTopic, QuotaEntity
from millstream.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.client.runtime import ClientRuntime
    from tests.interop.cluster.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PATIENCE = 60.0
RATE = 100_000
VALUE = b"." * 1_000
COUNT = 800
LOOK_SECONDS = 0.002
SLACK_MS = 50
"""An answer may just be on its way through the client."""

_numbers = itertools.count(1)


@contextmanager
def quota(cluster: KafkaCluster, **limits: float) -> Iterator[str]:
    """A client id that has a quota, while it lasts; brokers remember what others have done."""
    client_id = f"slow-{next(_numbers)}"
    entity = QuotaEntity(client_id=client_id)
    with Admin(cluster.bootstrap) as admin:
        admin.alter_client_quotas({entity: limits}).raise_first()
        cluster.until(
            lambda: admin.describe_client_quotas().get(entity) == limits, lambda: "it is there"
        )
        try:
            yield client_id
        finally:
            admin.alter_client_quotas({entity: dict.fromkeys(limits)}).raise_first()


class Watch:
    """Looks at a client's connection to a broker again and again."""

    def __init__(self, runtime: ClientRuntime, node_id: int) -> None:
        self._runtime = runtime
        self._node_id = node_id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.silences = 0
        """How often the broker had asked for silence."""
        self.breaches = 0
        """How often a request was on its way nevertheless."""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        silent_since: int | None = None
        until_ms = 0
        while not self._is_over.wait(LOOK_SECONDS):
            link = self._runtime.network._links.get(self._node_id)
            now_ms = self._runtime.now_ms()
            if link is None or link.throttled_until_ms <= now_ms:
                silent_since = None
                continue
            if silent_since is None or link.throttled_until_ms != until_ms:
                silent_since, until_ms = now_ms, link.throttled_until_ms
                self.silences += 1
            if now_ms - silent_since > SLACK_MS and until_ms - now_ms > SLACK_MS:
                self.breaches += bool(link.in_flight)


def values(cluster: KafkaCluster, topic: str, **settings: Any) -> list[bytes | None]:
    """Everything that partition 0 has."""
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        found: list[bytes | None] = []
        while len(found) < end:
            found += [each.value for each in consumer.poll(PATIENCE)]
    return found


def fill(producer: Producer, topic: str) -> list[bytes]:
    """What was sent, all of it acknowledged."""
    sent = [b"%d" % each + VALUE for each in range(COUNT)]
    for each in sent:
        producer.send(topic, each, partition=0)
    producer.flush(PATIENCE)
    return sent


def least_ms() -> int:
    """How long so much must take, with the bursts that Kafka's windows let through."""
    return round(1000 * (COUNT * len(VALUE) / RATE - 4))


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_producer_is_silent_for_as_long_as_the_broker_asks(
    cluster: KafkaCluster, compression: Literal["none", "gzip"]
) -> None:
    topic = cluster.topic("quota")
    clock = SystemClock()
    # What gzip makes of the values is small: the quota is too.
    rate = RATE if compression == "none" else RATE // 40
    with (
        quota(cluster, producer_byte_rate=rate) as client_id,
        Producer(
            cluster.bootstrap,
            client_id=client_id,
            compression_type=compression,
            batch_size=20_000,
            max_in_flight_requests_per_connection=1,
        ) as producer,
        Watch(producer._core.runtime, 1) as watch,
    ):
        began_ms = clock.monotonic_ms()
        sent = fill(producer, topic)
        took_ms = clock.monotonic_ms() - began_ms

    assert watch.silences > 0
    assert watch.breaches == 0
    if compression == "none":
        assert took_ms > least_ms()
    assert values(cluster, topic) == sent


def test_a_consumer_is_silent_for_as_long_as_the_broker_asks(cluster: KafkaCluster) -> None:
    topic = cluster.topic("quota")
    clock = SystemClock()
    with Producer(cluster.bootstrap) as producer:
        sent = fill(producer, topic)

    with quota(cluster, consumer_byte_rate=RATE) as client_id:
        began_ms = clock.monotonic_ms()
        assert values(cluster, topic, client_id=client_id) == sent
        assert clock.monotonic_ms() - began_ms > least_ms()


def test_an_admin_waits_until_it_may_change_more(cluster: KafkaCluster) -> None:
    names = {f"mutation-{each}" for each in range(8)}
    clock = SystemClock()
    with (
        quota(cluster, controller_mutation_rate=1.0) as client_id,
        Admin(cluster.bootstrap, client_id=client_id) as admin,
    ):
        began_ms = clock.monotonic_ms()
        for each in names:
            admin.create_topics([NewTopic(each, 1, 1)]).raise_first()
        assert clock.monotonic_ms() - began_ms > 2_000
        cluster.until(
            lambda: names <= {each.name for each in admin.list_topics()}, lambda: "all are there"
        )
