"""Offset commits and transactions of `benchmarks.coordinator`: known in full before they are sent.

What a coordinator must answer follows from what it is asked, so requests and answers are written
down beforehand and `loadgen/script.c` compares every byte. Afterwards the broker is asked whether
its offsets and logs say the same.
"""

from __future__ import annotations

import itertools
import struct
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.load import cpu_seconds, run_program
from millstream.clock import SystemClock
from millstream.errors import ConcurrentTransactions
from millstream.protocol.frame import encode_request, encode_response
from millstream.protocol.messages import (
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    ProduceRequest,
    ProduceResponse,
    find_coordinator,
    init_producer_id,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
)
from millstream.protocol.messages.end_txn import EndTxnResponse
from millstream.records import RecordBatchBuilder
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.broker_processes import BrokerProcess
    from benchmarks.broker_rows import Effort, Figures

    Script = list[tuple[bytes, bytes, bytes]]
    """Requests with their answers, and with those after which a client would try again."""

GROUP, TRANSACTION = 0, 1
COMMITS = 64
"""How many different commits a connection makes before it begins again."""
TRANSACTIONS_MAX = 12_000
"""In a round, of all producers; none may come near the end of its epochs."""
RECORD_BYTES = 100
READ_COMMITTED = 1
WAIT_SECONDS_MAX = 30
_PAUSE_SECONDS = 0.02
_PRODUCE, _END_TXN, _COMMIT = 13, 5, 10
_NEVER = bytes(4)
_names = itertools.count()


def play(
    broker: BrokerProcess, scripts: list[Script], window: int, unit: int, seconds: float
) -> tuple[dict[str, Any], float]:
    """Run scripts, one for each connection: what the generator reports, the broker's CPU time."""
    with tempfile.NamedTemporaryFile(prefix="millstream-script-") as file:
        file.write(struct.pack(">I", len(scripts)))
        for script in scripts:
            file.write(struct.pack(">I", len(script)))
            file.writelines(itertools.chain.from_iterable(script))
        file.flush()
        before = cpu_seconds(broker.pid)
        report = run_program("script", broker.port, file.name, window, unit, seconds)
        return report, cpu_seconds(broker.pid) - before


