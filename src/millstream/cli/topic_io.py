"""A topic's partitions through a `Session`: produce, find offsets.

`produce` and `offsets` use it. Delivery is at least once: what is retried after
a lost answer may be there twice.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import error_for_code
from millstream.protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from millstream.protocol.messages.produce import PartitionProduceData, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.cli.cluster_view import TopicView
    from millstream.cli.session import BrokerConnection, Session
    from millstream.types import ReadableBuffer

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
_CONSUMER: Final = -1


class Acks(IntEnum):
    """Who must have a batch before it counts as written."""

    ALL = -1
    NONE = 0
    LEADER = 1


class FoundOffset(NamedTuple):
    """The answer to a question for an offset; -1 if there is none."""

    offset: int
    timestamp: int


def produce_request(
    topic: TopicView, partition: int, batch: ReadableBuffer, acks: Acks, timeout_ms: int
) -> ProduceRequest:
    """The request for one batch."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )


def check_produced(response: ProduceResponse) -> int:
    """The offset of the first record; raises what the broker said if it refused."""
    result = response.responses[0].partition_responses[0]
    if result.error_code:
        raise error_for_code(result.error_code, result.error_message)
    return result.base_offset


def produce_batch(
    session: Session, topic: str, partition: int, batch: ReadableBuffer, acks: Acks
) -> int:
    """Append a batch; the offset of its first record, -1 if nobody was asked for it."""

    def ask(connection: BrokerConnection) -> int:
        request = produce_request(session.topic(topic), partition, batch, acks, session.timeout_ms)
        if acks is Acks.NONE:
            connection.send(request, session.timeout_ms)
            return -1
        return check_produced(connection.call(request, ProduceResponse, session.timeout_ms))

    return session.call_leader(topic, partition, ask)


def list_offsets(
    session: Session, topic: str, partitions: Iterable[int], timestamp: int
) -> dict[int, FoundOffset]:
    """For each partition the first offset at or after a time, or one of its ends."""
    return session.retrying(lambda: _list_offsets(session, topic, list(partitions), timestamp))


def _list_offsets(
    session: Session, topic: str, partitions: list[int], timestamp: int
) -> dict[int, FoundOffset]:
    found = {}
    for connection, indexes in _by_leader(session, topic, partitions).items():
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=each, timestamp=timestamp)
                        for each in indexes
                    ],
                )
            ],
            timeout_ms=session.timeout_ms,
        )
        response = connection.call(request, ListOffsetsResponse, session.timeout_ms)
        for result in response.topics[0].partitions:
            if result.error_code:
                raise error_for_code(result.error_code)
            found[result.partition_index] = FoundOffset(result.offset, result.timestamp)
    return dict(sorted(found.items()))


def _by_leader(
    session: Session, topic: str, partitions: Iterable[int]
) -> dict[BrokerConnection, list[int]]:
    grouped: dict[BrokerConnection, list[int]] = defaultdict(list)
    for each in partitions:
        grouped[session.leader(topic, each)].append(each)
    return grouped
