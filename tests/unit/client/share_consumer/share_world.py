"""A share consumer's core in a test's hands: brokers, coordinator, metadata, application.

Broker 0 leads `t-0`, broker 1 leads `t-1`. The test answers each request itself.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from millstream.client.consumer.membership.link import MEMBERSHIP_NODE_ID
from millstream.client.share_consumer.config import ShareConsumerConfig
from millstream.client.share_consumer.share_buffer import Acquired, ShareBuffer
from millstream.client.share_consumer.share_core import ShareCore
from millstream.client.snapshot import Broker, MetadataSnapshot, Partition, Topic
from millstream.protocol.messages import FindCoordinatorResponse, share_fetch
from millstream.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.records.builder import RecordBatchBuilder
from millstream.types import TopicPartition
from tests.unit.client.consumer.membership.group_world import (
    FakeLink,
    FakeMetadata,
    FakeRouter,
    topic_id,
)

if TYPE_CHECKING:
    from millstream.client.runtime import ClientRuntime
    from millstream.client.share_consumer.in_hand import Decided
    from millstream.errors import MillstreamError
    from millstream.network.client.network_client import OnDone
    from millstream.protocol.message import Message

M = TypeVar("M", bound="Message")
T0 = TopicPartition("t", 0)


class _Sent(NamedTuple):
    request: Message
    on_done: OnDone


class ShareNetwork:
    """The brokers: one request each at a time, as the core promises."""

    def __init__(self) -> None:
        self.coordinator = FakeLink()
        self.sent: dict[int, _Sent] = {}

    def set_address(self, node_id: int, host: str, port: int, *, is_member: bool) -> None:
        assert node_id == MEMBERSHIP_NODE_ID

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return True

    def send(
        self,
        node_id: int,
        request: Message,
        now_ms: int,
        on_done: OnDone,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        if node_id == MEMBERSHIP_NODE_ID:
            self.coordinator.send(request, now_ms, on_done, timeout_ms)
            return
        assert node_id not in self.sent, "a share session has one request under way"
        request.encode_parts(request.VERSIONS.highest)  # It must be possible to send it.
        self.sent[node_id] = _Sent(request, on_done)

    def repeat(
        self,
        node_id: int,
        request: Message,
        first_ms: int,
        every_ms: int,
        until_ms: int,
        on_response: OnDone,
    ) -> int:
        return self.coordinator.repeat(request, first_ms, every_ms, until_ms, on_response)

    def cancel(self, periodic_id: int) -> None:
        self.coordinator.cancel(periodic_id)


class ShareMetadata(FakeMetadata):
    """Who leads what; hints are remembered."""

    def __init__(self) -> None:
        super().__init__(t=2)
        self.hints: list[tuple[str, int, int, int]] = []
        self.lead(0, 1)

    def lead(self, *leaders: int) -> None:
        """Brokers by partition of `t`; -1 if nobody leads."""
        partitions = tuple(Partition(index, each, 3) for index, each in enumerate(leaders))
        brokers = {0: Broker(0, "h", 1), 1: Broker(1, "h", 2)}
        topics = {"t": Topic("t", topic_id("t"), partitions)}
        self.snapshot = MetadataSnapshot("c", 0, brokers, topics)

    def learn_leader(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        leader_epoch: int,
        endpoint: Broker | None,
        now_ms: int,
    ) -> bool:
        self.hints.append((topic, partition, leader_id, leader_epoch))
        return True


class _Runtime:
    def __init__(self) -> None:
        self.network = ShareNetwork()
        self.metadata = ShareMetadata()
        self.router = FakeRouter()


class ShareWorld:
    """Everything around one core."""

    def __init__(self, **settings: object) -> None:
        runtime = _Runtime()
        self.network = runtime.network
        self.metadata = runtime.metadata
        self.router = runtime.router
        self.buffer = ShareBuffer()
        config = ShareConsumerConfig(
            bootstrap_servers=("h:1",),
            group_id="g",
            **settings,  # type: ignore[arg-type]  # by each test
        )
        self.core = ShareCore(config, cast("ClientRuntime", runtime), self.buffer, Random(7))
        self.core.is_in_poll = True

    def join(self, *partitions: int) -> ShareWorld:
        """A member that is to read these partitions of `t`."""
        self.core.subscribe(frozenset("t"), 0)
        self.core.poll(0)
        self.router.answer(FindCoordinatorResponse(host="h", port=1))
        self.core.poll(0)
        topic = TopicPartitions(topic_id=topic_id("t"), partitions=list(partitions))
        self.network.coordinator.answer(
            ShareGroupHeartbeatResponse(
                member_epoch=1, assignment=Assignment(topic_partitions=[topic])
            )
        )
        return self

    def want(self, *decided: Decided, now_ms: int = 0, until_ms: int | None = None) -> None:
        """The application polls."""
        self.core.want(decided, now_ms, until_ms, 10)
        self.core.poll(now_ms)

    def request(self, kind: type[M], node_id: int = 0) -> M:
        request = self.network.sent[node_id].request
        assert isinstance(request, kind)
        return request

    def answer(
        self, response: Message | MillstreamError, node_id: int = 0, now_ms: int = 0
    ) -> None:
        self.network.sent.pop(node_id).on_done(response, now_ms)
        self.core.poll(now_ms)

    def take(self) -> list[Acquired]:
        return self.buffer.take(1_000)


def records(*offsets: int) -> bytes:
    """A batch with records at these offsets."""
    builder = RecordBatchBuilder()
    for offset in offsets:
        builder.append(0, None, f"v{offset}".encode(), (), offset - offsets[0])
    return builder.build(base_offset=offsets[0])


def fetched(
    data: bytes = b"",
    *,
    first: int = 0,
    last: int = -1,
    error_code: int = 0,
    acknowledge_error_code: int = 0,
) -> share_fetch.ShareFetchResponse:
    """An answer with records of `t-0` that were acquired for the first time."""
    acquired = [share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)]
    found = share_fetch.PartitionData(
        partition_index=0,
        records=data,
        acquired_records=acquired if last >= first else [],
        error_code=error_code,
        acknowledge_error_code=acknowledge_error_code,
    )
    return share_fetch.ShareFetchResponse(
        acquisition_lock_timeout_ms=30_000,
        responses=[
            share_fetch.ShareFetchableTopicResponse(topic_id=topic_id("t"), partitions=[found])
        ],
    )
