"""What does a message cost? Encode and decode of typical messages, beside kio.

`python -m benchmarks.protocol [--quick] [--json]`: CPU microseconds per message, both sides on the
same bytes, interleaved, best of several rounds. The last line is one JSON object: name to
{ours, peer, ratio}, where ratio above 1 means that we are faster.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from millstream.protocol.api import ApiKey, advertised
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from millstream.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message

TOPIC_ID = Uuid(bytes(range(16)))
ROUNDS, QUICK_ROUNDS = 15, 5
ROUND_SECONDS, QUICK_ROUND_SECONDS = 0.02, 0.005


class Case(NamedTuple):
    """A message as it is often seen."""

    name: str
    message: Message
    version: int
    is_request: bool


def cases() -> list[Case]:
    """The messages that a broker sees all day, and two large ones."""
    batch = bytes(1024)
    return [
        Case("produce_request_v11", _produce_request(batch), 11, True),
        Case("produce_response_v11", _produce_response(), 11, False),
        Case("fetch_request_v16_10_partitions", _fetch_request(), 16, True),
        Case("fetch_response_v16_10_partitions", _fetch_response(batch), 16, False),
        Case("fetch_response_v11_10_partitions", _fetch_response(batch), 11, False),
        Case("metadata_response_v12_50x6", _metadata_response(), 12, False),
        Case("api_versions_response_v4", _api_versions_response(), 4, False),
    ]


def _produce_request(batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=3, records=batch)]
    topic = TopicProduceData(name="orders", partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def _produce_response() -> ProduceResponse:
    answers = [PartitionProduceResponse(index=3, base_offset=1_000_000)]
    topic = TopicProduceResponse(name="orders", partition_responses=answers)
    return ProduceResponse(responses=[topic])


def _fetch_request() -> FetchRequest:
    partitions = [
        FetchPartition(partition=i, fetch_offset=i * 1000, partition_max_bytes=1 << 20)
        for i in range(10)
    ]
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=partitions)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def _fetch_response(batch: bytes) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=i,
            high_watermark=i * 1000,
            last_stable_offset=i * 1000,
            log_start_offset=0,
            aborted_transactions=None,
            records=batch,
        )
        for i in range(10)
    ]
    topic = FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=partitions)
    return FetchResponse(responses=[topic])


def _metadata_response() -> MetadataResponse:
    brokers = [
        MetadataResponseBroker(node_id=i, host=f"broker-{i}.example", port=9092, rack="a")
        for i in range(3)
    ]
    partitions = [
        MetadataResponsePartition(
            partition_index=i, leader_id=i % 3, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for i in range(6)
    ]
    topics = [
        MetadataResponseTopic(name=f"topic-{i}", topic_id=TOPIC_ID, partitions=partitions)
        for i in range(50)
    ]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)


def _api_versions_response() -> ApiVersionsResponse:
    keys = [
        ApiVersion(api_key=api, min_version=span.lowest, max_version=span.highest)
        for api, span in advertised("broker").items()
    ]
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name="metadata.version", min_version=7, max_version=30)
        ],
        finalized_features_epoch=1234,
        finalized_features=[
            FinalizedFeatureKey(name="metadata.version", max_version_level=30, min_version_level=30)
        ],
    )


def _kio_class(case: Case) -> Any:
    key = ApiKey(case.message.KEY)
    load = load_request_schema if case.is_request else load_response_schema
    return load(int(key), case.version)


def measure(case: Case, rounds: int, seconds: float) -> dict[str, tuple[float, float]]:
    """(ours, peer) in CPU microseconds, for encode and decode."""
    cls, peer = type(case.message), _kio_class(case)
    encoded = case.message.encode(case.version)
    read, write = entity_reader(peer), entity_writer(peer)
    theirs = read(encoded, 0)[0]

    def peer_encode() -> bytes:
        out = io.BytesIO()
        write(out, theirs)
        return out.getvalue()

    assert peer_encode() == encoded
    return {
        "encode": _interleaved(
            lambda: case.message.encode(case.version), peer_encode, rounds, seconds
        ),
        "decode": _interleaved(
            lambda: cls.decode(encoded, case.version), lambda: read(encoded, 0), rounds, seconds
        ),
    }


def _interleaved(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int, seconds: float
) -> tuple[float, float]:
    counts = [_calls_in(each, seconds) for each in (ours, peer)]
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for index, function in enumerate((ours, peer)):
            best[index] = min(best[index], _time(function, counts[index]))
    return best[0] * 1e6, best[1] * 1e6


def _calls_in(function: Callable[[], object], seconds: float) -> int:
    function()
    return max(1, int(seconds / max(1e-7, _time(function, 3))))


def _time(function: Callable[[], object], calls: int) -> float:
    start = time.process_time_ns()
    for _ in range(calls):
        function()
    return (time.process_time_ns() - start) / calls / 1e9


def main() -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.protocol", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--json", action="store_true", help="only the last line")
    arguments = parser.parse_args()
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    seconds = QUICK_ROUND_SECONDS if arguments.quick else ROUND_SECONDS
    results: dict[str, dict[str, float]] = {}
    for case in cases():
        for direction, (ours, peer) in measure(case, rounds, seconds).items():
            name = f"{case.name}_{direction}"
            results[name] = {
                "ours": round(ours, 3),
                "peer": round(peer, 3),
                "ratio": round(peer / ours, 2),
            }
            if not arguments.json:
                print(f"{name:45} {ours:9.2f} us   kio {peer:9.2f} us   {peer / ours:6.2f}x")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
