"""Independent clients on an embedded broker, and what its faults look like to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from millstream.testing import EmbeddedBroker

if TYPE_CHECKING:
    from tests.integration.embedded.clients import Client

pytestmark = pytest.mark.integration

VALUES = [b"one", b"two", b"three"]


def test_a_client_reads_what_it_wrote(broker: EmbeddedBroker, topic: str, client: Client) -> None:
    client.produce(broker.bootstrap_servers, topic, *VALUES)

    assert client.consume(broker.bootstrap_servers, topic, 3) == VALUES


def test_a_client_creates_topics(broker: EmbeddedBroker, client: Client) -> None:
    client.create_topic(broker.bootstrap_servers, "made-by-a-client", 3)

    assert broker.topics() == ["made-by-a-client"]


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS"])
def test_a_client_tries_again_after_errors(
    broker: EmbeddedBroker, topic: str, client: Client, error: str
) -> None:
    broker.faults.fail("Produce", error, times=2)

    client.produce(broker.bootstrap_servers, topic, b"at last")

    assert broker.faults.is_quiet
    assert client.consume(broker.bootstrap_servers, topic, 1) == [b"at last"]


def test_a_client_connects_again_when_its_connection_breaks(
    broker: EmbeddedBroker, topic: str, client: Client
) -> None:
    broker.faults.drop("Produce")

    client.produce(broker.bootstrap_servers, topic, b"at last")

    assert broker.faults.is_quiet
    assert client.consume(broker.bootstrap_servers, topic, 1) == [b"at last"]


def test_a_client_waits_for_a_slow_broker(
    broker: EmbeddedBroker, topic: str, client: Client
) -> None:
    broker.faults.delay("Metadata", 20)
    broker.faults.delay("Produce", 20)

    client.produce(broker.bootstrap_servers, topic, *VALUES)

    broker.faults.clear()
    assert client.consume(broker.bootstrap_servers, topic, 3) == VALUES


def _produce(broker: EmbeddedBroker, topic: str, **settings: object) -> list[object]:
    """What librdkafka reports of one record."""
    given = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10}
    producer = confluent_kafka.Producer(
        {**given, **{key.replace("_", "."): value for key, value in settings.items()}}
    )
    reports: list[object] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(30) == 0
    return [error.name() if error else None for error in reports]  # type: ignore[attr-defined]  # no stubs


def test_an_error_that_is_final_reaches_the_application(broker: EmbeddedBroker, topic: str) -> None:
    broker.faults.fail("Produce", "MESSAGE_TOO_LARGE")

    assert _produce(broker, topic) == ["MSG_SIZE_TOO_LARGE"]


def test_a_lost_answer_makes_a_duplicate_unless_the_producer_is_idempotent(
    broker: EmbeddedBroker, topic: str, client: Client
) -> None:
    broker.faults.drop("Produce", after_handling=True)
    assert _produce(broker, topic, enable_idempotence=False) == [None]
    broker.faults.drop("Produce", after_handling=True)
    assert _produce(broker, topic, enable_idempotence=True) == [None]

    client.produce(broker.bootstrap_servers, topic, b"end")

    values = client.consume(broker.bootstrap_servers, topic, 4)
    assert values == [b"value", b"value", b"value", b"end"]


def test_nobody_gets_through_while_the_broker_is_unavailable(
    broker: EmbeddedBroker, topic: str
) -> None:
    with broker.faults.unavailable():
        assert _produce(broker, topic, message_timeout_ms=300) == ["_MSG_TIMED_OUT"]

    assert _produce(broker, topic) == [None]


def test_a_reset_forgets_groups_and_transactions() -> None:
    with EmbeddedBroker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"}
        consumer = confluent_kafka.Consumer(settings)
        broker.create_topic("orders")
        consumer.commit(
            offsets=[confluent_kafka.TopicPartition("orders", 0, 5)], asynchronous=False
        )
        consumer.close()

        broker.reset()
        broker.create_topic("orders")

        consumer = confluent_kafka.Consumer(settings)
        (found,) = consumer.committed([confluent_kafka.TopicPartition("orders", 0)], timeout=30)
        consumer.close()
        assert found.offset < 0
