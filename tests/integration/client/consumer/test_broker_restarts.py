"""Consumers whose broker goes away and comes back: nothing is lost, nothing comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream import Consumer
from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.consumer.reading import PATIENCE, assigned, read, values
from tests.integration.client.consumer.topics import SETTINGS, Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration


@pytest.fixture
def own_topics() -> Iterator[Topics]:
    """A broker that only this test stops."""
    with EmbeddedBroker(SETTINGS) as running:
        yield Topics(running)


def test_reading_goes_on_after_a_restart(own_topics: Topics) -> None:
    topic = own_topics.make(5)
    with assigned(own_topics, topic) as consumer:
        assert len(read(consumer, 5)) == 5

        own_topics.broker.stop()
        assert consumer.poll(0.5) == []
        own_topics.broker.start()
        own_topics.write(topic, [b"after"])

        assert values(read(consumer, 1)) == [b"after"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_after_a_restart(own_topics: Topics, protocol: Any) -> None:
    topic = own_topics.make(5)
    settings: Any = {
        "group_id": "restarted",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "session_timeout": 5.0,
    }
    with Consumer(own_topics.bootstrap, topic, **settings) as consumer:
        assert len(read(consumer, 5)) == 5
        consumer.commit()

        own_topics.broker.stop()
        assert consumer.poll(0.5) == []
        own_topics.broker.start()
        own_topics.write(topic, [b"after"])

        assert values(read(consumer, 1)) == [b"after"]
        consumer.commit(timeout=PATIENCE)
