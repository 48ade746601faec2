"""What clients write to the log: warnings where something stays wrong, else nothing of note."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, Consumer, Producer, TopicPartition
from millstream.client import lasting_troubles
from millstream.client.consumer import offset_lookup
from millstream.client.lasting_troubles import PATIENCE_MS, REPEAT_MS, LastingTroubles
from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.consumer.reading import PATIENCE, read

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_memory=True) as running:
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lasting_troubles, "PATIENCE_MS", 0)
    monkeypatch.setattr(offset_lookup, "UNKNOWN_TOPIC_MS", 50)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno >= logging.WARNING and not each.name.startswith("millstream.server")
    ]


def poll_until_warned(consumer: Consumer, caplog: pytest.LogCaptureFixture, text: str) -> None:
    while not any(text in each for each in warnings(caplog)):
        assert consumer.poll(0.05) == []


def test_a_broker_that_is_not_there_is_named_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody listens here, and nobody else can.
        port = taken.getsockname()[1]
        settings: Any = {"reconnect_backoff": 0.001, "reconnect_backoff_max": 0.001}
        with Consumer(f"127.0.0.1:{port}", "t", group_id="g", **settings) as consumer:
            poll_until_warned(consumer, caplog, f"broker 127.0.0.1:{port} cannot be reached")
            consumer.poll(0.2)

    assert len(warnings(caplog)) == 1
    assert "trying again: connection refused" in warnings(caplog)[0]


def test_a_client_that_works_warns_of_nothing(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    address = broker.bootstrap_servers
    with caplog.at_level(logging.DEBUG, "millstream.network.client.link_reports"):
        with Producer(address) as producer:
            producer.send("new", "v").result(PATIENCE)
        settings: Any = {"group_id": "works", "auto_offset_reset": "earliest"}
        with Consumer(address, "new", **settings) as consumer:
            assert len(read(consumer, 1)) == 1

    assert warnings(caplog) == []
    assert f"connected to {address}" in caplog.text


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.usefixtures("impatient")
def test_a_topic_that_nobody_has_is_named(
    broker: EmbeddedBroker, protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings: Any = {"group_protocol": protocol, "allow_auto_create_topics": False}
    with Consumer(broker.bootstrap_servers, "none", group_id=protocol, **settings) as consumer:
        poll_until_warned(consumer, caplog, "topic none is not there")
        consumer.poll(0.2)

    assert len(warnings(caplog)) == 1


@pytest.mark.usefixtures("impatient")
def test_a_partition_that_nobody_has_is_named_and_read_when_it_comes(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    address = broker.bootstrap_servers
    broker.create_topic("short", partitions=2)
    with Consumer(address, auto_offset_reset="earliest") as consumer, Admin(address) as admin:
        consumer.assign([TopicPartition("short", 2)])
        poll_until_warned(consumer, caplog, "no partition short-2: topic short has 2")

        admin.create_partitions({"short": 3})["short"]
        with Producer(address) as producer:
            producer.send("short", "v", partition=2)
        assert len(read(consumer, 1)) == 1


def test_troubles_are_told_if_they_last_and_again_after_a_while() -> None:
    troubles = LastingTroubles()
    both: dict[object, str] = {"a": "a is missing", "b": "b is missing"}
    only_a: dict[object, str] = {"a": "a is missing"}

    assert troubles.take(both, 0) == []
    assert troubles.take(only_a, PATIENCE_MS) == ["a is missing"]
    assert troubles.take(both, PATIENCE_MS + 1) == []  # The second is new once more.
    assert troubles.take(both, 2 * PATIENCE_MS + 1) == ["b is missing"]
    assert troubles.take(both, PATIENCE_MS + REPEAT_MS) == ["a is missing"]
    assert troubles.take({}, REPEAT_MS) == []
    assert troubles.take(only_a, 2 * REPEAT_MS) == []
