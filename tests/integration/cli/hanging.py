"""A transaction that nobody will end, in a broker that does not verify what producers claim."""

from __future__ import annotations

from millstream.clock import SystemClock
from millstream.protocol.messages import (
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from millstream.protocol.messages.find_coordinator import FindCoordinatorResponse
from millstream.protocol.messages.init_producer_id import InitProducerIdResponse
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records import RecordBatchBuilder
from tests.integration.node.harness import Client

UNVERIFIED = "transaction.partition.verification.enable=false"
_PRODUCE = 11
"""The newest version with which a partition does not join a transaction by itself."""
_SECONDS_MAX = 60


def leave_hanging(address: str, topic: str, partition: int, *, age_ms: int) -> int:
    """Write one transactional record of some age without telling the coordinator; its producer."""
    with Client(address) as client:
        producer_id, epoch = _new_producer(client, f"ghost-{topic}-{partition}")
        builder = RecordBatchBuilder()
        builder.append(SystemClock().wall_ms() - age_ms, None, b"undecided")
        batch = builder.build(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
        )
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=f"ghost-{topic}-{partition}",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        response = client.ask(request, _PRODUCE, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == 0
    return producer_id


def _new_producer(client: Client, transactional_id: str) -> tuple[int, int]:
    """Its id and epoch; the coordinator's topic may have to be made first."""
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + 1000 * _SECONDS_MAX
    while clock.monotonic_ms() < deadline_ms:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        client.ask(find, 4, FindCoordinatorResponse)
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
        answer = client.ask(init, 4, InitProducerIdResponse)
        if not answer.error_code:
            return answer.producer_id, answer.producer_epoch
    raise AssertionError(f"no producer id for {transactional_id}")
