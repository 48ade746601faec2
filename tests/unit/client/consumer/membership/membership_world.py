"""A membership in a test's hands: coordinator, network, metadata and user."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

from millstream.client.consumer.membership.link import MEMBERSHIP_NODE_ID
from millstream.client.consumer.membership.membership import Membership
from millstream.client.groups import OffsetAndMetadata
from millstream.protocol.messages import (
    FindCoordinatorResponse,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from millstream.protocol.messages.find_coordinator import Coordinator as FoundCoordinator
from millstream.types import TopicPartition
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    FakeLink,
    FakeMetadata,
    FakeOwner,
    FakeRouter,
    partitions,
    settings,
    to,
    topic_id,
)

if TYPE_CHECKING:
    from millstream.client.runtime import ClientRuntime
    from millstream.network.client.network_client import OnDone, RequestSource
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message

T0 = TopicPartition("t", 0)


class FakeNetwork:
    """One connection, to the coordinator."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.address: tuple[str, int] | None = None

    def set_address(self, node_id: int, host: str, port: int, *, is_member: bool) -> None:
        assert node_id == MEMBERSHIP_NODE_ID
        assert not is_member
        self.address = (host, port)

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        return self.link.ready

    def connection_delay_ms(self, node_id: int, now_ms: int) -> int:
        return 40

    def version_of(self, node_id: int, api: ApiKey) -> int | None:
        return self.link.version_of(api)

    def send(
        self,
        node_id: int,
        request: RequestSource,
        now_ms: int,
        on_done: OnDone,
        *,
        timeout_ms: int,
    ) -> None:
        self.link.send(request, now_ms, on_done, timeout_ms)

    def repeat(
        self,
        node_id: int,
        request: Message,
        first_ms: int,
        every_ms: int,
        until_ms: int,
        on_response: OnDone,
    ) -> int:
        return self.link.repeat(request, first_ms, every_ms, until_ms, on_response)

    def cancel(self, request_id: int) -> None:
        self.link.cancel(request_id)


class FakeRuntime:
    """What a membership sees of its client."""

    def __init__(self, **sizes: int) -> None:
        self.network = FakeNetwork()
        self.metadata = FakeMetadata(**sizes)
        self.router = FakeRouter()


class Story:
    """A membership and everything around it."""

    def __init__(self, **changes: object) -> None:
        self.runtime = FakeRuntime(t=2)
        self.owner = FakeOwner()
        self.link = self.runtime.network.link
        self.router = self.runtime.router
        self.membership = Membership(
            settings(**changes), cast("ClientRuntime", self.runtime), self.owner, Random(7)
        )
        self.outcomes: list[object] = []

    def subscribe(self, now_ms: int = 0) -> None:
        self.membership.enter_poll(now_ms)
        self.membership.subscribe(to("t"), now_ms)
        self.membership.poll(now_ms)

    def find_coordinator(self) -> None:
        found = FoundCoordinator(key=GROUP, node_id=5, host="h", port=9092)
        self.router.answer(FindCoordinatorResponse(coordinators=[found]))

    def take_in(self, assigned: str = "t-0 t-1") -> None:
        """The coordinator takes a member of the consumer protocol in."""
        topics = ConsumerGroupHeartbeatResponseTopicPartitions(
            topic_id=topic_id("t"),
            partitions=sorted(each.partition for each in partitions(assigned)),
        )
        self.link.answer(
            ConsumerGroupHeartbeatResponse(
                member_id="m",
                member_epoch=1,
                heartbeat_interval_ms=5_000,
                assignment=Assignment(topic_partitions=[topics]),
            )
        )

    def join(self) -> None:
        """Up to a stable member that owns both partitions."""
        self.subscribe()
        self.find_coordinator()
        self.membership.poll(0)
        self.take_in()
        self.membership.acknowledge(self.owner.events[-1], 0)
        self.membership.poll(0)
        self.take_in()

    def commit(self, partition: TopicPartition = T0, offset: int = 3) -> None:
        self.membership.commit({partition: OffsetAndMetadata(offset)}, 0, self.outcomes.append)
