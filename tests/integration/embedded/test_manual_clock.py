"""Time that passes when a test says so: retention and timeouts without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.testing import EmbeddedBroker, ManualClock
from tests.integration.embedded.clients import Confluent, KafkaPython
from tests.integration.node.harness import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

DAY_MS = 86_400_000
client = Confluent()


@pytest.fixture
def still() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(clock=ManualClock()) as broker:
        yield broker


def test_clients_work_while_time_stands_still(still: EmbeddedBroker) -> None:
    still.create_topic("topic")
    KafkaPython().produce(still.bootstrap_servers, "topic", b"one")
    client.produce(still.bootstrap_servers, "topic", b"two")

    assert client.consume(still.bootstrap_servers, "topic", 2) == [b"one", b"two"]


def test_records_go_when_their_time_is_over() -> None:
    clock = ManualClock()
    with EmbeddedBroker({"log.message.timestamp.type": "LogAppendTime"}, clock=clock) as broker:
        broker.create_topic("short", config={"retention.ms": 7 * DAY_MS})
        broker.create_topic("kept", config={"retention.ms": -1})
        with Client(broker.bootstrap_servers) as raw:
            for topic in ("short", "kept"):
                assert raw.produce(topic, b"old") == (0, 0)

            broker.advance(6 * DAY_MS)
            assert raw.values("kept") == [b"old"]
            assert raw.values("short") == [b"old"]
            broker.advance(2 * DAY_MS)

            assert raw.values("kept") == [b"old"]
            assert raw.produce("short", b"new") == (0, 1)
            assert raw.values("short", 1) == [b"new"]
        assert client.first_offset(broker.bootstrap_servers, "short") == 1


def test_the_broker_stays_in_the_cluster_over_a_leap(still: EmbeddedBroker) -> None:
    still.create_topic("topic")
    still.advance(400 * DAY_MS)

    client.produce(still.bootstrap_servers, "topic", b"later")
    assert client.consume(still.bootstrap_servers, "topic", 1) == [b"later"]
    still.restart()
    still.stop()
    still.advance(DAY_MS)
    still.start()
    assert client.consume(still.bootstrap_servers, "topic", 1) == [b"later"]