def await_coordinator(broker: BrokerProcess, kind: int, keys: list[str]) -> None:
    """Until the internal topic is there and led."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
    for _ in attempts(f"{broker.name}: no coordinator"):
        with broker.client() as client:
            answer = client.ask(request, 4, find_coordinator.FindCoordinatorResponse)
        if not any(each.error_code for each in answer.coordinators):
            return


def attempts(complaint: str) -> Iterable[None]:
    """Turns to try something in, with pauses between them; the program ends if they run out."""
    deadline = time.perf_counter() + WAIT_SECONDS_MAX
    while time.perf_counter() < deadline:
        yield
        time.sleep(_PAUSE_SECONDS)
    sys.exit(complaint)


@dataclass(frozen=True, slots=True)
class CommitRow:
    """Consumers that commit the offset of one partition again and again, a group each."""

    connections: int
    window: int

    @property
    def name(self) -> str:
        """Connections, window."""
        return f"commit-c{self.connections}-w{self.window}"

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        number = next(_names)
        topic = f"commits-{number}"
        groups = [f"group-{number}-{index}" for index in range(self.connections)]
        topic_id = broker.create_topic(topic, 1)
        await_coordinator(broker, GROUP, groups)
        await_groups(broker, groups)
        scripts = [commit_script(group, topic_id) for group in groups]
        play(broker, scripts, self.window, 1, effort.warm_seconds)
        report, used = play(broker, scripts, self.window, 1, effort.seconds)
        expected = [(steps - 1) % COMMITS for steps in report["steps"]]
        found = committed_offsets(broker, groups, topic_id)
        assert found == expected, f"{broker.name}: offsets {found}, not {expected}"
        broker.delete_topic(topic)
        return {
            "requests_per_second": report["requests"] / report["seconds"],
            "cpu_us": used / report["requests"] * 1e6,
            "p50_us": report["p50_us"],
            "p99_us": report["p99_us"],
            "client_busy": report["cpu_seconds"] / report["seconds"],
        }


def commit_script(group: str, topic_id: bytes) -> Script:
    """Commits of a consumer that assigns itself its partition."""
    answered = OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                topic_id=Uuid(topic_id),
                partitions=[offset_commit.OffsetCommitResponsePartition(partition_index=0)],
            )
        ]
    )
    answer = encode_response(answered, _COMMIT, 0)
    script = []
    for offset in range(COMMITS):
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = offset_commit.OffsetCommitRequestTopic(
            topic_id=Uuid(topic_id), partitions=[partition]
        )
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        script.append((encode_request(request, _COMMIT, 0, "bench"), answer, _NEVER))
    return script


def await_groups(broker: BrokerProcess, groups: list[str]) -> None:
    """Until the coordinator of each group has loaded its partition."""
    request = OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=each) for each in groups]
    )
    for _ in attempts(f"{broker.name}: the coordinator does not load"):
        with broker.client() as client:
            answer = client.ask(request, 10, offset_fetch.OffsetFetchResponse)
        if not any(each.error_code for each in answer.groups):
            return


def committed_offsets(broker: BrokerProcess, groups: list[str], topic_id: bytes) -> list[int]:
    """What each group has committed."""
    topic = offset_fetch.OffsetFetchRequestTopics(topic_id=Uuid(topic_id), partition_indexes=[0])
    asked = [offset_fetch.OffsetFetchRequestGroup(group_id=each, topics=[topic]) for each in groups]
    with broker.client() as client:
        answer = client.ask(OffsetFetchRequest(groups=asked), 10, offset_fetch.OffsetFetchResponse)
    found = {each.group_id: each.topics[0].partitions[0].committed_offset for each in answer.groups}
    return [found[each] for each in groups]


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """Producers that commit a transaction of one small record after another (KIP-890)."""

    producers: int

    @property
    def name(self) -> str:
        """Producers."""
        return f"transaction-p{self.producers}"

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        number = next(_names)
        topic = f"transactions-{number}"
        topic_id = broker.create_topic(topic, self.producers)
        ids = [f"producer-{number}-{index}" for index in range(self.producers)]
        await_coordinator(broker, TRANSACTION, ids)
        scripts = [
            transaction_script(broker, each, topic_id, index, TRANSACTIONS_MAX // self.producers)
            for index, each in enumerate(ids)
        ]
        report, used = play(broker, scripts, 1, 2, effort.seconds)
        self._check(broker, topic, report["steps"])
        broker.delete_topic(topic)
        transactions = report["requests"] / 2
        return {
            "transactions_per_second": transactions / report["seconds"],
            "cpu_us": used / transactions * 1e6,
            "client_busy": report["cpu_seconds"] / report["seconds"],
        }

    def _check(self, broker: BrokerProcess, topic: str, steps: list[int]) -> None:
        """Every record and every marker is there, and nothing is open; markers may come late."""
        found: list[int] = []
        for _ in attempts(f"{broker.name}: not {steps} records and markers, but {found}"):
            found[:] = stable_offsets(broker, topic, self.producers)
            if found == steps:
                return


def transaction_script(
    broker: BrokerProcess, transactional_id: str, topic_id: bytes, partition: int, count: int
) -> Script:
    """A new producer's transactions. Each begins a new epoch, so each batch is the first of one."""
    producer_id, first_epoch = init_producer(broker, transactional_id)
    builder, now_ms = RecordBatchBuilder(), SystemClock().wall_ms()
    builder.append(now_ms, None, bytes(RECORD_BYTES))
    # The transaction before is still being ended, for longer than the broker cares to wait.
    busy = produce.PartitionProduceResponse(
        index=partition,
        error_code=ConcurrentTransactions.code,
        base_offset=-1,
        log_start_offset=-1,
    )
    not_yet = produced(topic_id, busy)
    script = []
    for number in range(count):
        epoch = first_epoch + number
        batch = builder.build(
            producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
        )
        data = produce.PartitionProduceData(index=partition, records=batch)
        topic = produce.TopicProduceData(topic_id=Uuid(topic_id), partition_data=[data])
        sent = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic]
        )
        written = produce.PartitionProduceResponse(
            index=partition, base_offset=2 * number, log_start_offset=0
        )
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        ended = EndTxnResponse(producer_id=producer_id, producer_epoch=epoch + 1)
        script += [
            (encode_request(sent, _PRODUCE, 0, "bench"), produced(topic_id, written), not_yet),
            (
                encode_request(end, _END_TXN, 0, "bench"),
                encode_response(ended, _END_TXN, 0),
                _NEVER,
            ),
        ]
    return script


def produced(topic_id: bytes, outcome: produce.PartitionProduceResponse) -> bytes:
    """The answer to a Produce request for one partition."""
    topic = produce.TopicProduceResponse(topic_id=Uuid(topic_id), partition_responses=[outcome])
    return encode_response(ProduceResponse(responses=[topic]), _PRODUCE, 0)


def init_producer(broker: BrokerProcess, transactional_id: str) -> tuple[int, int]:
    """The id and epoch of a new producer."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    for _ in attempts(f"{broker.name}: no producer id"):
        with broker.client() as client:
            answer = client.ask(request, 5, init_producer_id.InitProducerIdResponse)
        if not answer.error_code:
            break
    return answer.producer_id, answer.producer_epoch


def stable_offsets(broker: BrokerProcess, topic: str, partitions: int) -> list[int]:
    """Where each partition ends for who reads only what is committed."""
    asked = [
        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1)
        for index in range(partitions)
    ]
    request = ListOffsetsRequest(
        isolation_level=READ_COMMITTED,
        topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=asked)],
    )
    with broker.client() as client:
        answer = client.ask(request, 7, list_offsets.ListOffsetsResponse)
    found = {each.partition_index: each.offset for each in answer.topics[0].partitions}
    return [found[index] for index in range(partitions)]
