"""Produce on the wire: from batches to a request, from its answer to one outcome per batch.

The Sender calls both. Which version is spoken depends on what the broker offers, on whether the
topics have ids, and on the transaction. Decides nothing about retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.client.snapshot import Broker
from millstream.errors import NO_ERROR, UnknownServerError, error_for_code
from millstream.protocol.messages import ProduceRequest
from millstream.protocol.messages.produce import PartitionProduceData, TopicProduceData
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.client.metadata import Metadata, MetadataSnapshot
    from millstream.client.producer.config import ProducerConfig
    from millstream.client.producer.partition_state import PartitionState
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.errors import MillstreamError
    from millstream.protocol.messages import ProduceResponse
    from millstream.protocol.messages.produce import PartitionProduceResponse

TOPIC_IDS_FROM: Final = 13
IMPLICIT_TRANSACTIONS_FROM: Final = 12
"""From this version on the leader itself adds a partition to the transaction (KIP-890)."""
ZSTD_FROM: Final = 7
_FLEXIBLE_FROM: Final = 9
_END_BYTES: Final = 4
"""How a request ends whose only topic has no partitions: with their number, as 32 bits."""
_FLEXIBLE_END_BYTES: Final = 3
"""The same with tagged fields: their number in one byte, no tags of the topic, none at all."""


class Sent(NamedTuple):
    """A batch on its way."""

    state: PartitionState
    batch: ProducerBatch


class Produced(NamedTuple):
    """A batch that a broker has, and where."""

    state: PartitionState
    batch: ProducerBatch
    base_offset: int
    log_append_time: int


class Outcome(NamedTuple):
    """What a broker said of one batch."""

    error: MillstreamError | None
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Mapping[int, str] | None = None


def choose_version(
    offered: int, topics: Mapping[str, Uuid], *, is_transactional: bool, is_implicit: bool
) -> int:
    """The newest version that can be used with these topics and in this transaction."""
    version = offered
    if any(topic_id == Uuid.ZERO for topic_id in topics.values()):
        version = min(version, TOPIC_IDS_FROM - 1)
    if is_transactional and not is_implicit:
        version = min(version, IMPLICIT_TRANSACTIONS_FROM - 1)
    return version


def topic_ids(names: Iterable[str], snapshot: MetadataSnapshot) -> dict[str, Uuid]:
    """Topics with their ids, the zero id where there is none."""
    return {
        name: snapshot.topics[name].topic_id if name in snapshot.topics else Uuid.ZERO
        for name in names
    }


def build_request(
    batches: Sequence[Sent],
    topics: Mapping[str, Uuid],
    config: ProducerConfig,
) -> ProduceRequest:
    """One request for batches of different partitions."""
    by_topic: dict[str, TopicProduceData] = {}
    for state, batch in batches:
        data = by_topic.get(state.wire_topic)
        if data is None:
            name = state.wire_topic
            data = TopicProduceData(name=name, topic_id=topics[name], partition_data=[])
            by_topic[name] = data
        data.partition_data.append(
            PartitionProduceData(index=state.partition, records=batch.records)
        )
    return ProduceRequest(
        transactional_id=config.wire_transactional_id,
        acks=config.required_acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=list(by_topic.values()),
    )


def request_head(
    topic: str, topics: Mapping[str, Uuid], config: ProducerConfig, version: int
) -> bytes:
    """How the body of a request for one topic begins; the number of its partitions comes next."""
    data = TopicProduceData(name=topic, topic_id=topics[topic], partition_data=[])
    body = ProduceRequest(
        transactional_id=config.wire_transactional_id,
        acks=config.required_acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=[data],
    ).encode(version)
    return body[: -_FLEXIBLE_END_BYTES if version >= _FLEXIBLE_FROM else -_END_BYTES]


def read_outcomes(
    batches: Sequence[Sent], topics: Mapping[str, Uuid], answer: ProduceResponse
) -> list[Outcome]:
    """What the answer says of each batch, in their order."""
    names = {topic_id: name for name, topic_id in topics.items()}
    found = {
        (each.name or names.get(each.topic_id, ""), partition.index): partition
        for each in answer.responses
        for partition in each.partition_responses
    }
    return [_outcome(found.get((state.wire_topic, state.partition)), state) for state, _ in batches]


def _outcome(told: PartitionProduceResponse | None, state: PartitionState) -> Outcome:
    if told is None:
        return Outcome(UnknownServerError(f"the broker's answer says nothing of {state}"))
    error: MillstreamError | None = None
    if told.error_code != NO_ERROR:
        plain = error_for_code(told.error_code)
        text = told.error_message or str(plain)
        error = type(plain)(f"{state.topic}-{state.partition}: {text}")
    return Outcome(
        error,
        told.base_offset,
        told.log_append_time_ms,
        told.log_start_offset,
        {each.batch_index: each.batch_index_error_message or "" for each in told.record_errors},
    )


def learn_leaders(
    topics: Mapping[str, Uuid],
    answer: ProduceResponse,
    metadata: Metadata,
    now_ms: int,
) -> None:
    """Take what the answer says of new leaders (KIP-951)."""
    names = {topic_id: name for name, topic_id in topics.items()}
    endpoints = {
        each.node_id: Broker(each.node_id, each.host, each.port, each.rack)
        for each in answer.node_endpoints
    }
    for topic in answer.responses:
        for told in topic.partition_responses:
            leader = told.current_leader
            if told.error_code != NO_ERROR and leader is not None and leader.leader_id >= 0:
                metadata.learn_leader(
                    topic.name or names.get(topic.topic_id, ""),
                    told.index,
                    leader.leader_id,
                    leader.leader_epoch,
                    endpoints.get(leader.leader_id),
                    now_ms,
                )
