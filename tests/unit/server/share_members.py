"""Members of share groups, as the handlers of a broker see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
from millstream.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as AcknowledgeBatch,
)
from millstream.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from millstream.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.records import RecordBatch, split_batches
from millstream.types import Uuid
from tests.unit.server.fakes import Call, Client
from tests.unit.server.harness import Broker
from tests.unit.server.requests import alter_request
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP = "sharers"
GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

Acks = dict[int, list[tuple[int, int, list[int]]]]
"""By partition: first offset, last offset, types."""


def share_broker(**options: Any) -> Broker:
    """A broker with a topic and a group that reads it from the beginning."""
    broker = Broker(**options)
    broker.create(partitions=2)
    broker.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]))
    configure(broker, ("share.auto.offset.reset", "earliest"))
    return broker


def configure(broker: Broker, *settings: tuple[str, str], group: str = GROUP) -> None:
    """Set dynamic settings of a group."""
    answer = broker.ask(alter_request(GROUP_RESOURCE, group, *settings))
    assert answer.responses[0].error_code == 0, answer.responses[0]


class ShareMember:
    """A member with its connection, its epoch and its share session."""

    def __init__(self, broker: Broker, name: str = "ann", group: str = GROUP) -> None:
        self.broker = broker
        self.name = name
        self.group = group
        self.epoch = 0
        self.session_epoch = 0
        self.connection = Client()

    def beat(self, topics: Sequence[str] | None = None) -> ShareGroupHeartbeatResponse:
        """Report; with topics, say which."""
        response: ShareGroupHeartbeatResponse = self.broker.ask(
            ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.name,
                member_epoch=self.epoch,
                subscribed_topic_names=None if topics is None else list(topics),
            ),
            client=self.connection,
        )
        if response.error_code == 0:
            self.epoch = response.member_epoch
        return response

    def join(self, *topics: str) -> ShareGroupHeartbeatResponse:
        """Join, for the topic `orders` if no other is named."""
        response = self.beat(topics or ("orders",))
        assert response.error_code == 0, response
        return response

    def leave(self) -> None:
        """Leave the group."""
        self.epoch = -1
        self.beat()

    def fetch_request(
        self, *partitions: int, acks: Acks | None = None, **changes: Any
    ) -> ShareFetchRequest:
        """Ask for partitions of `orders`; the first time for both."""
        said = acks or {}
        wanted = list(partitions)
        if not partitions and self.session_epoch == 0:
            wanted = [0, 1]
        topic_id = self.broker.metadata.topic_id("orders") or Uuid.ZERO
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_records": 500,
            "batch_size": 500,
            "topics": [
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in said.get(index, [])
                            ],
                        )
                        for index in sorted({*wanted, *said})
                    ],
                )
            ]
            if wanted or said
            else [],
        }
        return ShareFetchRequest(**(fields | changes))

    def call_fetch(self, *partitions: int, version: int = 2, **changes: Any) -> Call:
        """Ask for records; the answer may come later."""
        call = self.broker.call(
            self.fetch_request(*partitions, **changes), version, client=self.connection
        )
        self.session_epoch += 1
        return call

    def fetch(self, *partitions: int, **changes: Any) -> ShareFetchResponse:
        """Ask for records, and get an answer at once."""
        call = self.call_fetch(*partitions, **changes)
        assert not call.is_pending
        response: ShareFetchResponse = call.response
        return response

    def take(self, *partitions: int, **changes: Any) -> dict[int, list[tuple[int, int, int]]]:
        """The records that come with a fetch: first offset, last offset, delivery count."""
        return acquired(self.fetch(*partitions, **changes))

    def acknowledge(
        self, acks: Acks, *, epoch: int | None = None, **changes: Any
    ) -> ShareAcknowledgeResponse:
        """Say what became of records."""
        response: ShareAcknowledgeResponse = self.broker.ask(
            ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=self.name,
                share_session_epoch=self.session_epoch if epoch is None else epoch,
                topics=[
                    AcknowledgeTopic(
                        topic_id=self.broker.metadata.topic_id("orders") or Uuid.ZERO,
                        partitions=[
                            AcknowledgePartition(
                                partition_index=index,
                                acknowledgement_batches=[
                                    AcknowledgeBatch(
                                        first_offset=first,
                                        last_offset=last,
                                        acknowledge_types=types,
                                    )
                                    for first, last, types in batches
                                ],
                            )
                            for index, batches in acks.items()
                        ],
                    )
                ]
                if acks
                else [],
                **changes,
            ),
            client=self.connection,
        )
        self.session_epoch += 1
        return response

    def forget(self, partition: int) -> list[ForgottenTopic]:
        """For a fetch that is to go on without a partition."""
        topic_id = self.broker.metadata.topic_id("orders") or Uuid.ZERO
        return [ForgottenTopic(topic_id=topic_id, partitions=[partition])]


def acquired(response: ShareFetchResponse) -> dict[int, list[tuple[int, int, int]]]:
    """The records of a response, by partition."""
    assert response.error_code == 0, response
    return {
        partition.partition_index: [
            (each.first_offset, each.last_offset, each.delivery_count)
            for each in partition.acquired_records
        ]
        for topic in response.responses
        for partition in topic.partitions
        if partition.acquired_records
    }


def offsets_in(response: ShareFetchResponse, partition: int = 0) -> list[int]:
    """The offsets of the records that came with a response."""
    return [
        record.offset
        for topic in response.responses
        for each in topic.partitions
        if each.partition_index == partition
        for batch in split_batches(bytes(each.records or b""))
        if isinstance(batch, RecordBatch)
        for record in batch.records()
    ]


def codes(response: Any) -> dict[int, int]:
    """The errors of the partitions of a response."""
    return {
        partition.partition_index: partition.error_code
        for topic in response.responses
        for partition in topic.partitions
    }


def ack_codes(response: ShareFetchResponse) -> dict[int, int]:
    """What became of the acknowledgements of a fetch."""
    return {
        partition.partition_index: partition.acknowledge_error_code
        for topic in response.responses
        for partition in topic.partitions
    }


def produce(broker: Broker, count: int = 3, partition: int = 0) -> None:
    """Some records for whoever takes them."""
    broker.produce(batch_bytes(records=count), partition=partition)
