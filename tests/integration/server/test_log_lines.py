"""What clients do again and again is written once."""

from __future__ import annotations

import logging

import pytest

from millstream.protocol.messages import MetadataRequest, metadata
from millstream.testing import EmbeddedBroker
from tests.integration.node.harness import Client

pytestmark = pytest.mark.integration


def test_a_topic_that_cannot_be_created_is_written_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    settings = {"default.replication.factor": 3}
    with EmbeddedBroker(settings) as broker, Client(broker.bootstrap_servers) as client:
        for number in range(20):
            wanted = metadata.MetadataRequestTopic(name=f"wanted-{number % 4}")
            request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=True)
            answer = client.ask(request, 12, metadata.MetadataResponse)
            assert answer.topics[0].error_code != 0
        # The controller answers in order.
        assert client.create_topic("possible") == 0

    written = [each for each in caplog.records if "could not be created" in each.getMessage()]
    assert [each.fields["topic"] for each in written] == ["wanted-0"]  # type: ignore[attr-defined]
