"""The embedded broker answers as `server start` does: by the fast path, unless faults forbid it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream import _accel
from millstream.protocol.messages import FetchRequest, fetch
from millstream.types import Uuid
from tests.integration.node.harness import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing import EmbeddedBroker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not _accel.COMPILED, reason="the compiled kernel is not built (make build)"),
]

NOT_LEADER = 6


class FetchSession:
    """A session about the first partition of one topic, on one connection."""

    def __init__(self, wire: Client, topic: str) -> None:
        self._wire = wire
        self._topic_id = Uuid(wire.topics()[topic][0])
        self._session_id = self._epoch = 0

    def fetch(self, offset: int) -> tuple[int, bool]:
        """Error code, and whether records came."""
        partition = fetch.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=1000,
            min_bytes=0,
            max_bytes=1 << 20,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[fetch.FetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        response = self._wire.ask(request, 16, fetch.FetchResponse)
        self._session_id, self._epoch = response.session_id, self._epoch + 1
        if response.error_code:
            return response.error_code, False
        data = response.responses[0].partitions[0]
        return data.error_code, bool(data.records)


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as connected:
        yield connected


def answered(broker: EmbeddedBroker) -> int:
    """How many requests the fast path has answered so far."""
    sockets = broker._running().sockets
    assert sockets is not None
    selector = sockets.processor.selector
    assert selector is not None
    return selector.answered


def test_ordinary_requests_take_the_fast_path(
    broker: EmbeddedBroker, topic: str, wire: Client
) -> None:
    session = FetchSession(wire, topic)
    wire.produce(topic, b"first")  # The partition's log is opened by the full path.
    session.fetch(0)
    before = answered(broker)

    assert [wire.produce(topic, b"x")[0] for _ in range(3)] == [0, 0, 0]
    assert answered(broker) == before + 3
    assert [session.fetch(offset) for offset in (1, 2)] == [(0, True)] * 2
    assert answered(broker) == before + 5


def test_a_fault_makes_its_own_api_decline_from_the_next_request_on(
    broker: EmbeddedBroker, topic: str, wire: Client
) -> None:
    session = FetchSession(wire, topic)
    wire.produce(topic, b"first")
    session.fetch(0)
    wire.produce(topic, b"second")
    before = answered(broker)

    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
    assert session.fetch(0) == (0, True)
    assert answered(broker) == before + 1
    assert wire.produce(topic, b"refused")[0] == NOT_LEADER
    assert wire.produce(topic, b"third") == (0, 2)
    assert answered(broker) == before + 2

    broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER")
    assert wire.produce(topic, b"fourth") == (0, 3)
    assert session.fetch(1)[0] == NOT_LEADER
    assert answered(broker) == before + 3


def test_a_fault_planned_while_the_broker_is_stopped_awaits_it(
    broker: EmbeddedBroker, topic: str
) -> None:
    broker.stop()
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    broker.start()

    with Client(broker.bootstrap_servers) as wire:
        assert [wire.produce(topic, b"x")[0] for _ in range(3)] == [NOT_LEADER, NOT_LEADER, 0]


def test_within_a_block_of_unavailability_nothing_is_answered(
    broker: EmbeddedBroker, topic: str, wire: Client
) -> None:
    wire.produce(topic, b"first")
    with (
        broker.faults.unavailable(),
        Client(broker.bootstrap_servers) as refused,
        pytest.raises(ConnectionError),
    ):
        refused.produce(topic, b"second")
    with Client(broker.bootstrap_servers) as again:
        assert again.produce(topic, b"third") == (0, 1)
