"""A follower fetches over the wire: acks=all is answered when it has asked for what follows."""

from __future__ import annotations

import re
import select
from typing import TYPE_CHECKING

import pytest

from millstream.metadata.features import FEATURES
from millstream.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
    broker_registration,
    create_topics,
    fetch,
    metadata,
    produce,
)
from millstream.types import Uuid
from tests.integration.node.harness import Client
from tests.unit.storage.client_batches import batch
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.faults.harness import Broker

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

FOLLOWER = 2


class Follower:
    """A broker that has no logs: it registers, stays alive and fetches."""

    def __init__(self, broker: Broker) -> None:
        found = re.search(r"CONTROLLER://([^ ,]+)", broker.said("ready")[0])
        assert found is not None
        self._controller = Client(found[1])
        self._leader = Client(broker.address)
        listener = broker_registration.Listener(name="PLAINTEXT", host="localhost", port=9)
        features = [
            broker_registration.Feature(
                name=name,
                min_supported_version=feature.supported.lowest,
                max_supported_version=feature.supported.highest,
            )
            for name, feature in FEATURES.items()
        ]
        registered = self._controller.ask(
            BrokerRegistrationRequest(
                broker_id=FOLLOWER,
                cluster_id=self._leader.cluster_id() or "",
                incarnation_id=Uuid(b"a follower......"),
                listeners=[listener],
                features=features,
                log_dirs=[Uuid(b"its directory...")],
            ),
            4,
            BrokerRegistrationResponse,
        )
        assert registered.error_code == 0
        self.epoch = registered.broker_epoch
        until(self._is_unfenced)

    def _is_unfenced(self) -> bool:
        beat = BrokerHeartbeatRequest(
            broker_id=FOLLOWER, broker_epoch=self.epoch, current_metadata_offset=self.epoch
        )
        return not self._controller.ask(beat, 1, BrokerHeartbeatResponse).is_fenced

    def fetch(self, topic_id: Uuid, offset: int, min_bytes: int = 0) -> int:
        """Fetch from an offset on, which acknowledges what is before it; the bytes that came."""
        partition = fetch.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=0
        )
        request = FetchRequest(
            replica_state=fetch.ReplicaState(replica_id=FOLLOWER, replica_epoch=self.epoch),
            max_wait_ms=20_000 if min_bytes else 0,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        response = self._leader.ask(request, 17, fetch.FetchResponse)
        data = response.responses[0].partitions[0]
        assert data.error_code == 0
        return len(data.records or b"")

    def close(self) -> None:
        self._controller.socket.close()
        self._leader.socket.close()


@pytest.fixture
def follower(broker: Broker) -> Iterator[Follower]:
    made = Follower(broker)
    yield made
    made.close()


def make_topic(client: Client, name: str) -> Uuid:
    """A topic of one partition, led by the broker under test and followed by the other."""
    assignment = create_topics.CreatableReplicaAssignment(
        partition_index=0, broker_ids=[leader_id(client), FOLLOWER]
    )
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    answer = client.ask(
        CreateTopicsRequest(topics=[topic], timeout_ms=10_000),
        7,
        create_topics.CreateTopicsResponse,
    ).topics[0]
    assert answer.error_code == 0, answer.error_message
    return answer.topic_id


def leader_id(client: Client) -> int:
    answer = client.ask(MetadataRequest(topics=[]), 12, metadata.MetadataResponse)
    (leader,) = [each.node_id for each in answer.brokers if each.node_id != FOLLOWER]
    return leader


def request(topic: str, acks: int) -> ProduceRequest:
    part = produce.PartitionProduceData(index=0, records=bytes(batch()))
    data = produce.TopicProduceData(name=topic, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[data])


def is_answered(client: Client) -> bool:
    return bool(select.select([client.socket], [], [], 0)[0])


def test_an_answer_waits_until_the_follower_has_the_records(
    broker: Broker, follower: Follower
) -> None:
    with Client(broker.address) as client:
        topic_id = make_topic(client, "followed")
        client.ask(request("followed", 1), 9, produce.ProduceResponse)
        follower.fetch(topic_id, 0)
        # Its records are three each; by the full path first, then by the fast one.
        for end in (3, 6):
            client.send(request("followed", -1), 9)
            assert follower.fetch(topic_id, end, min_bytes=1) > 0
            assert not is_answered(client)
            assert follower.fetch(topic_id, end + 3) == 0
            answer = client.read_answer(ProduceRequest, 9, produce.ProduceResponse)
            part = answer.responses[0].partition_responses[0]
            assert (part.error_code, part.base_offset) == (0, end)
