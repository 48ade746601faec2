"""A topic's partitions through a `Session`: produce, fetch, find offsets.

`produce`, `offsets` and `TopicReader` use it. Delivery is at least once: what is retried after
a lost answer may be there twice.
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import NO_ERROR, OffsetOutOfRange, error_for_code
from millstream.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.protocol.messages.fetch import FetchPartition, FetchTopic
from millstream.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from millstream.protocol.messages.produce import PartitionProduceData, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from millstream.cli.cluster_view import TopicView
    from millstream.cli.message_session import BrokerConnection, Session
    from millstream.types import ReadableBuffer

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
FETCH_BYTES: Final = 50 * 1024 * 1024
PARTITION_FETCH_BYTES: Final = 1024 * 1024
_CONSUMER: Final = -1


class Isolation(IntEnum):
    """What a reader sees of transactions, by Kafka's numbers."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Acks(IntEnum):
    """Who must have a batch before it counts as written."""

    ALL = -1
    NONE = 0
    LEADER = 1


class FoundOffset(NamedTuple):
    """The answer to a question for an offset; -1 if there is none."""

    offset: int
    timestamp: int


class AbortedFrom(NamedTuple):
    """A producer whose records from an offset to its next abort marker do not count."""

    first_offset: int
    producer_id: int


class Fetched(NamedTuple):
    """What a fetch brought for one partition; `records` views the response's bytes."""

    partition: int
    log_start_offset: int
    is_out_of_range: bool
    aborted: tuple[AbortedFrom, ...]
    records: ReadableBuffer


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
    session: Session,
    topic: str,
    partitions: Iterable[int],
    timestamp: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[int, FoundOffset]:
    """For each partition the first offset at or after a time, or one of its ends."""
    wanted = list(partitions)
    return session.retrying(lambda: _list_offsets(session, topic, wanted, timestamp, isolation))


def _list_offsets(
    session: Session, topic: str, partitions: list[int], timestamp: int, isolation: Isolation
) -> dict[int, FoundOffset]:
    found = {}
    for connection, indexes in _by_leader(session, topic, partitions).items():
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=isolation,
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


def fetch(
    session: Session,
    topic: str,
    positions: Mapping[int, int],
    *,
    wait_ms: int,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> list[Fetched]:
    """One round of fetches, from all the leaders of these partitions at the same time."""
    return session.retrying(lambda: _fetch(session, topic, positions, wait_ms, isolation))


def _fetch(
    session: Session, topic: str, positions: Mapping[int, int], wait_ms: int, isolation: Isolation
) -> list[Fetched]:
    topic_id = session.topic(topic).topic_id
    sent = []
    for connection, indexes in _by_leader(session, topic, positions).items():
        partitions = [
            FetchPartition(
                partition=each,
                fetch_offset=positions[each],
                partition_max_bytes=PARTITION_FETCH_BYTES,
            )
            for each in indexes
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)],
        )
        sent.append((connection, connection.send(request, session.timeout_ms)))
    fetched: list[Fetched] = []
    for connection, request_sent in sent:
        timeout_ms = session.timeout_ms + wait_ms
        fetched += _fetched(connection.receive(request_sent, FetchResponse, timeout_ms))
    return fetched


def _fetched(response: FetchResponse) -> Iterator[Fetched]:
    if response.error_code:
        raise error_for_code(response.error_code)
    for topic in response.responses:
        for each in topic.partitions:
            if each.error_code not in (NO_ERROR, OffsetOutOfRange.code):
                raise error_for_code(each.error_code)
            yield Fetched(
                each.partition_index,
                each.log_start_offset,
                each.error_code == OffsetOutOfRange.code,
                tuple(
                    AbortedFrom(aborted.first_offset, aborted.producer_id)
                    for aborted in each.aborted_transactions or ()
                ),
                each.records or b"",
            )


def _by_leader(
    session: Session, topic: str, partitions: Iterable[int]
) -> dict[BrokerConnection, list[int]]:
    grouped: dict[BrokerConnection, list[int]] = defaultdict(list)
    for each in partitions:
        grouped[session.leader(topic, each)].append(each)
    return grouped
