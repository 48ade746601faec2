"""A writer whose acknowledged records must never be lost, changed or doubled.

Its topic has a replica on every broker and is acknowledged from disk: neither kills nor losses of
power, of all machines at once, may take a record that was acknowledged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.errors import NO_ERROR, MillstreamError
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records import RecordBatchBuilder, split_batches
from millstream.testing.simulation.client import SimClient
from millstream.testing.simulation.clock import EPOCH_MS

if TYPE_CHECKING:
    from random import Random

    from millstream.protocol.message import Message
    from millstream.testing.simulation import SimCluster
    from tests.simulation.cluster.history import History

TOPIC: Final = "ledger"
PARTITIONS: Final = 2
_TIMEOUT_MS: Final = 3000
_READ_BYTES: Final = 1 << 24


class Writer:
    """Writes numbered records, one after the other to each partition."""

    def __init__(self, cluster: SimCluster, history: History, random: Random) -> None:
        self._cluster = cluster
        self._history = history
        self._random = random
        self._client = SimClient(cluster.world, "writer")
        self._written = 0
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """By partition and offset."""

    def step(self) -> None:
        """Write a record, or make the topic if it is not there."""
        topic = self._history.newest.topics.by_name.get(TOPIC)
        if topic is None:
            self._create()
            return
        index = self._random.randrange(PARTITIONS)
        leader_id = topic.partitions[index].leader
        if leader_id < 0:
            return
        self._written += 1
        value = f"record {self._written}".encode()
        builder = RecordBatchBuilder()
        builder.append(EPOCH_MS + self._cluster.world.now_ms, None, value)
        data = PartitionProduceData(index=index, records=builder.build())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=TOPIC, topic_id=topic.id, partition_data=[data])],
        )
        answered = partial(self._answered, index, value)
        self._client.send(
            leader_id, request, lambda result, now_ms: answered(result), timeout_ms=_TIMEOUT_MS
        )

    def _create(self) -> None:
        settings = {"millstream.durability": "disk", "min.insync.replicas": "2"}
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=len(self._cluster.broker_ids),
            configs=[CreatableTopicConfig(name=key, value=settings[key]) for key in settings],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
        node_id = self._random.choice(self._cluster.broker_ids)
        self._client.send(node_id, request, lambda result, now_ms: None, timeout_ms=_TIMEOUT_MS)

    def _answered(self, index: int, value: bytes, result: Message | MillstreamError) -> None:
        if not isinstance(result, ProduceResponse):
            return
        answer = result.responses[0].partition_responses[0]
        if answer.error_code == NO_ERROR:
            place = index, answer.base_offset
            known = self.acknowledged.setdefault(place, value)
            assert known == value, f"{known!r} and {value!r} were both acknowledged at {place}"

    # The end.

    def is_whole(self) -> bool:
        """Whether every replica is in sync and has everything."""
        topic = self._history.newest.topics.by_name.get(TOPIC)
        if topic is None:
            return True
        return all(
            len(each.isr) == len(self._cluster.broker_ids) for each in topic.partitions.values()
        )

    def check(self) -> None:
        """Every acknowledged record is where it was acknowledged, on every replica."""
        if TOPIC not in self._history.newest.topics.by_name:
            assert not self.acknowledged
            return
        for index in range(PARTITIONS):
            contents = {
                broker_id: self._read(broker_id, index) for broker_id in self._cluster.broker_ids
            }
            first = contents[self._cluster.broker_ids[0]]
            for broker_id, content in contents.items():
                assert content == first, f"{TOPIC}-{index} differs on broker {broker_id}"
            values = _values(first)
            for (partition, offset), value in self.acknowledged.items():
                if partition == index:
                    found = values.get(offset)
                    problem = (
                        f"{value!r} was acknowledged at {offset} of {TOPIC}-{index}: {found!r}"
                    )
                    assert found == value, problem

    def _read(self, broker_id: int, index: int) -> bytes:
        broker = self._cluster.node(broker_id).broker
        assert broker is not None
        log = broker.replicas.partition(TOPIC, index).log
        records = log.read(log.log_start_offset, _READ_BYTES).records
        return b"" if records is None else records.read()


def _values(data: bytes) -> dict[int, bytes | None]:
    found: dict[int, bytes | None] = {}
    for batch in split_batches(data):
        for record in batch.records():
            found[record.offset] = record.value
    return found
